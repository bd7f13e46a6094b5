"""The joint between an endpoint's objects and the learner of a replica's limit. Pure.

Owns whose knowledge is whose: which revision learns, what its key is, where a new one begins. Leaves learning to
`vertical`, applying a limit to the gateway. Its one idea: the status tells what was learnt, so whoever takes over or
has lost its memory goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controllers.autoscaler.load import LoadSample
from controllers.autoscaler.observation import Revision, Role
from controllers.autoscaler.vertical.baseline import Baseline
from controllers.autoscaler.vertical.evidence import Evidence, Tallies, evidence_of
from controllers.autoscaler.vertical.knowledge import Key, Knowledge, settled
from controllers.autoscaler.vertical.learner import Advice, learn
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import Signals
from controllers.autoscaler.vertical.thresholds import mean_of
from controllers.autoscaler.view import Endpoint, Limit
from controllers.kube.fields import items, key_of, mapping
from controllers.kube.resources import Object
from controllers.workloads import pods_each, template_of

_MOVING = ("Starting", "Ready", "Draining")


@dataclass(frozen=True)
class Lesson:
    """One epoch: all that it rests on, and what came of it; learning once more from the first gives the second."""

    revision: str
    before: Knowledge
    evidence: Evidence
    settings: Settings
    wall_s: float
    after: Knowledge
    advice: Advice

    @property
    def is_change(self) -> bool:
        """Whether the limit moved, or one pod is asked for another."""
        return (self.before.limit, self.before.probe) != (self.after.limit, self.after.probe)


@dataclass(frozen=True)
class Learnt:
    """`knowledge` by key, `advice` by revision, last given; `due_at_s` on the decisions' clock; the last `lesson`."""

    knowledge: Mapping[str, Knowledge] = field(default_factory=dict)
    advice: Mapping[str, Advice] = field(default_factory=dict)
    due_at_s: float = 0.0
    lesson: Lesson | None = None

    def age_s(self, now_s: float, settings: Settings) -> float:
        """Since the last epoch was looked at; 0 before the first. A timer that was not set again shows in it."""
        return max(now_s - self.due_at_s + settings.epoch_s, 0.0) if self.due_at_s else 0.0


@dataclass(frozen=True)
class Epoch:
    """What is seen of the revision with the traffic over one epoch: times of two clocks, tallies and signals by pod."""

    now_s: float
    wall_s: float
    samples: Sequence[LoadSample]
    tallies: Tallies
    signals: Callable[[str, str], Signals]


def key(endpoint: Endpoint, workload: Object) -> Key:
    """By the pod template: the model's digest, what it runs on and over how many nodes, what it may use, the image that
    runs it."""
    pod, nodes = mapping(template_of(workload), "spec"), pods_each(workload)
    server = _server(pod)
    limits = mapping(server, "resources", "limits")
    devices = {name: amount for name, amount in limits.items() if "/" in name}
    return Key(
        endpoint=f"{endpoint.namespace}/{endpoint.name}",
        model_digest=_argument(items(pod, "initContainers"), "--sha256"),
        accelerator=(f"{nodes} x " if nodes > 1 else "") + (_text(devices | mapping(pod, "nodeSelector")) or "cpu"),
        resources=_text({name: amount for name, amount in limits.items() if name not in devices}),
        runtime=str(server.get("image", "")),
    )


def _server(pod: Object) -> Object:
    """The container that does the work: one of the name that its signals have too, also beside an interface, where it
    is an init container that goes on running; else the first."""
    containers = items(pod, "containers")
    named = (each for each in (*containers, *items(pod, "initContainers")) if each.get("name") == "server")
    return next(named, next(iter(containers), {}))


def _argument(containers: Sequence[Object], flag: str) -> str:
    words = [str(word) for each in containers for word in each.get("args") or ()]
    return words[words.index(flag) + 1] if flag in words[:-1] else ""


def _text(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(values.items()))


def known(learnt: Learnt, endpoint: Endpoint, workloads: Sequence[Object]) -> dict[str, Knowledge]:
    """What is known of each revision: learnt, else told by the status, else the limit of the revision with the traffic
    if that runs on the same hardware, else the runtime's first limit. Of another one nothing but its limit is taken:
    it is a beginning, by which a successor is sized."""
    keys = {key_of(workload)[1]: key(endpoint, workload) for workload in workloads}
    found = {name: _own(learnt, endpoint, name, each) for name, each in keys.items()}
    return {name: known_now or Knowledge(_beginning(name, keys, found, endpoint)) for name, known_now in found.items()}


def _own(learnt: Learnt, endpoint: Endpoint, name: str, each: Key) -> Knowledge | None:
    kept, told = learnt.knowledge.get(str(each)), endpoint.told.get(name)
    if kept is not None or told is None or told.limit < 1:
        return kept
    base = Baseline(told.baseline_s, 1, told.baseline_s, 0.0) if told.baseline_s else None
    return Knowledge(told.limit, knee=told.knee, baseline=base)


def _beginning(name: str, keys: Mapping[str, Key], found: Mapping[str, Knowledge | None], endpoint: Endpoint) -> int:
    for other in (endpoint.routed, endpoint.traffic):
        held = found.get(other or "")
        if other is not None and held is not None and keys[other].hardware == keys[name].hardware:
            return held.limit
    return endpoint.initial_limit


def limits(learnt: Learnt, endpoint: Endpoint, workloads: Sequence[Object]) -> dict[str, Limit]:
    """Of every revision, what one of its replicas may take."""
    return {name: Limit(each.limit, each.knee is not None) for name, each in known(learnt, endpoint, workloads).items()}


def followed(learnt: Learnt, endpoint: Endpoint, workloads: Sequence[Object]) -> Learnt:
    """For a process that doesn't lead: what the leader tells is what is known."""
    told = known(replace(learnt, knowledge={}), endpoint, workloads)
    fresh = {
        str(key(endpoint, workload)): told[name]
        for workload in workloads
        if (name := key_of(workload)[1]) in endpoint.told
    }
    changed = {
        name: each
        for name, each in fresh.items()
        if (held := learnt.knowledge.get(name)) is None or (held.limit, held.knee) != (each.limit, each.knee)
    }
    return Learnt({**learnt.knowledge, **changed}) if changed or learnt.advice else learnt


def learnt_from(
    learnt: Learnt,
    endpoint: Endpoint,
    workloads: Sequence[Object],
    revisions: Sequence[Revision],
    epoch: Epoch,
    settings: Settings,
) -> Learnt:
    """One epoch more of the revision with the traffic. What was learnt of one that is gone is kept: it may return."""
    due_at_s = epoch.now_s + settings.epoch_s
    main = next((revision for revision in revisions if revision.role is Role.TRAFFIC), None)
    workload = next((each for each in workloads if main is not None and key_of(each)[1] == main.name), None)
    if main is None or workload is None:
        return replace(learnt, advice={}, due_at_s=due_at_s, lesson=None)
    now = known(learnt, endpoint, workloads)[main.name]
    evidence = evidence_of(
        epoch.samples,
        now.limit,
        main.ready,
        settings,
        epoch.now_s,
        tallies=epoch.tallies,
        signals=mean_of(epoch.signals(endpoint.namespace, pod) for pod in epoch.tallies),
        unsettled=_unsettled(endpoint, main),
        concurrency_max=endpoint.concurrency_max,
        objective_ms=endpoint.objective_ms,
    )
    knowledge, advice = learn(now, evidence, settings, epoch.wall_s)
    kept = {**learnt.knowledge, str(key(endpoint, workload)): knowledge}
    lesson = Lesson(main.name, now, evidence, settings, epoch.wall_s, knowledge, advice)
    return Learnt(kept, {main.name: advice}, due_at_s, lesson)


def _unsettled(endpoint: Endpoint, main: Revision) -> str | None:
    moving = [name for name, phase in endpoint.phases.items() if name != main.name and phase in _MOVING]
    if moving:
        return "a rollout"
    return "pods start" if main.issued > main.ready else None


def to_keep(learnt: Learnt) -> dict[str, Knowledge]:
    return {name: settled(each) for name, each in learnt.knowledge.items()}
