"""`explain`: why an endpoint has the replicas that it has, in one screen, from its status; and its records.

Owns the words for a person. One idea: every number stands with what it came from; what no controller has told is `-`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from controllers.autoscaler.holds import TYPES
from controllers.kube import PODS, Object
from controllers.kube.fields import condition, key_of, mapping, seconds
from embedded import host_settings
from spec import names
from spec.sizing import ceiling_replicas, floor_replicas
from stacks.cli import context_cluster, views
from stacks.cli import status as statuses
from stacks.cli.console import duration, table
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.session import Session

# What each rule has to say; the last that is named has moved the number.
RULES: Mapping[str, str] = {
    "raw": "demand over target",
    "stabilise": "a decrease goes no lower than the recent peak",
    "n_minus_1": "a decrease leaves room for the peak",
    "bursts": "bursts that recurred in the last half hour stay covered",
    "growth_cap": "growth in one cycle is bounded",
    "floor": "always ready: concurrency.min",
    "numbers": "the highest numbers go first: groups that are ready stay",
    "ceiling": "never more: concurrency.max",
    "budget": "what the namespace's quota leaves",
    "circuit": "pods fail to start: no more of them for now",
    "Paused": "held by a person",
    "DryRun": "held by a person: a dry run",
    "Overridden": "a person's number",
}


@dataclass(frozen=True)
class Explanation:
    """One endpoint's replicas and why; None is "not told"."""

    endpoint: str
    team: str
    ready_replicas: int | None
    desired_replicas: int | None
    told_s_ago: float | None
    load: Mapping[str, float]
    demand: float | None
    origin: str
    target_concurrency: float | None
    revision: Mapping[str, Any]
    range_replicas: tuple[int, int] | None
    reason: str | None
    rules: tuple[tuple[str, int], ...]
    held_by: tuple[tuple[str, str], ...]
    decisions: tuple[statuses.Decision, ...]
    nodes: int = 1


def explanation(endpoint: Object, now_s: float) -> Explanation:
    """Reads the status of one endpoint object, whatever part of it exists."""
    read, scaler = statuses.read(endpoint), mapping(endpoint, "status", "autoscaler")
    load, told_s = mapping(scaler, "load"), seconds(scaler.get("decidedAt"))
    traffic = str(mapping(endpoint, "status").get("trafficRevision") or "")
    revision = mapping(scaler, "revisions", traffic)
    declared = statuses.declared_target(endpoint)
    bounds = (floor_replicas(read.minimum, declared), ceiling_replicas(read.maximum, declared)) if declared else None
    return Explanation(
        endpoint=read.endpoint,
        team=read.team,
        ready_replicas=read.ready_replicas,
        desired_replicas=read.desired_replicas,
        told_s_ago=max(now_s - told_s, 0.0) if told_s is not None else None,
        load=load,
        demand=read.demand,
        origin=_origin(load, read.demand),
        target_concurrency=read.target_concurrency,
        revision=revision | ({"name": traffic} if traffic else {}),
        range_replicas=bounds,
        reason=scaler.get("reason"),
        rules=_rules(str(scaler.get("rules") or "")),
        held_by=tuple((kind, str(c["message"])) for kind in TYPES if (c := condition(endpoint, kind))),
        decisions=read.decisions,
        nodes=read.nodes,
    )


def _rules(trace: str) -> tuple[tuple[str, int], ...]:
    """`raw 4, floor 5` by rule."""
    words = (part.rsplit(" ", 1) for part in trace.split(", ") if part)
    return tuple((word[0], int(word[1])) for word in words if len(word) == 2 and word[1].isdecimal())


def _origin(load: Mapping[str, float], demand: float | None) -> str:
    """How the demand came: what arrives x W and the backlog's share, or what is in flight."""
    if demand is None:
        return "no gateway tells the load"
    arrived, service_s = load.get("arrivedRps"), load.get("serviceTimeS")
    waiting = load.get("inFlight", 0.0) + load.get("queued", 0.0)
    if arrived is not None and service_s is not None and abs(demand - waiting) > 0.1:
        flow = arrived * service_s
        rest = demand - flow
        backlog = f" = {flow:.1f}, and {rest:.1f} for the backlog" if rest > 0.1 else ""
        return f"{arrived:.1f} first attempts/s x {service_s:g} s{backlog}"
    return f"{load.get('inFlight', 0.0):.1f} in flight and {load.get('queued', 0.0):.1f} queued"


def render(told: Explanation) -> str:
    """A screen for a person."""
    lines = [f"{told.endpoint} (team {told.team}): {_replicas(told)}", ""]
    lines += _aligned([("load", _load(told)), ("demand", _demand(told)), ("target", _target(told))])
    lines += [
        "",
        *(
            _aligned([(rule, f"{n:>6}   {RULES.get(rule, '')}".rstrip()) for rule, n in told.rules])
            or ["no rule has spoken"]
        ),
    ]
    lines += ["", *(_aligned(list(told.held_by)) or ["Held by nobody: replicas follow the load."])]
    if told.decisions:
        rows = [
            [d.at, d.revision, f"{_shown(d.before)} -> {_shown(d.after)}", d.reason, d.detail] for d in told.decisions
        ]
        lines += ["", table(rows, ["AT", "REVISION", "REPLICAS", "REASON", "DETAIL"])]
    return "\n".join(lines)


def _replicas(told: Explanation) -> str:
    bounds = f", {told.range_replicas[0]} to {told.range_replicas[1]} by its range" if told.range_replicas else ""
    reason = f" ({told.reason})" if told.reason else ""
    wide = f", each over {told.nodes} nodes" if told.nodes > 1 else ""
    return f"{_shown(told.ready_replicas)} ready, {_shown(told.desired_replicas)} asked for{reason}{bounds}{wide}"


def _load(told: Explanation) -> str:
    if not told.load:
        return "-"
    words = {
        "arrivedRps": "{:.1f} requests/s",
        "refusedRps": "{:.1f} refused/s",
        "inFlight": "{:.1f} in flight",
        "queued": "{:.1f} queued",
        "serviceTimeS": "{:g} s each",
    }
    said = ", ".join(text.format(told.load[name]) for name, text in words.items() if name in told.load)
    return f"{said} ({duration(told.told_s_ago)} ago)" if told.told_s_ago is not None else said


def _demand(told: Explanation) -> str:
    peak = told.load.get("peak")
    recent = f"; {peak:.1f} at most of late" if peak is not None else ""
    return f"{_shown(told.demand)}: {told.origin}{recent}"


def _target(told: Explanation) -> str:
    """A replica's target, its limit, and, once it is learnt, its knee."""
    limit, knee = told.revision.get("limit"), told.revision.get("knee")
    learnt = f", knee {knee:g}" if knee else ""
    why = f": {told.revision['why']}" if told.revision.get("why") else ""
    return f"{_shown(told.target_concurrency)} requests a replica, limit {_shown(limit)}{learnt}{why}"


def _aligned(rows: list[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name.ljust(width)}  {text}" for name, text in rows]


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def show(session: Session, name: str, *, as_json: bool) -> None:
    told = explanation(session.endpoint(name), datetime.now(UTC).timestamp())
    session.console.result(json.dumps(asdict(told), indent=2) if as_json else render(told))


def show_records(session: Session, name: str, last: int | None) -> None:
    """The lines of every controllers' pod, by their time."""
    endpoint = session.endpoint(name)
    facts = session.facts()
    labels = f"{names.LABEL_COMPONENT}={names.COMPONENT_CONTROLLERS}"
    pods = session.with_kube(facts, lambda kube: kube.list(PODS, names.SYSTEM_NAMESPACE, labels))
    asked = ["python", "-m", "controllers.autoscaler.journal", *key_of(endpoint)]
    asked += ["--last", str(last)] if last is not None else []
    found = [line for pod in pods for line in _inside(session, facts.kubeconfig, key_of(pod)[1], asked)]
    for line in in_order(found)[-(last or 0) :]:
        session.console.result(line)


def in_order(lines: Iterable[str]) -> list[str]:
    return sorted(lines, key=lambda line: float(json.loads(line)["at_s"]))


def _inside(session: Session, kubeconfig: str, pod: str, asked: list[str]) -> list[str]:
    """What a command says in a pod of the controllers."""
    context = context_cluster.context_of(session.workspace)
    argv = [str(views.kubectl(session)), "--kubeconfig", kubeconfig, *(["--context", context] if context else [])]
    argv += ["-n", names.SYSTEM_NAMESPACE, "exec", pod, "--", *asked]
    environment = {**os.environ, **host_settings.no_proxy(os.environ)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CliError(f"pod {pod} does not tell its records: {done.stderr.strip()}", code=ExitCode.FAILED)
    return done.stdout.splitlines()
