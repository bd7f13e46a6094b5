"""What each command does, in the order in which it happens: one method a command, thin over the other modules."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from controllers.kube import MODEL_ENDPOINTS, NAMESPACES, KubeClient, KubeError, Object
from controllers.kube.credentials import CredentialsError, from_kubeconfig
from embedded import host_settings
from spec import names
from spec.environment import Environment
from spec.platform import PlatformSpec
from spec.problems import SpecError
from stacks import cluster
from stacks.cli import (
    applying,
    building,
    context_cluster,
    examples,
    keys,
    local_cluster,
    model_facts,
    planning,
    predict,
    status,
    tls,
)
from stacks.cli.console import Console, duration, table
from stacks.cli.context_cluster import Entrance
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_cli import Pulumi, ensure_passphrase, variables
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.declared import read_environment

T = TypeVar("T")
WHERE = f"kubectl -n {names.SYSTEM_NAMESPACE} get service {names.COMPONENT_GATEWAY}"
NOT_RUNNING = "nothing runs here: `knobless up` starts it"


@dataclass
class Actions:
    """One command's run in one workspace."""

    workspace: Workspace
    console: Console

    # what Git says, and where the cluster is

    def declared(self) -> Environment:
        """The environment's files, checked whole; raises CliError with every problem."""
        try:
            return read_environment(self.workspace.stacks, self.workspace.environment)
        except SpecError as error:
            count = len(error.problems)
            title = f"{count} problem{'s' if count > 1 else ''} in stacks/{self.workspace.environment}:"
            raise CliError("\n".join([title, *map(str, error.problems)]), code=ExitCode.SPEC) from None

    def facts(self) -> ClusterFacts:
        """Where the running cluster is; raises CliError where none is known."""
        try:
            told = {**os.environ, cluster.VARIABLE: str(self.workspace.cluster_file)}
            return cluster.cluster_facts(self.declared().platform, told)
        except cluster.ClusterUnknownError as error:
            raise CliError(NOT_RUNNING, code=ExitCode.NOT_FOUND) from error

    def with_kube(self, facts: ClusterFacts, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        """Run something against the API server; an unreachable one is one clear message."""

        return self._ask(Path(facts.kubeconfig), context_cluster.context_of(self.workspace), work)

    def _ask(self, kubeconfig: Path, context: str | None, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        async def inside() -> T:
            chosen = context_cluster.credentials(kubeconfig, context) if context else from_kubeconfig(kubeconfig)
            async with KubeClient(chosen) as kube:
                return await work(kube)

        try:
            return asyncio.run(inside())
        except (KubeError, CredentialsError, OSError) as error:
            hint = f"`kubectl --context {context} get nodes` has to work first" if context else NOT_RUNNING
            raise CliError(f"the cluster does not answer as it should: {error}", hint=hint) from error

    # up

    def up(self, *, assume_yes: bool, only: tuple[str, ...], announced: tuple[str, ...], demo: bool) -> None:
        started_s = self.console.clock()
        environment = self.declared()
        facts, bin_dir = self._bring_up(environment)
        if demo and environment.platform.context is None:
            with self.console.step("Example models: trained on data that scikit-learn ships, and registered"):
                self.console.note(examples.register(self.workspace, facts.model_registry))
        self._build(environment, facts, only)
        with self.console.step("Namespace and certificate of the gateway"):
            self.with_kube(facts, lambda kube: self._system_objects(kube, facts, environment.platform))
        if environment.platform.context is not None:
            self._note_entrance(facts, environment.platform)
        pulumi = Pulumi(self.workspace, bin_dir, self.console.note)
        plans = self._plans(pulumi, environment, only)
        applying.gate(plans, announced)
        self._confirm_removals(plans, assume_yes)
        applying.apply(pulumi, plans, self.console, lambda plan: self._watch(facts, plan))
        self._check_ready(plans)
        if environment.platform.context is not None:
            self._note_entrance(facts, environment.platform)
            self._point(self.facts())
        elif demo and environment.endpoints:
            self._first_prediction(environment, facts)
        self.console.note(f"\nup in {duration(self.console.clock() - started_s)}")

    def _bring_up(self, environment: Environment) -> tuple[ClusterFacts, Path]:
        """A cluster to apply to, and the folder of pulumi."""
        platform = environment.platform
        if platform.context is not None:
            facts = self.facts()
            ensure_passphrase(self.workspace)
            with self.console.step(f"Cluster {platform.context}: it answers, and pulumi is here"):
                self.with_kube(facts, context_cluster.reach)
                return facts, local_cluster.pulumi_only(self.workspace, self.console)
        local_cluster.check_machine(self.workspace, platform.gateway.port, self.console)
        ensure_passphrase(self.workspace)
        with self.console.step("Tools, packages and environments (what is there already is used)"):
            prepared = local_cluster.prepare(self.workspace, self.console)
        with self.console.step("Embedded cluster: Kubernetes, image registry, MLflow"):
            facts = local_cluster.start(self.workspace, prepared, platform, self.console)
        self._write_facts(facts)
        return facts, prepared.tools.bin_dir

    def _write_facts(self, facts: ClusterFacts) -> None:
        path = self.workspace.cluster_file
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(facts.model_dump_json(indent=2) + "\n")
        fresh.rename(path)

    def _note_entrance(self, facts: ClusterFacts, platform: PlatformSpec) -> None:
        """Before the plan, so that stacks can tell their URL; and after it, when a load balancer has its address."""
        assert platform.context is not None
        context_cluster.note_facts(self.workspace, platform.context, self._entrance(facts).url)

    def _entrance(self, facts: ClusterFacts) -> Entrance:
        """How clients reach the gateway: known of the embedded cluster, asked of another."""
        ca_dir, platform = self.workspace.ca_dir, self.declared().platform
        if platform.context is None:
            return Entrance(facts.gateway_url, tls.ca_file(ca_dir))
        return self.with_kube(facts, lambda kube: context_cluster.entrance_of(kube, platform, ca_dir))

    async def _system_objects(self, kube: KubeClient, facts: ClusterFacts, platform: PlatformSpec) -> None:
        labels = {"labels": names.managed_labels(names.COMPONENT_CONTROLLERS)}
        await kube.apply(NAMESPACES, None, names.SYSTEM_NAMESPACE, "knobless-tls", {"metadata": labels}, force=False)
        if platform.context is not None:
            made = await context_cluster.ensure_certificate(kube, platform, self.workspace.ca_dir, datetime.now(UTC))
            self.console.note(f"    {made or 'the certificate is there'}")
        elif facts.node_address is not None:
            hosts = [facts.node_address, "localhost", f"gateway.{names.SYSTEM_NAMESPACE}.svc"]
            await tls.ensure_secret(kube, self.workspace.ca_dir, hosts, datetime.now(UTC))

    def _plans(self, pulumi: Pulumi, environment: Environment, only: tuple[str, ...]) -> tuple[planning.StackPlan, ...]:
        with self.console.step("Plan"):
            plans = planning.make(
                pulumi,
                self._stacks(environment, only),
                self.workspace.environment,
                removals=not only,
                report=self.console.progress,
            )
            for plan in plans:
                self.console.note("\n".join(f"    {line}" for line in planning.describe(plan)))
        return plans

    def _stacks(self, environment: Environment, only: tuple[str, ...]) -> list[str]:
        """Names of the stacks to plan, platform first."""
        missing = [name for name in only if environment.endpoint(name) is None]
        if missing:
            raise CliError(f"no file declares {', '.join(missing)}", code=ExitCode.NOT_FOUND)
        chosen = [spec for spec in environment.endpoints if not only or spec.endpoint in only]
        of_endpoints = [
            names.EndpointStack(self.workspace.environment, spec.team, spec.endpoint).name for spec in chosen
        ]
        return [names.PlatformStack(self.workspace.environment).name, *of_endpoints]

    def _confirm_removals(self, plans: tuple[planning.StackPlan, ...], assume_yes: bool) -> None:
        gone = [plan.stack for plan in plans if plan.removed]
        if not gone or assume_yes:
            return
        hint = "`knobless up --yes` removes what the plan says"
        self._agree(f"Remove {', '.join(gone)}, whose files are gone?", assume_yes, hint)

    def _agree(self, question: str, assume_yes: bool, hint: str) -> None:
        """Go on after a yes; CliError otherwise, and where nobody can answer."""
        if assume_yes:
            return
        if not sys.stdin.isatty():
            raise CliError(f"{question} Nobody can answer here, so nothing was applied.", hint=hint)
        if not click.confirm(question, err=True):
            raise CliError("nothing was applied", hint="answer yes, or leave it as it is")

    def _watch(self, facts: ClusterFacts, plan: planning.StackPlan) -> Callable[[], str | None]:
        """Asked while an endpoint's stack is applied: the controllers' word on why waiting is pointless.

        Only a word about the very spec that is applied counts: before it has arrived, the object may still tell of
        an earlier one.
        """
        parsed, digest = names.parse_stack(plan.stack), plan.spec_digest
        if not isinstance(parsed, names.EndpointStack) or digest is None:
            return lambda: None
        namespace, name = names.team_namespace(parsed.team), parsed.endpoint

        async def look(kube: KubeClient) -> str | None:
            try:
                found = await kube.get(MODEL_ENDPOINTS, namespace, name)
            except KubeError:
                return None  # not there yet, or no answer: not a word about the endpoint
            carried = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_SPEC_DIGEST)
            return status.failure(found) if carried == digest else None

        def ask() -> str | None:
            try:
                return self.with_kube(facts, look)
            except CliError:
                return None

        return ask

    def _check_ready(self, plans: tuple[planning.StackPlan, ...]) -> None:
        """An endpoint that nothing had to be applied to may fail all the same; a run must not end well over it."""
        stacks = [names.parse_stack(plan.stack) for plan in plans if not plan.removed]
        wanted = {stack.endpoint for stack in stacks if isinstance(stack, names.EndpointStack)}
        found = [item for item in self.endpoints() if item["metadata"]["name"] in wanted]
        failed = [f"{item['metadata']['name']}: {told}" for item in found if (told := status.failure(item))]
        if failed:
            raise CliError("\n".join(failed), hint="`knobless logs ENDPOINT` shows more", code=ExitCode.NOT_READY)
        for read in map(status.read, found):
            if not read.ready:
                self.console.note(f"    {read.endpoint} is not ready at the moment: {read.reason}: {read.message}")

    def _first_prediction(self, environment: Environment, facts: ClusterFacts) -> None:
        first = environment.endpoints[0]
        self.with_kube(facts, lambda kube: self._ensure_keys(kube, environment))
        with self.console.step(f"A prediction from {first.endpoint} through the gateway"):
            pass
        self.predict(first.endpoint, None, None)
        self._point(facts)

    def _point(self, facts: ClusterFacts) -> None:
        self.console.result("\nWhere to look next:")
        for line in self.pointers(facts):
            self.console.result(f"  {line}")

    def pointers(self, facts: ClusterFacts) -> list[str]:
        """Addresses and commands for a person who has it running."""
        context = context_cluster.context_of(self.workspace)
        return [
            "./knobless status              what runs, replicas, decisions and why",
            f"models       {facts.model_registry}",
            f"gateway      {facts.gateway_url or '-'}",
            f"kubectl      export KUBECONFIG={facts.kubeconfig}" + (f" and --context {context}" if context else ""),
            'pulumi       eval "$(./knobless env)"; pulumi stack ls',
            "your model   docs/serve-your-own-model.md",
        ]

    async def _ensure_keys(self, kube: KubeClient, environment: Environment) -> None:
        """A key for each team with an endpoint, where this machine has none that the gateway accepts."""
        present = await keys.entries(kube)
        for team in sorted({spec.team for spec in environment.endpoints}):
            if keys.saved(self.workspace.keys_dir, team, present) is None:
                made = keys.make_key(team, datetime.now(UTC).isoformat(timespec="seconds"))
                keys.save(self.workspace.keys_dir, made)
                await keys.add(kube, made)

    # build, plan, down

    def build(self) -> None:
        environment = self.declared()
        self._build(environment, self.facts(), ())

    def _build(self, environment: Environment, facts: ClusterFacts, only: tuple[str, ...]) -> None:
        chosen = [spec for spec in environment.endpoints if not only or spec.endpoint in only]
        with self.console.step("Images: the platform's, and one for each distinct environment of a model"):
            built = building.build(self.workspace, facts, chosen, environment.platform.context, self.console.progress)
            self.console.note("\n".join(f"    {line}" for line in built))

    def plan(self, *, expect_no_changes: bool) -> None:
        environment = self.declared()
        facts = self.facts()
        ensure_passphrase(self.workspace)
        if environment.platform.context is not None:
            self.with_kube(facts, context_cluster.reach)
        bin_dir = local_cluster.pulumi_only(self.workspace, self.console)
        plans = self._plans(Pulumi(self.workspace, bin_dir, self.console.note), environment, ())
        applying.gate(plans)
        if expect_no_changes and any(plan.changes for plan in plans):
            raise CliError("the plan has changes", code=ExitCode.CHANGES)

    def down(self, *, purge: bool, assume_yes: bool) -> None:
        """Works without readable files too: what runs must be stoppable whatever Git says."""
        context = context_cluster.context_of(self.workspace)
        if context is not None:
            self._clear(context, assume_yes)
        else:
            with self.console.step(f"Stopping instance {self.workspace.instance}"):
                local_cluster.stop(self.workspace, self.console)
        if purge:
            with self.console.step(f"Removing {self.workspace.home}"):
                local_cluster.purge(self.workspace)

    def _clear(self, context: str, assume_yes: bool) -> None:
        """Take the environment off a cluster of the user's own; the cluster, images and models stay."""
        kubeconfig = cluster.user_kubeconfig(os.environ, context)
        self._ask(kubeconfig, context, context_cluster.reach)
        bin_dir = local_cluster.pulumi_only(self.workspace, self.console)
        pulumi = Pulumi(self.workspace, bin_dir, self.console.note)
        standing = context_cluster.standing(pulumi, self.workspace.environment)
        if standing.is_empty:
            self.console.note(f"No stack of {self.workspace.environment!r} is known here.")
        else:
            self.console.note(context_cluster.removal(context, standing))
            self._agree("Remove all this?", assume_yes, "`knobless down --yes` does without the question")
            context_cluster.remove(pulumi, standing, self.console)
        self._ask(kubeconfig, context, context_cluster.clear_leftovers)
        local_cluster.forget_stacks(self.workspace)

    # status, logs, predict, keys

    def endpoints(self) -> list[Object]:
        """All endpoint objects of the cluster, by team and name."""
        found = self.with_kube(self.facts(), lambda kube: kube.list(MODEL_ENDPOINTS))
        return sorted(found, key=lambda item: (item["spec"]["team"], item["metadata"]["name"]))

    def endpoint(self, name: str) -> Object:
        for item in self.endpoints():
            if item["metadata"]["name"] == name:
                return item
        raise CliError(f"no endpoint {name!r}", hint="`knobless status` lists them", code=ExitCode.NOT_FOUND)

    def status(self, endpoint: str | None, *, as_json: bool) -> None:
        items = [self.endpoint(endpoint)] if endpoint else self.endpoints()
        read = [status.read(item) for item in items]
        if as_json:
            self.console.result(json.dumps(status.as_json(read), indent=2))
        elif endpoint:
            self.console.result(status.render_one(read[0]))
        else:
            facts = self.facts()
            self.console.result(status.render(read))
            self.console.result(f"\ngateway {self._entrance(facts).url or '-'}   models {facts.model_registry}")
            if facts.node_address is not None:
                self.console.result("NetworkPolicies are declared and checked, but the embedded network enforces none.")

    def logs(self, name: str, *, follow: bool, lines: int) -> int:
        """kubectl's own logs, with the right selector; returns its exit code."""
        facts = self.facts()
        selector, namespace = self._selector(name)
        context = context_cluster.context_of(self.workspace)
        argv = [str(self._kubectl()), "--kubeconfig", facts.kubeconfig, *(["--context", context] if context else [])]
        argv += ["-n", namespace, "logs", "-l", selector]
        argv += ["--all-containers", "--prefix", "--max-log-requests", "50", "--tail", str(lines)]
        environment = {**os.environ, **host_settings.no_proxy(os.environ)}
        return os.spawnve(os.P_WAIT, argv[0], argv + (["-f"] if follow else []), environment)

    def _selector(self, name: str) -> tuple[str, str]:
        if name in (names.COMPONENT_GATEWAY, names.COMPONENT_CONTROLLERS):
            return f"{names.LABEL_COMPONENT}={name}", names.SYSTEM_NAMESPACE
        found = self.endpoint(name)
        return f"{names.LABEL_ENDPOINT}={name}", str(found["metadata"]["namespace"])

    def _kubectl(self) -> Path:
        """kubectl of the tools folder, else of PATH."""
        own = local_cluster.bin_dir(self.workspace) / "kubectl"
        found = own if own.exists() else shutil.which("kubectl")
        if found is None:
            brings = "`knobless up` brings one for an embedded cluster; for another, put yours on PATH"
            raise CliError("there is no kubectl", hint=brings, code=ExitCode.MACHINE)
        return Path(found)

    def predict(self, endpoint: str, payload: bytes | None, key_file: Path | None) -> bool:
        """Print the answer and the curl line; says whether it was a 200."""
        facts = self.facts()
        found = self.endpoint(endpoint)
        key_file = key_file or self._key_file(facts, str(found["spec"]["team"]))
        payload_file = self._payload_file(facts, found, payload)
        entrance = self._entrance(facts)
        ca, gateway = entrance.ca, entrance.url
        if gateway is None:
            raise CliError("the gateway has no address yet", hint=f"the cluster gives one to its Service: {WHERE}")
        answer = predict.send(gateway, endpoint, key_file.read_text().strip(), payload_file.read_bytes(), ca)
        self.console.result(f"HTTP {answer.status} in {answer.took_ms:.1f} ms, request {answer.request_id}")
        self.console.result(json.dumps(answer.body) if not isinstance(answer.body, str) else answer.body)
        self.console.result("\nThe same by hand:")
        past_proxies = facts.node_address is not None and host_settings.has_proxies(os.environ)
        line = predict.curl_line(gateway, endpoint, key_file, ca, payload_file, past_proxies=past_proxies)
        self.console.result(line)
        return answer.status == 200

    def _key_file(self, facts: ClusterFacts, team: str) -> Path:
        present = self.with_kube(facts, keys.entries)
        found = keys.saved(self.workspace.keys_dir, team, present)
        if found is None:
            hint = f"`knobless keys create --team {team}` makes one; or name its file with --key-file"
            raise CliError(f"no key of team {team} is saved here", hint=hint, code=ExitCode.NOT_FOUND)
        return self.workspace.keys_dir / f"{found[0]}.key"

    def _payload_file(self, facts: ClusterFacts, endpoint: Object, payload: bytes | None) -> Path:
        """The request body as a file: what was given, or the model's input example."""
        target = self.workspace.payloads_dir / f"{endpoint['metadata']['name']}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        if payload is not None:
            target.write_bytes(payload)
            return target
        example = self.workspace.home / "models" / str(endpoint["spec"]["model"]["sha256"]) / model_facts.EXAMPLE
        if not example.is_file():
            raise CliError("the model has no input example", hint="give the request with --data FILE")
        shutil.copyfile(example, target)
        return target

    def create_key(self, team: str) -> None:
        teams = self.declared().platform.teams
        if team not in teams:
            known = ", ".join(sorted(teams)) or "none"
            raise CliError(f"no team {team!r} in platform.yaml (teams: {known})", code=ExitCode.NOT_FOUND)
        made = keys.make_key(team, datetime.now(UTC).isoformat(timespec="seconds"))
        self.with_kube(self.facts(), lambda kube: keys.add(kube, made))
        path = keys.save(self.workspace.keys_dir, made)
        self.console.result(made.secret)
        self.console.note(f"Key {made.key_id} of team {team}. It is not shown again; it is saved in {path}.")

    def list_keys(self, *, as_json: bool) -> None:
        present = self.with_kube(self.facts(), keys.entries)
        rows = [[key_id, entry.team, entry.created] for key_id, entry in sorted(present.items())]
        if as_json:
            fields = ("id", "team", "created")
            self.console.result(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=2))
        else:
            self.console.result(table(rows, ["KEY", "TEAM", "CREATED"]) if rows else "No keys.")

    def revoke_key(self, key_id: str) -> None:
        self.with_kube(self.facts(), lambda kube: keys.revoke(kube, key_id))
        (self.workspace.keys_dir / f"{key_id}.key").unlink(missing_ok=True)
        self.console.note(f"Key {key_id} is revoked.")

    def shell_variables(self) -> dict[str, Any]:
        """What `pulumi` and `kubectl` need in a shell."""
        facts = self.facts()
        chosen = local_cluster.bin_dir(self.workspace)
        return {**variables(self.workspace, chosen, os.environ), "KUBECONFIG": facts.kubeconfig}
