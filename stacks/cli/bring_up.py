"""`up`, `build`, `plan` and `down`: the order in which things happen, each step announced.

Leaves every step to its module. One idea: nothing is started before the files are read whole and the machine is judged,
and nothing is applied that was not planned and gated in the same run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from controllers.kube import NAMESPACES, KubeClient
from spec import names
from spec.endpoint import EndpointSpec
from spec.environment import Environment
from spec.platform import PlatformSpec
from stacks import cluster
from stacks.choosing import Place
from stacks.cli import (
    applying,
    building,
    choices,
    context_cluster,
    env_secrets,
    examples,
    groups,
    keys,
    local_cluster,
    model_facts,
    planning,
    pull_secrets,
    tls,
    views,
    waiting,
)
from stacks.cli.console import duration
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_cli import Pulumi, ensure_passphrase
from stacks.cli.session import Session
from stacks.cluster import ClusterFacts
from stacks.lookup import HttpLookup

Endpoints = tuple[EndpointSpec, ...]


def up(session: Session, *, assume_yes: bool, only: tuple[str, ...], announced: tuple[str, ...], demo: bool) -> None:
    """Start what is missing, build, plan, gate, apply; with `demo` also train, register and predict."""
    started_s = session.console.clock()
    environment = session.declared()
    chosen = _chosen(environment, only)
    facts, bin_dir = _bring_up(session, environment)
    if demo and environment.platform.context is None:
        with session.console.step("Example models: trained on data that scikit-learn ships, and registered"):
            session.console.note(examples.register(session.workspace, facts.model_registry))
    _build(session, environment, facts, chosen)
    with session.console.step("Namespace and certificate of the gateway"):
        session.with_kube(facts, lambda kube: _system_objects(session, kube, facts, environment.platform))
    if facts.groups or groups.wanted(environment.endpoints):
        with session.console.step("LeaderWorkerSet, for replicas that span nodes"):
            _ensure_groups(session, facts, environment)
    if pull_secrets.wanted(environment.platform):
        with session.console.step("Pull secrets: there wherever platform.yaml names one"):
            session.with_kube(facts, lambda kube: pull_secrets.check(kube, environment.platform))
    if env_secrets.wanted(chosen):
        with session.console.step("Secrets that variables of endpoints name: there"):
            session.with_kube(facts, lambda kube: env_secrets.check(kube, chosen))
    if environment.platform.context is not None:
        _note_entrance(session, facts, environment.platform)
    pulumi = Pulumi(session.workspace, bin_dir, session.console.note)
    plans = _plans(session, pulumi, chosen, removals=not only)
    agreed = _gate(session, plans, announced)
    _confirm_removals(session, plans, assume_yes)
    applying.apply(pulumi, plans, session.console, lambda plan: waiting.watch(session, facts, plan), agreed)
    waiting.check_ready(session, plans)
    if environment.platform.context is not None:
        _note_entrance(session, facts, environment.platform)
        views.point(session, session.facts())
    elif demo and chosen:
        _first_prediction(session, chosen, facts)
    session.console.note(f"\nup in {duration(session.console.clock() - started_s)}")


def _chosen(environment: Environment, only: tuple[str, ...]) -> Endpoints:
    """The endpoints that are meant, all without `only`; CliError where no file declares one of them."""
    missing = [name for name in only if environment.endpoint(name) is None]
    if missing:
        known = ", ".join(spec.endpoint for spec in environment.endpoints) or "none"
        raise CliError(f"no file declares {', '.join(missing)} (endpoints: {known})", code=ExitCode.NOT_FOUND)
    return tuple(spec for spec in environment.endpoints if not only or spec.endpoint in only)


def _bring_up(session: Session, environment: Environment) -> tuple[ClusterFacts, Path]:
    """A cluster to apply to, and the folder of pulumi."""
    platform = environment.platform
    if platform.context is not None:
        facts = session.facts()
        ensure_passphrase(session.workspace)
        with session.console.step(f"Cluster {platform.context}: it answers, and pulumi is here"):
            session.with_kube(facts, context_cluster.reach)
            return facts, local_cluster.pulumi_only(session.workspace, session.console)
    local_cluster.check_owner(session.workspace)
    local_cluster.check_machine(session.workspace, platform.gateway.port, session.console)
    ensure_passphrase(session.workspace)
    with session.console.step("Tools, packages and environments (what is there already is used)"):
        prepared = local_cluster.prepare(session.workspace, session.console)
    with session.console.step("Embedded cluster: Kubernetes, image registry, MLflow"):
        facts = local_cluster.start(session.workspace, prepared, platform, session.console)
    facts = _look_for_groups(session, facts)
    _write_facts(session, facts)
    return facts, prepared.tools.bin_dir


def _look_for_groups(session: Session, facts: ClusterFacts) -> ClusterFacts:
    """With what the embedded cluster says of groups: what makes them goes after the last one."""
    return facts.model_copy(update={"groups": session.with_kube(facts, groups.standing)})


def _write_facts(session: Session, facts: ClusterFacts) -> None:
    path = session.workspace.cluster_file
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(facts.model_dump_json(indent=2) + "\n")
    fresh.rename(path)


def _note_entrance(session: Session, facts: ClusterFacts, platform: PlatformSpec) -> None:
    """Before the plan, so that stacks can tell their URL; and after it, when a load balancer has its address."""
    assert platform.context is not None
    context_cluster.note_facts(session.workspace, platform.context, session.entrance(facts).url)


async def _system_objects(session: Session, kube: KubeClient, facts: ClusterFacts, platform: PlatformSpec) -> None:
    labels = {"labels": names.managed_labels(names.COMPONENT_CONTROLLERS)}
    await kube.apply(NAMESPACES, None, names.SYSTEM_NAMESPACE, "knobless-tls", {"metadata": labels}, force=False)
    if platform.context is not None:
        made = await context_cluster.ensure_certificate(kube, platform, session.workspace.ca_dir, datetime.now(UTC))
        session.console.note(f"    {made or 'the certificate is there'}")
    elif facts.node_address is not None:
        hosts = [facts.node_address, "localhost", f"gateway.{names.SYSTEM_NAMESPACE}.svc"]
        await tls.ensure_secret(kube, session.workspace.ca_dir, hosts, datetime.now(UTC))


def _first_prediction(session: Session, chosen: Endpoints, facts: ClusterFacts) -> None:
    session.with_kube(facts, lambda kube: _ensure_keys(session, kube, chosen))
    shown = next((spec.endpoint for spec in chosen if _has_example(session, facts, spec)), None)
    if shown is None:
        session.console.note("==> No prediction: no model has an input example (`knobless predict ENDPOINT -d FILE`)")
    else:
        session.console.note(f"==> A prediction from {shown} through the gateway")
        views.first_prediction(session, shown)
    views.point(session, facts)


def _has_example(session: Session, facts: ClusterFacts, spec: EndpointSpec) -> bool:
    if spec.model is None:
        return False
    known = model_facts.known(session.workspace, facts.model_registry, spec.model)
    return known is not None and known.example is not None


async def _ensure_keys(session: Session, kube: KubeClient, chosen: Endpoints) -> None:
    """A key for each team with an endpoint, where this machine has none that the gateway accepts."""
    present = await keys.entries(kube)
    for team in sorted({spec.team for spec in chosen}):
        if keys.saved(session.workspace.keys_dir, team, present) is None:
            made = keys.make_key(team, datetime.now(UTC).isoformat(timespec="seconds"))
            keys.save(session.workspace.keys_dir, made)
            await keys.add(kube, made)


def _ensure_groups(session: Session, facts: ClusterFacts, environment: Environment) -> None:
    """On a cluster of a person's own it is theirs, and there; on the embedded one it is made so."""
    if environment.platform.context is not None:
        session.with_kube(facts, lambda kube: groups.check(kube, environment.endpoints))
        return
    kinds = groups.definitions(session.workspace, session.console.progress)
    now = datetime.now(UTC)
    session.with_kube(facts, lambda kube: groups.ensure(kube, kinds, session.workspace.ca_dir, now))


def build(session: Session) -> None:
    environment = session.declared()
    _build(session, environment, session.facts(), environment.endpoints)


def _build(session: Session, environment: Environment, facts: ClusterFacts, chosen: Endpoints) -> None:
    context, spanning = environment.platform.context, facts.groups or groups.wanted(environment.endpoints)
    with session.console.step("Images: the platform's, and one for each distinct environment of a model"):
        report = session.console.progress
        built = building.build(session.workspace, facts, chosen, context, report, groups=spanning)
        session.console.note("\n".join(f"    {line}" for line in built))


def plan(session: Session, *, announced: tuple[str, ...], expect_no_changes: bool) -> None:
    environment = session.declared()
    facts = session.facts()
    ensure_passphrase(session.workspace)
    if environment.platform.context is not None:
        session.with_kube(facts, context_cluster.reach)
    elif (now := _look_for_groups(session, facts)) != facts:
        _write_facts(session, now)
    _note_choices(session, environment, facts)
    bin_dir = local_cluster.pulumi_only(session.workspace, session.console)
    plans = _plans(session, Pulumi(session.workspace, bin_dir, session.console.note), environment.endpoints)
    _gate(session, plans, announced)
    _note_missing_secrets(session, facts, environment)
    if expect_no_changes and any(plan.changes for plan in plans):
        raise CliError("the plan has changes", code=ExitCode.CHANGES)


def _note_choices(session: Session, environment: Environment, facts: ClusterFacts) -> None:
    """What serves each endpoint, and why; `up` tells it where it builds."""
    workspace, context = session.workspace, environment.platform.context
    place = Place(workspace.root, workspace.environment, facts.registry, HttpLookup(facts, context is None))
    with session.console.step("What serves each endpoint"):
        for line in choices.lines(place, environment.endpoints):
            session.console.note(f"    {line}")


def _note_missing_secrets(session: Session, facts: ClusterFacts, environment: Environment) -> None:
    needed = pull_secrets.wanted(environment.platform)
    problems: list[str] = []
    if needed:
        problems += session.with_kube(facts, lambda kube: pull_secrets.problems(kube, needed))
    if env_secrets.wanted(environment.endpoints):
        problems += session.with_kube(facts, lambda kube: env_secrets.problems(kube, environment.endpoints))
    if environment.platform.context is not None and groups.wanted(environment.endpoints):
        problems += session.with_kube(facts, lambda kube: groups.problems(kube, environment.endpoints))
    for problem in problems:
        session.console.note(f"    `up` will stop: {problem}")


def _plans(
    session: Session, pulumi: Pulumi, chosen: Endpoints, *, removals: bool = True
) -> tuple[planning.StackPlan, ...]:
    environment = session.workspace.environment
    stacks = [names.EndpointStack(environment, spec.team, spec.endpoint).name for spec in chosen]
    with session.console.step("Plan"):
        plans = planning.make(
            pulumi,
            [names.PlatformStack(environment).name, *stacks],
            environment,
            removals=removals,
            report=session.console.progress,
        )
        for plan in plans:
            session.console.note("\n".join(f"    {line}" for line in planning.describe(plan)))
    return plans


def _gate(session: Session, plans: tuple[planning.StackPlan, ...], announced: tuple[str, ...]) -> applying.Agreed:
    """What was announced and will happen is told, as what is refused is."""
    agreed = applying.gate(plans, announced)
    for stack, verdicts in agreed.items():
        for verdict in verdicts:
            session.console.note(f"    {stack}: {verdict}")
    return agreed


def _confirm_removals(session: Session, plans: tuple[planning.StackPlan, ...], assume_yes: bool) -> None:
    gone = [plan.stack for plan in plans if plan.removed]
    if gone:
        hint = "`knobless up --yes` removes what the plan says"
        session.agree(f"Remove {', '.join(gone)}, whose files are gone?", assume_yes, hint)


def down(session: Session, *, purge: bool, assume_yes: bool, cluster_gone: bool = False) -> None:
    """Works without readable files too: what runs must be stoppable whatever Git says."""
    context = context_cluster.context_of(session.workspace)
    if context is not None and cluster_gone:
        _forget(session, context, assume_yes)
    elif context is not None:
        _clear(session, context, assume_yes)
    else:
        with session.console.step(f"Stopping instance {session.workspace.instance}"):
            local_cluster.stop(session.workspace, session.console)
    if purge:
        with session.console.step(f"Removing {session.workspace.home}"):
            local_cluster.purge(session.workspace, session.console)


def _forget(session: Session, context: str, assume_yes: bool) -> None:
    """The state of an environment whose cluster is no more; no cluster is asked, and nothing is removed from one."""
    bin_dir = local_cluster.pulumi_only(session.workspace, session.console)
    pulumi = Pulumi(session.workspace, bin_dir, session.console.note)
    stacks = context_cluster.standing(pulumi, session.workspace.environment).stacks
    if stacks:
        question = f"Forget {', '.join(stacks)}, as the cluster {context!r} is gone? What still stands there stays."
        session.agree(question, assume_yes, "`knobless down --cluster-gone --yes` does without the question")
        for stack in stacks:
            pulumi.forget(stack)
    local_cluster.forget_stacks(session.workspace)


def _clear(session: Session, context: str, assume_yes: bool) -> None:
    """Take the environment off a cluster of the user's own; the cluster, images and models stay."""
    kubeconfig = cluster.user_kubeconfig(os.environ, context)
    session.ask(kubeconfig, context, context_cluster.reach)
    bin_dir = local_cluster.pulumi_only(session.workspace, session.console)
    pulumi = Pulumi(session.workspace, bin_dir, session.console.note)
    standing = context_cluster.standing(pulumi, session.workspace.environment)
    if standing.is_empty:
        session.console.note(f"No stack of {session.workspace.environment!r} is known here.")
    else:
        session.console.note(context_cluster.removal(context, standing))
        session.agree("Remove all this?", assume_yes, "`knobless down --yes` does without the question")
        context_cluster.remove(pulumi, standing, session.console)
    session.ask(kubeconfig, context, context_cluster.clear_leftovers)
    local_cluster.forget_stacks(session.workspace)
