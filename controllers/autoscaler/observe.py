"""Samples of every endpoint's load, one a second, from the statistics of every gateway pod.

Owns readings, their differences, and each endpoint's short memory of samples. Leaves demand to `core`, doubt of zeros
that come all at once to `fleet`. Its one idea: all gateways are asked at once, and one that was silent is asked without
being waited for, so it delays nobody and is unknown, not zero.
"""

import asyncio
import logging
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controllers.autoscaler.fleet import Fleet, watch
from controllers.autoscaler.haproxy import PORT, Reader
from controllers.autoscaler.load import NEW, ZERO, Counters, Load, LoadSample, difference, total
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.statistics import StatisticsError
from controllers.autoscaler.vertical.evidence import Tallies, Tally, next_epoch, tally
from controllers.autoscaler.view import Endpoint
from controllers.kube import Object
from controllers.kube.fields import at

log = logging.getLogger(__name__)

_DEADLINE_S = 0.8
# Readings further apart than this are two beginnings, not one interval.
_INTERVAL_MAX_S = 5.0

Key = tuple[str, str, str]
Read = Callable[[str, int, float], Awaitable[dict[str, Counters]]]


@dataclass(frozen=True)
class Gateway:
    """A gateway pod. One that is on its way out may still hold requests, but nobody waits for its word."""

    uid: str
    host: str
    leaving: bool


Answer = tuple[Gateway, Mapping[str, Load] | None]  # loads by back end; None: silent


@dataclass(frozen=True)
class Reading:
    """What one gateway said, and when (monotonic)."""

    at_s: float
    counters: Mapping[str, Counters]


def gateways_of(pods: Iterable[Object]) -> list[Gateway]:
    """The pods that run, by phase: one that is starting holds no requests yet."""
    return [
        Gateway(pod["metadata"]["uid"], ip, at(pod, "metadata", "deletionTimestamp") is not None)
        for pod in pods
        if at(pod, "status", "phase") == "Running" and (ip := at(pod, "status", "podIP"))
    ]


class Sampler:
    """`sample` once a second; `samples` whenever a decision is due."""

    def __init__(
        self, settings: Settings, read: Read | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._read, self._monotonic = settings, read or Reader().read, monotonic
        self._last: dict[str, Reading] = {}
        self._asked: dict[str, asyncio.Future[Reading | None]] = {}
        self._silent: set[str] = set()
        self._fleet = Fleet()
        longest_s = max(settings.up_window_s, settings.service_window_s)
        size = int(longest_s / settings.sample_s) + 2
        self._samples: dict[Key, deque[LoadSample]] = defaultdict(lambda: deque(maxlen=size))
        self._tallies: dict[str, dict[str, Tallies]] = defaultdict(dict)  # by gateway and back end

    async def sample(self, gateways: list[Gateway], endpoints: list[Endpoint]) -> None:
        """Asks all gateways, then adds one sample to each endpoint; forgets the endpoints that are gone."""
        answers = await self._answers(gateways)
        loads = [(gateway, self._loads(gateway, answers.get(gateway.uid))) for gateway in gateways]
        now_s = self._monotonic()
        samples = samples_of(endpoints, loads, now_s)
        for key, sample in self._believed(samples, now_s).items():
            self._samples[key].append(sample)
        if len(self._samples) > len(samples):
            self._forget_endpoints(samples)
        self._forget_gateways({gateway.uid for gateway in gateways})

    def _believed(self, samples: Mapping[Key, LoadSample], now_s: float) -> dict[Key, LoadSample]:
        doubted, loads = self._fleet.doubted, {key: sample.load for key, sample in samples.items()}
        self._fleet, unknown = watch(self._fleet, loads, now_s)
        if self._fleet.doubted and not doubted:
            log.warning(
                "most busy endpoints read zero at once: unknown for a minute", extra={"endpoints": len(unknown)}
            )
        return {**samples, **{key: LoadSample(now_s, None, complete=False) for key in unknown}}

    async def _answers(self, gateways: list[Gateway]) -> dict[str, Reading | None]:
        """Waits, where any other is there, for none that was silent or is leaving: its word counts when it comes."""
        for gateway in gateways:
            if gateway.uid not in self._asked:
                self._asked[gateway.uid] = asyncio.ensure_future(self._ask(gateway))
        awaited = {gateway.uid for gateway in gateways if not gateway.leaving} - self._silent
        if tasks := [self._asked[uid] for uid in awaited or self._asked]:
            await asyncio.wait(tasks)
        answers = {uid: task.result() for uid, task in self._asked.items() if task.done()}
        self._asked = {uid: task for uid, task in self._asked.items() if uid not in answers}
        self._silent = {gateway.uid for gateway in gateways if answers.get(gateway.uid) is None}
        return answers

    async def _ask(self, gateway: Gateway) -> Reading | None:
        try:
            counters = await self._read(gateway.host, PORT, _DEADLINE_S)
        except (OSError, TimeoutError, StatisticsError) as error:
            log.debug("gateway silent", extra={"host": gateway.host, "error": str(error)})
            return None
        return Reading(self._monotonic(), counters)

    def _loads(self, gateway: Gateway, reading: Reading | None) -> Mapping[str, Load] | None:
        if reading is None:
            return None
        last = self._last.get(gateway.uid)
        self._last[gateway.uid] = reading
        elapsed_s = reading.at_s - last.at_s if last else 0.0
        if last is None or elapsed_s > _INTERVAL_MAX_S:
            return {name: difference(None, counters, 0.0) for name, counters in reading.counters.items()}
        self._tally(gateway.uid, last, reading, elapsed_s)
        return {
            name: _load(last.counters.get(name, NEW), counters, elapsed_s)
            for name, counters in reading.counters.items()
        }

    def _tally(self, uid: str, last: Reading, now: Reading, elapsed_s: float) -> None:
        """Pod by pod; where nothing moved and nothing is in flight, nothing is added."""
        held = self._tallies[uid]
        for name, counters in now.counters.items():
            before = last.counters.get(name)
            if before is counters and name in held and counters.rests:
                continue
            if name not in held or before is None or before.servers != counters.servers or counters.in_flight:
                held[name] = tally(held.get(name, {}), before, counters, elapsed_s, now.at_s)
        for name in [name for name in held if name not in now.counters]:
            del held[name]

    def _forget_endpoints(self, living: Container[Key]) -> None:
        for key in [key for key in self._samples if key not in living]:
            del self._samples[key]

    def _forget_gateways(self, gateways: set[str]) -> None:
        for uid in [uid for uid in self._last if uid not in gateways]:
            del self._last[uid]
            self._tallies.pop(uid, None)
        for uid in [uid for uid in self._asked if uid not in gateways]:
            self._asked.pop(uid).cancel()

    def latest(self, endpoint: Endpoint) -> LoadSample | None:
        samples = self._samples.get(endpoint.key)
        return samples[-1] if samples else None

    def samples(self, endpoint: Endpoint) -> tuple[LoadSample, ...]:
        """What is remembered of the endpoint, oldest first."""
        return tuple(self._samples.get(endpoint.key, ()))

    def tallies(self, endpoint: Endpoint, revision: str) -> Tallies:
        """Of the revision's pods, since this was asked last."""
        found: dict[str, Tally] = {}
        backend = (endpoint.backends or {}).get(revision, "")
        for held in self._tallies.values():
            if backend in held:
                found |= held[backend]
                held[backend] = next_epoch(held[backend])
        return found

    def arrivals(self, endpoint: Endpoint) -> dict[str, dict[str, int]]:
        """Requests that ever arrived, by gateway (uid) and revision, as last read; what is not known is not there."""
        backends = (endpoint.backends or {}).items()
        return {
            uid: {name: reading.counters[at].arrived for name, at in backends if at in reading.counters}
            for uid, reading in self._last.items()
        }


def _load(before: Counters, now: Counters, elapsed_s: float) -> Load:
    """Most back ends of many rest: what holds nothing and has not moved is nothing, and costs no arithmetic."""
    if (before is now or before == now) and now.rests:
        return ZERO
    return difference(before, now, elapsed_s)


def samples_of(endpoints: Iterable[Endpoint], loads: Sequence[Answer], now_s: float) -> dict[Key, LoadSample]:
    """Those that rest share one sample: of ten thousand endpoints it is nearly all."""
    answers = [answer for _, answer in loads if answer is not None]
    whole = len(answers) == len(loads) and any(not gateway.leaving for gateway, _ in loads)
    rest = LoadSample(now_s, ZERO)
    return {
        endpoint.key: rest if whole and _rests(endpoint, answers) else sample_of(endpoint, loads, now_s)
        for endpoint in endpoints
    }


def _rests(endpoint: Endpoint, answers: Iterable[Mapping[str, Load]]) -> bool:
    """Whether every gateway has all its back ends, and nothing in them."""
    backends = endpoint.backends
    return backends is not None and all(answer.get(name) is ZERO for answer in answers for name in backends.values())


def sample_of(endpoint: Endpoint, loads: Iterable[Answer], now_s: float) -> LoadSample:
    """One endpoint over all gateways: unknown where none answered, "at least" where one that serves did not.

    A gateway that answers and gave the endpoint no back end has no request of its; a back end that should be
    there and is not is no zero.
    """
    if endpoint.backends is None:
        return LoadSample(now_s, None, complete=False)
    found: list[Load] = []
    complete, asked = True, False
    for gateway, answer in loads:
        asked = asked or not gateway.leaving
        named = [answer.get(backend) for backend in endpoint.backends.values()] if answer is not None else [None]
        known = [load for load in named if load is not None]
        found += known
        complete = complete and (gateway.leaving or (answer is not None and len(known) == len(named)))
        if answer is not None and not named:
            found.append(ZERO)
    load = (total(found) if len(found) > 1 else found[0]) if found else None
    if load is not None and load is not ZERO and not load.sane:
        load = None
    return LoadSample(now_s, load, complete=complete and asked and load is not None)
