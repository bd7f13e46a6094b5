"""`status`, `logs`, `predict` and `env`: what runs, shown; nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from controllers.kube import Object
from embedded import host_settings
from spec import names
from stacks.cli import context_cluster, keys, local_cluster, model_facts, waiting
from stacks.cli import predict as prediction
from stacks.cli import status as statuses
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_cli import variables
from stacks.cli.session import Session
from stacks.cluster import ClusterFacts

WHERE = f"kubectl -n {names.SYSTEM_NAMESPACE} get service {names.COMPONENT_GATEWAY}"


def show_status(session: Session, endpoint: str | None, *, as_json: bool) -> None:
    items = [session.endpoint(endpoint)] if endpoint else session.endpoints()
    read = [statuses.read(item) for item in items]
    if as_json:
        session.console.result(json.dumps(statuses.as_json(read), indent=2))
    elif endpoint:
        session.console.result(statuses.render_one(read[0]))
    else:
        facts = session.facts()
        session.console.result(statuses.render(read))
        session.console.result(f"\ngateway {session.entrance(facts).url or '-'}   models {facts.model_registry}")
        if facts.node_address is not None:
            session.console.result("NetworkPolicies are declared and checked, but the embedded network enforces none.")


def logs(session: Session, name: str, *, follow: bool, lines: int) -> int:
    """kubectl's own logs, with the right selector; returns its exit code."""
    facts = session.facts()
    selector, namespace = _selector(session, name)
    context = context_cluster.context_of(session.workspace)
    argv = [str(kubectl(session)), "--kubeconfig", facts.kubeconfig, *(["--context", context] if context else [])]
    argv += ["-n", namespace, "logs", "-l", selector]
    argv += ["--all-containers", "--prefix", "--max-log-requests", "50", "--tail", str(lines)]
    environment = {**os.environ, **host_settings.no_proxy(os.environ)}
    return os.spawnve(os.P_WAIT, argv[0], argv + (["-f"] if follow else []), environment)


def _selector(session: Session, name: str) -> tuple[str, str]:
    if name in (names.COMPONENT_GATEWAY, names.COMPONENT_CONTROLLERS):
        return f"{names.LABEL_COMPONENT}={name}", names.SYSTEM_NAMESPACE
    found = session.endpoint(name)
    return f"{names.LABEL_ENDPOINT}={name}", str(found["metadata"]["namespace"])


def kubectl(session: Session) -> Path:
    """kubectl of the tools folder, else of PATH."""
    own = local_cluster.bin_dir(session.workspace) / "kubectl"
    found = own if own.exists() else shutil.which("kubectl")
    if found is None:
        brings = "`knobless up` brings one for an embedded cluster; for another, put yours on PATH"
        raise CliError("there is no kubectl", hint=brings, code=ExitCode.MACHINE)
    return Path(found)


def predict(
    session: Session, endpoint: str, payload: bytes | None, key_file: Path | None, path: str = prediction.INVOCATIONS
) -> bool:
    """Print the answer and the curl line; says whether it was a 200."""
    request = replace(_request(session, endpoint, payload, key_file), path=path)
    return _show(session, request, request.send())


def first_prediction(session: Session, endpoint: str) -> None:
    """As `predict`, as soon as the endpoint is served: its pods may be on their way. CliError where it never is."""
    request = _request(session, endpoint, None, None)
    answer = waiting.served(request.send, session.console)
    if not _show(session, request, answer):
        hint = "`knobless status` and `knobless logs gateway` show more"
        raise CliError(f"{endpoint} answers HTTP {answer.status}", hint=hint, code=ExitCode.NOT_READY)


def _request(session: Session, endpoint: str, payload: bytes | None, key_file: Path | None) -> prediction.Request:
    facts = session.facts()
    found = session.endpoint(endpoint)
    key_file = key_file or _key_file(session, facts, str(found["spec"]["team"]))
    payload_file = _payload_file(session, facts, found, payload)
    entrance = session.entrance(facts)
    if entrance.url is None:
        raise CliError("the gateway has no address yet", hint=f"the cluster gives one to its Service: {WHERE}")
    past_proxies = facts.node_address is not None and host_settings.has_proxies(os.environ)
    return prediction.Request(entrance.url, endpoint, key_file, entrance.ca, payload_file, past_proxies)


def _show(session: Session, request: prediction.Request, answer: prediction.Answer) -> bool:
    session.console.result(f"HTTP {answer.status} in {answer.took_ms:.1f} ms, request {answer.request_id}")
    session.console.result(json.dumps(answer.body) if not isinstance(answer.body, str) else answer.body)
    session.console.result("\nThe same by hand:")
    session.console.result(request.curl_line())
    return answer.status == 200


def _key_file(session: Session, facts: ClusterFacts, team: str) -> Path:
    present = session.with_kube(facts, keys.entries)
    found = keys.saved(session.workspace.keys_dir, team, present)
    if found is None:
        hint = f"`knobless keys create --team {team}` makes one; or name its file with --key-file"
        raise CliError(f"no key of team {team} is saved here", hint=hint, code=ExitCode.NOT_FOUND)
    return session.workspace.keys_dir / f"{found[0]}.key"


def _payload_file(session: Session, facts: ClusterFacts, endpoint: Object, payload: bytes | None) -> Path:
    """The request body as a file: what was given, or the model's input example."""
    target = session.workspace.payloads_dir / f"{endpoint['metadata']['name']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    if payload is not None:
        target.write_bytes(payload)
        return target
    example = session.workspace.home / "models" / str(endpoint["spec"]["model"]["sha256"]) / model_facts.EXAMPLE
    if not example.is_file():
        raise CliError("the model has no input example", hint="give the request with --data FILE")
    shutil.copyfile(example, target)
    return target


def point(session: Session, facts: ClusterFacts) -> None:
    session.console.result("\nWhere to look next:")
    for line in pointers(session, facts):
        session.console.result(f"  {line}")


def pointers(session: Session, facts: ClusterFacts) -> list[str]:
    """Addresses and commands for a person who has it running."""
    context = context_cluster.context_of(session.workspace)
    return [
        "./knobless status              what runs, replicas, decisions and why",
        f"models       {facts.model_registry}",
        f"gateway      {facts.gateway_url or '-'}",
        f"kubectl      export KUBECONFIG={facts.kubeconfig}" + (f" and --context {context}" if context else ""),
        'pulumi       eval "$(./knobless env)"; pulumi stack ls',
        "your model   docs/serve-your-own-model.md",
    ]


def shell_variables(session: Session) -> dict[str, str]:
    """What `pulumi` and `kubectl` need in a shell."""
    facts = session.facts()
    chosen = local_cluster.bin_dir(session.workspace)
    return {**variables(session.workspace, chosen, os.environ), "KUBECONFIG": facts.kubeconfig}
