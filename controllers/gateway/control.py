"""The loop: watches say what should be, HAProxy says what is, one pass brings them together.

Owns the order of a pass and when the next one is due. Its one idea: every pass starts from what both sides say now,
so a restart of HAProxy, of this process or of the API server is just another pass.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass, field
from typing import Final

from controllers.gateway import desired as wanted_state
from controllers.gateway import files, render, snapshot, status
from controllers.gateway.assignment import Assignment, Revision, assign, restore, spares, wanted
from controllers.gateway.converge import converge
from controllers.gateway.desired import ROUTES, Desired, Live, live_routes, routed_backends
from controllers.gateway.diff import diff, draining
from controllers.gateway.metrics import Metrics
from controllers.gateway.observation import Observation
from controllers.gateway.observed import Declared, Identity, Object
from controllers.gateway.publish import News
from controllers.gateway.readback import read_all, read_pid, read_servers
from controllers.gateway.runtime_api import RefusedError, RuntimeApiError, reload
from controllers.gateway.settings import Settings
from controllers.gateway.snapshot import Snapshot

log = logging.getLogger(__name__)

COMPARE_S: Final = 10.0  # the whole state is read and compared at least this often
NOTICE_S: Final = 1.0  # a restart of HAProxy is noticed within this
DRAIN_POLL_S: Final = 0.1
AWAY_S: Final = 0.3
_RELOAD_PAUSE_S: Final = 30.0


@dataclass(frozen=True)
class Outcome:
    """When to come again at the latest, and what there is to publish (None: nothing new)."""

    wait_s: float
    news: dict[Identity, News] | None = None


@dataclass
class Memory:
    """What one pass leaves to the next."""

    assignment: Assignment = field(default_factory=Assignment)
    good: dict[Identity, Declared] = field(default_factory=dict)
    objects: dict[Identity, Object] = field(default_factory=dict)  # of `good`, for the next start
    live: Live | None = None
    restored: bool = False
    still: int = 0  # passes in a row that moved nothing: a long answer drains, or HAProxy refuses
    unsettled: bool = True  # something is still to be done at HAProxy
    written: tuple[Desired, Assignment] | None = None
    compared_at_s: float = float("-inf")
    noticed_at_s: float = float("-inf")
    reloaded_at_s: float = float("-inf")


class Control:
    """One HAProxy's control plane. `step` is one pass and says when the next one is due."""

    def __init__(self, settings: Settings, observation: Observation, metrics: Metrics) -> None:
        self._settings = settings
        self._observation = observation
        self._metrics = metrics
        self._spares = spares(settings.queue_classes)
        self._fingerprint = render.fingerprint(settings)
        assignment, objects, good = files.remembered(settings.state)
        self.memory = Memory(assignment=assignment, good=good, objects=objects)

    async def step(self, now_s: float, *, changed: bool) -> Outcome:
        """One pass; a short one where neither side has anything new."""
        try:
            new = await self._observe(now_s)
            if not (new or changed or self.memory.unsettled):
                return Outcome(NOTICE_S)
            with self._metrics.seconds.time():
                return await self._pass(now_s)
        except (RuntimeApiError, RefusedError) as error:
            self.memory.live = None
            self._metrics.failures.labels(type(error).__name__).inc()
            log.warning("HAProxy can't be steered now", extra={"error": str(error)})
            return Outcome(AWAY_S)

    async def _pass(self, now_s: float) -> Outcome:
        memory = self.memory
        assert memory.live is not None
        shot, target, missing = self._decide(memory.live)
        if memory.live.fingerprint != self._fingerprint and now_s - memory.reloaded_at_s >= _RELOAD_PAUSE_S:
            await self._reload(target, now_s)
            return Outcome(AWAY_S)
        before = memory.live
        memory.live = await self._apply(target, memory.live)
        self._write(target)
        # A back end that has just become empty may be what a revision without one waits for.
        changed = memory.live.occupied != before.occupied
        memory.unsettled = bool(changed or diff(target, memory.live) or draining(target, memory.live))
        if not memory.unsettled:
            self._metrics.applied.set(time.time())
        memory.still = memory.still + 1 if memory.unsettled and memory.live == before else 0
        self._count(shot, missing, memory.live)
        return Outcome(_pause(memory), self._news(shot, memory.live))

    async def _observe(self, now_s: float) -> bool:
        """Whether the state was read whole: after a start of either side, and every ten seconds."""
        memory, socket = self.memory, self._settings.control_socket
        if memory.live is not None and now_s - memory.noticed_at_s >= NOTICE_S:
            memory.noticed_at_s = now_s
            if await read_pid(socket) != memory.live.pid:
                log.info("HAProxy was started anew", extra={"former_pid": memory.live.pid})
                memory.live = None
        if memory.live is not None and now_s - memory.compared_at_s < COMPARE_S:
            return False
        memory.live = await read_all(socket)
        memory.compared_at_s = memory.noticed_at_s = now_s
        self._metrics.resyncs.inc()
        return True

    def _decide(self, live: Live) -> tuple[Snapshot, Desired, frozenset[Revision]]:
        memory, seen = self.memory, self._observation
        if not memory.restored:
            first = snapshot.build(seen.endpoints, seen.pods, seen.keys, memory.good, {})
            routed = routed_backends(live.maps[ROUTES])
            memory.assignment = restore(first.endpoints, live.servers, routed, memory.assignment, self._spares)
            memory.restored = True
        routes = live_routes(live, memory.assignment)
        shot = snapshot.build(seen.endpoints, seen.pods, seen.keys, memory.good, routes)
        memory.assignment, missing = assign(wanted(shot.endpoints), memory.assignment, self._spares, live.occupied)
        memory.good = dict(shot.good)
        memory.objects = {
            identity: seen.objects[identity]
            if isinstance(seen.endpoints.get(identity), Declared)
            else memory.objects[identity]
            for identity in memory.good
        }
        return shot, wanted_state.desired(shot, memory.assignment, routes), missing

    async def _reload(self, target: Desired, now_s: float) -> None:
        """A new worker starts from the files, servers included; the old one finishes what it has."""
        self._write(target)
        self.memory.reloaded_at_s, self.memory.live = now_s, None
        log.info("a setting changed that HAProxy takes at start only: reloading")
        self._metrics.reloads.inc()
        await reload(self._settings.master_socket)

    async def _apply(self, target: Desired, live: Live) -> Live:
        leaving = draining(target, live)
        if leaving:
            fresh = await read_servers(self._settings.control_socket, leaving)
            live = dataclasses.replace(live, servers=dict(live.servers) | fresh)
        return await converge(self._settings.control_socket, target, live, self._metrics)

    def _write(self, target: Desired) -> None:
        """What a restart of HAProxy, and of ours, begins with."""
        memory = self.memory
        if memory.written == (target, memory.assignment):
            return
        files.write_all(self._settings.run, render.files(target, self._settings))
        files.write(self._settings.state, files.memory_text(memory.assignment, memory.objects))
        memory.written = (target, memory.assignment)

    def _news(self, shot: Snapshot, live: Live) -> dict[Identity, News]:
        problems = {problem.identity: problem for problem in shot.problems}
        routes = live_routes(live, self.memory.assignment)
        news = {}
        for each in shot.endpoints:
            identity = each.declared.identity
            said = status.report(
                each, self.memory.assignment, live, routes.get(each.name), problems.pop(identity, None)
            )
            news[identity] = News(said.generation, said.condition, said)
        for identity, problem in problems.items():
            generation = int(self._observation.objects[identity]["metadata"].get("generation") or 0)
            news[identity] = News(generation, status.refused(problem), None)
        return news

    def _count(self, shot: Snapshot, missing: frozenset[Revision], live: Live) -> None:
        metrics, assignment = self._metrics, self.memory.assignment
        metrics.endpoints.set(len(shot.endpoints))
        metrics.problems.set(len(shot.problems) + len({revision.endpoint for revision in missing}))
        metrics.key_problems.set(len(self._observation.key_problems))
        metrics.spares.set(len(self._spares.names) - len(assignment.backends))
        counted = {}
        for revision, backend in assignment.backends.items():
            ready = [s for s in live.servers.get(backend, {}).values() if s.mode is wanted_state.Mode.READY]
            counted[revision.endpoint, revision.name] = sum(s.maxconn or 0 for s in ready), len(ready)
        metrics.count(counted)


def _pause(memory: Memory) -> float:
    """0.1, 0.15, 0.23 ... 1 s while something drains; a pass that moved something starts again."""
    return min(NOTICE_S, DRAIN_POLL_S * 1.5 ** min(memory.still, 10)) if memory.unsettled else NOTICE_S
