"""The autoscaler's shell: sample every second, decide every five, write what changed. Holds no policy.

Owns when an endpoint is due (its cycle, the end of its `rest`, or at once when its revisions, their phases or a
person's hold change), what `cycle` hands back, and the writes. A process without the lease does all but the writes, so
that it knows the past when it takes over. One endpoint's failure is its own.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from controllers.autoscaler.act import Scaler
from controllers.autoscaler.checkpoint import Checkpoint, Name
from controllers.autoscaler.checkpoints import Checkpoints
from controllers.autoscaler.core import Verdict
from controllers.autoscaler.cycle import Inputs, Remembered, cycle
from controllers.autoscaler.demand import presses
from controllers.autoscaler.fleet import has_load
from controllers.autoscaler.gap import BRIDGE_MAX_S, bridged, mean_rps
from controllers.autoscaler.holds import holds
from controllers.autoscaler.inputs import Seen, inputs_of, prior_of
from controllers.autoscaler.journal import Journal
from controllers.autoscaler.learning import Epoch, Learnt, followed, learnt_from, limits, to_keep
from controllers.autoscaler.memory import Memory, share_of
from controllers.autoscaler.observation import Role
from controllers.autoscaler.observe import Sampler, gateways_of
from controllers.autoscaler.recorder import Recorder
from controllers.autoscaler.rest import LOOK_S, is_filled, rest_s, rested
from controllers.autoscaler.roster import Roster
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.status import Report
from controllers.autoscaler.telling import Teller
from controllers.autoscaler.vertical.settings import Settings as Learner
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.autoscaler.view import Endpoint
from controllers.kube import MODEL_ENDPOINTS, PODS, Gvr, KubeError, Object
from controllers.kube.fields import key_of
from controllers.kube.store import Store
from controllers.lease import FencedWriter, Lease, NotLeader
from controllers.metrics import Metrics
from controllers.workloads import KINDS

log = logging.getLogger(__name__)

_RETRY_MAX_S = 60.0
_AT_ONCE = 16
_TAKEOVER_S = 2.0
_LEARNER = Learner()


class Autoscaler:
    """`run` is the loop; `sample` and `due` are one second of it; `cycle` is one endpoint, once."""

    def __init__(
        self,
        stores: dict[Gvr, Store],
        gateways: Store,
        writer: FencedWriter,
        lease: Lease,
        scaler: Scaler,
        metrics: Metrics,
        settings: Settings,
        sampler: Sampler,
        checkpoints: Checkpoints,
        journal: Journal | None = None,
        quotas: Store | None = None,
        signals: Callable[[str, str], Signals] = lambda namespace, pod: UNKNOWN,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stores, self._gateways, self._lease = stores, gateways, lease
        self._scaler, self._metrics, self._settings, self._sampler = scaler, metrics, settings, sampler
        self._checkpoints, self._quotas, self._signals = checkpoints, quotas, signals
        self._monotonic, self._wall = monotonic, wall
        self._recorder = Recorder(journal, monotonic, wall)
        self._teller = Teller(stores[MODEL_ENDPOINTS], writer, scaler, metrics, settings, wall)
        checkpoints.now = self.checkpoints
        self._roster = Roster()
        self._current: list[tuple[Endpoint, Object]] = []
        self._memories: dict[tuple[str, str, str], Memory] = {}
        self._writers = asyncio.Semaphore(_AT_ONCE)
        self._led = False
        self.has_begun = False
        self.beat_at_s = monotonic()

    async def run(self) -> None:
        """Sampling never waits for a decision's writes, and no endpoint's for another's."""
        async with asyncio.TaskGroup() as group:
            while True:
                started_s = self._monotonic()
                await self.sample()
                for endpoint, obj in self.due():
                    group.create_task(self.attend(endpoint, obj))
                next_s = started_s + self._settings.sample_s
                await asyncio.sleep(max(next_s - self._monotonic(), 0.0))

    async def sample(self) -> None:
        self.beat_at_s = self._monotonic()
        self.has_begun = True
        self._current = endpoints = self._roster.endpoints(self._stores[MODEL_ENDPOINTS].objects)
        await self._sampler.sample(gateways_of(self._gateways.objects.values()), [e for e, _ in endpoints])
        if len(self._memories) > len(endpoints):
            self._forget({endpoint.key for endpoint, _ in endpoints})
        self._count(endpoint for endpoint, _ in endpoints)

    def due(self) -> list[tuple[Endpoint, Object]]:
        """Of the endpoints just sampled those to decide on now; one whose last cycle still writes is not among them."""
        leads = self._lease.held()
        if leads and not self._led:  # whoever takes over does not wait for the next cycle of each
            for key, memory in self._memories.items():
                memory.due_at_s = min(memory.due_at_s, self._monotonic() + _TAKEOVER_S * share_of(key))
                memory.rest_s = 0.0
        self._led = leads
        return [(endpoint, obj) for endpoint, obj in self._current if self._is_due(endpoint)]

    def _count(self, endpoints: Iterable[Endpoint]) -> None:
        latest = (self._sampler.latest(endpoint) for endpoint in endpoints)
        for outcome, count in Counter(sample.outcome if sample else "unknown" for sample in latest).items():
            self._metrics.samples.labels(outcome).inc(count)

    def _is_due(self, endpoint: Endpoint) -> bool:
        """Every cycle, each endpoint at its own second of it; at once when something of it has changed, and every
        second in which it is overloaded."""
        now_s, cycle_s, memory = self._monotonic(), self._settings.cycle_s, self._memory(endpoint)
        changed = memory.fingerprint != endpoint.fingerprint
        at_once = memory.failures == 0 and (changed or presses(self._sampler.latest(endpoint)))
        if memory.running or not (at_once or (now_s >= memory.due_at_s and not self._rests(endpoint, memory, now_s))):
            return False
        memory.running = True
        first = memory.fingerprint is None
        memory.fingerprint = endpoint.fingerprint
        # the slack of half a sample keeps the cycle's length where the loop wakes a little late
        spread_s = share_of(endpoint.key) * cycle_s if first else cycle_s
        memory.due_at_s = now_s + max(spread_s, self._settings.sample_s) - self._settings.sample_s / 2
        return True

    def _rests(self, endpoint: Endpoint, memory: Memory, now_s: float) -> bool:
        """Whether it still may: no load has come, and neither its pods nor what runs them have changed."""
        sample = self._sampler.latest(endpoint)
        has_come = sample is not None and sample.load is not None and has_load(sample.load)
        if not memory.rest_s or has_come or memory.stamp != self._stamp(endpoint):
            return False
        return now_s < memory.due_at_s + memory.rest_s or self._rests_on(endpoint, memory, now_s)

    def _rests_on(self, endpoint: Endpoint, memory: Memory, now_s: float) -> bool:
        """Remembers what is known of the rest; without load nothing is learnt. Now and then it is looked at."""
        remembered = rested(memory.remembered, self._sampler.samples(endpoint), self._settings, now_s)
        if now_s >= memory.look_at_s or memory.before is not None or not is_filled(remembered, now_s):
            return False
        memory.remembered, memory.learnt = remembered, replace(memory.learnt, due_at_s=now_s)
        memory.due_at_s = now_s
        return True

    def _let_rest(self, memory: Memory, endpoint: Endpoint, verdict: Verdict, now_s: float) -> None:
        most_s = rest_s(endpoint, verdict, memory.remembered.circuits) if now_s >= memory.foreign_until_s else 0.0
        part = (1 + share_of(endpoint.key)) / 2  # so that all don't wake together
        memory.rest_s = max(part * most_s - self._settings.cycle_s, 0.0)
        memory.look_at_s = now_s + part * LOOK_S

    def _stamp(self, endpoint: Endpoint) -> tuple[int, ...]:
        return tuple(self._stores[kind].stamp(endpoint.namespace, endpoint.name) for kind in (*KINDS, PODS))

    def _memory(self, endpoint: Endpoint) -> Memory:
        """An endpoint that is seen for the first time begins where its checkpoint ends."""
        memory = self._memories.get(endpoint.key)
        if memory is None:
            before = self._checkpoints.find((endpoint.namespace, endpoint.name), endpoint.uid)
            memory = self._memories[endpoint.key] = Memory(before=before, due_at_s=self._monotonic())
            if before is not None:
                memory.remembered, memory.learnt = before.remembered, Learnt(before.knowledge)
        return memory

    def checkpoints(self) -> dict[Name, Checkpoint]:
        """What is to be kept of every endpoint."""
        wall_s = self._wall()
        memories = [(endpoint, self._memories.get(endpoint.key)) for endpoint, _ in self._current]
        return {
            (e.namespace, e.name): Checkpoint(
                e.uid, wall_s, memory.remembered, self._sampler.arrivals(e), to_keep(memory.learnt)
            )
            for e, memory in memories
            if memory is not None
        }

    async def attend(self, endpoint: Endpoint, obj: Object) -> None:
        memory = self._memory(endpoint)
        try:
            async with self._writers:
                await self.cycle(endpoint, obj)
            memory.failures = 0
        except NotLeader:
            return
        except Exception as error:
            memory.failures += 1
            pause_s = min(2.0 ** (memory.failures - 1), _RETRY_MAX_S)
            memory.due_at_s, memory.rest_s = self._monotonic() + pause_s, 0.0
            self._metrics.failures.labels("autoscaler").inc()
            fields = {"namespace": endpoint.namespace, "endpoint": endpoint.name, "error": str(error)}
            log.warning("autoscaling failed", extra=fields, exc_info=not isinstance(error, KubeError))
        finally:
            memory.running = False

    async def cycle(self, endpoint: Endpoint, obj: Object) -> None:
        """Observes, decides, remembers; with the lease also scales, reports and records."""
        memory, now_s = self._memory(endpoint), self._monotonic()
        memory.stamp = self._stamp(endpoint)
        seen = self._seen(endpoint, memory)
        inputs, memory.past = inputs_of(seen, self._settings, now_s, self._wall())
        remembered = rested(self._bridged(memory, endpoint, now_s), seen.samples, self._settings, now_s)
        memory.remembered, turn = cycle(remembered, inputs)
        self._let_rest(memory, endpoint, turn.verdict, now_s)
        ready = {revision.name: revision.ready for revision in inputs.observation.revisions}
        self._teller.measure(endpoint, turn.verdict, ready)
        if not self._lease.held():
            memory.learnt = followed(memory.learnt, endpoint, seen.workloads)
            return
        self._learn(memory, seen, inputs, now_s)
        changes, unwritten = await self._scaler.scale(endpoint, seen.workloads, turn.verdict)
        self._recorder.decided(endpoint, bool(changes), remembered, inputs, turn)
        memory.remember_asked(endpoint, turn.verdict, unwritten)
        memory.note_foreign(changes, now_s)
        report = Report(
            verdict=turn.verdict,
            ready=ready,
            changes=tuple(changes),
            unwritten=frozenset(unwritten),
            foreign=memory.foreign if now_s < memory.foreign_until_s else None,
            holds=holds(turn, memory.remembered.circuits, inputs.control, endpoint.control_problem, self._settings),
            observation=inputs.observation,
            learnt=memory.learnt.advice,
        )
        await self._teller.report(endpoint, obj, report)
        await self._teller.announce(endpoint, obj, changes, turn.verdict)

    def _seen(self, endpoint: Endpoint, memory: Memory) -> Seen:
        quotas = self._quotas.objects.items() if self._quotas is not None else ()
        workloads = [w for kind in KINDS for w in self._stores[kind].labelled(endpoint.namespace, endpoint.name)]
        pods = self._stores[PODS].labelled(endpoint.namespace, endpoint.name)
        return Seen(
            endpoint=replace(endpoint, asked=memory.asked | dict(endpoint.asked)),
            workloads=workloads,
            pods=pods,
            quotas=[quota for (namespace, _), quota in quotas if namespace == endpoint.namespace],
            samples=self._sampler.samples(endpoint),
            past=memory.past,
            limits=limits(memory.learnt, endpoint, workloads),
            prior=prior_of(memory.remembered, (self._signals(*key_of(pod)) for pod in pods)),
        )

    def _learn(self, memory: Memory, seen: Seen, inputs: Inputs, now_s: float) -> None:
        """Every epoch, how much a replica of the revision with the traffic takes. The next cycle goes by it."""
        main = next((r.name for r in inputs.observation.revisions if r.role is Role.TRAFFIC), "")
        age_s = memory.learnt.age_s(now_s, _LEARNER)
        self._metrics.learner_age.labels(seen.endpoint.namespace, seen.endpoint.name).set(age_s)
        if age_s > _LEARNER.overdue_s:
            fields = {"namespace": seen.endpoint.namespace, "endpoint": seen.endpoint.name, "age_s": round(age_s)}
            log.warning("the limit of a replica was not looked at for long", extra=fields)
        if now_s >= memory.learnt.due_at_s:
            tallies = self._sampler.tallies(seen.endpoint, main)
            epoch = Epoch(now_s, self._wall(), seen.samples, tallies, self._signals)
            revisions = inputs.observation.revisions
            memory.learnt = learnt_from(memory.learnt, seen.endpoint, seen.workloads, revisions, epoch, _LEARNER)
            self._recorder.taught(seen.endpoint, memory.learnt.lesson)

    def _bridged(self, memory: Memory, endpoint: Endpoint, now_s: float) -> Remembered:
        """What is remembered, over the gap since the process before this one where the gateways' counters tell it."""
        before = memory.before
        if before is None:
            return memory.remembered
        elapsed_s = self._wall() - before.written_s
        rps = mean_rps(before.arrivals, self._sampler.arrivals(endpoint), elapsed_s)
        if rps is not None or elapsed_s > BRIDGE_MAX_S:
            memory.before = None
        return bridged(memory.remembered, rps, self._settings, now_s)

    def _forget(self, keys: set[tuple[str, str, str]]) -> None:
        self._recorder.forget(keys)
        living = {(namespace, name) for namespace, name, _ in keys}
        for key in [key for key in self._memories if key not in keys]:
            del self._memories[key]
            if key[:2] not in living:
                self._metrics.forget(key[0], key[1])
