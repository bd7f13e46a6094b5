"""Asks a Prometheus for the signals of all pods, every 15 seconds, and keeps the last answers.

Owns the asking: one thread at a time, one question a signal, a bound on the whole. Leaves the questions and their
meaning to `signals`. Its one idea: whatever goes wrong here makes signals unknown, and nothing else.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from controllers.autoscaler.signals import QUERIES, Answer, Pod, signals_of
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.metrics import Metrics

log = logging.getLogger(__name__)

PERIOD_S = 15.0
# An answer that came later than this after its question was asked is not waited for.
DEADLINE_S = 5.0
_QUERY_S = 2.0
# Two readings may fail before what was known is not known any more.
AGE_MAX_S = 3 * PERIOD_S

Ask = Callable[[str], Answer]
Answers = Mapping[str, Answer]


def ask_prometheus(url: str, timeout_s: float = _QUERY_S) -> Ask:
    """A question of PromQL -> its series. Raises whatever the client raises; nothing is tried twice."""
    session = requests.Session()
    session.trust_env = False  # no proxy stands between the parts of one cluster
    client = PrometheusConnect(url=url, retry=Retry(total=0), session=session, timeout=timeout_s)

    def ask(query: str) -> Answer:
        answer: Answer = client.custom_query(query)
        return answer

    return ask


def read(ask: Ask, deadline_s: float = DEADLINE_S, monotonic: Callable[[], float] = time.monotonic) -> Answers:
    """An answer a signal, None where there was none. Once the deadline has passed no more is asked."""
    end_s = monotonic() + deadline_s
    return {signal: _answer(ask, query) if monotonic() < end_s else None for signal, query in QUERIES.items()}


def _answer(ask: Ask, query: str) -> Answer:
    try:
        answer = ask(query)
    except Exception as error:  # whatever it says or is, it is no answer
        log.debug("no answer from prometheus", extra={"query": query, "error": str(error)[:200]})
        return None
    return answer if isinstance(answer, list) else None


@dataclass
class Reading:
    """The last signals, and when they were asked for (monotonic)."""

    at_s: float = float("-inf")
    pods: Mapping[Pod, Signals] = field(default_factory=dict)


class SignalReader:
    """`run` asks; `of` is what is known of a pod now."""

    def __init__(self, ask: Ask | None, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Without `ask` there is no Prometheus, and every signal is unknown."""
        self._ask, self._metrics, self._monotonic = ask, metrics, monotonic
        self._reading = Reading()
        self._answered = asyncio.Event()
        self._answered.set()
        self._answers_now: bool | None = None

    def of(self, namespace: str, pod: str) -> Signals:
        if self._monotonic() - self._reading.at_s > AGE_MAX_S:
            return UNKNOWN
        return self._reading.pods.get((namespace, pod), UNKNOWN)

    async def run(self) -> None:
        while True:
            started_s = self._monotonic()
            await self.read_once()
            await asyncio.sleep(max(started_s + PERIOD_S - self._monotonic(), 0.0))

    async def read_once(self) -> None:
        """Never raises for what Prometheus does, never takes longer than the deadline and one question."""
        if self._ask is None:
            return
        asked_s = self._monotonic()
        answers, pods = await self._in_thread(self._ask) or ({}, {})
        answered = any(answer is not None for answer in answers.values())
        if answered:
            self._reading = Reading(asked_s, pods)
        self._tell(answers, answered)

    async def _in_thread(self, ask: Ask) -> tuple[Answers, Mapping[Pod, Signals]] | None:
        """None where the answers are late. A thread that hangs is waited for before another is begun.

        It is no worker of the loop's pool, since those must end before the process can. Of 20,000 pods the answers
        take half a second to read, so that is its work too.
        """
        if not self._answered.is_set():
            return None
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        self._answered = done
        found: list[tuple[Answers, Mapping[Pod, Signals]]] = []

        def work() -> None:
            answers = read(ask)
            found.append((answers, signals_of(answers)))
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=work, name="prometheus", daemon=True).start()
        try:
            async with asyncio.timeout(DEADLINE_S + _QUERY_S):
                await done.wait()
        except TimeoutError:
            return None
        return found[0]

    def _tell(self, answers: Answers, answered: bool) -> None:
        self._metrics.prometheus.set(answered)
        for signal in QUERIES:
            self._metrics.signals.labels(signal).set(len(answers.get(signal) or ()))
        if answered != self._answers_now:
            self._answers_now = answered
            log.log(
                logging.INFO if answered else logging.WARNING,
                "prometheus answers" if answered else "prometheus is silent: its signals are unknown",
            )
