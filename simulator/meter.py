"""Counts of one second and of a whole run, the same for both engines.

Owns what a second's sample holds and what a result adds up. Its one idea: an engine says what happens when it happens;
who is judged, by which attempt and after which warm-up, is decided here alone.
"""

from __future__ import annotations

import math

from simulator.policy import Pods, Sample
from simulator.result import Series, Tally
from simulator.scenario import Scenario


class Meter:
    """`in_flight_s` and `queued_s` are request-seconds of this second; `service_s` what its completions took in all."""

    def __init__(self, scenario: Scenario) -> None:
        self._marked, self._attempts = scenario.clients.marked, scenario.clients.attempts
        self._warm_up_s = math.ceil(scenario.warm_up_s)
        self.tally, self.series = Tally(), Series()
        self._clear()

    def _clear(self) -> None:
        self.arrived = self.retried = self.refused = self.completed = 0
        self.refused_first = self.late = self.lost = 0
        self.in_flight_s = self.queued_s = self.service_s = 0.0

    def refuse(self, count: int, attempt: int, since_s: float) -> None:
        """`since_s`: when this attempt arrived."""
        self.refused += count
        if since_s >= self._warm_up_s:
            self.refused_first += 0 if attempt else count
            self.lost += count if attempt + 1 >= self._attempts else 0

    def be_late(self, count: int, attempt: int, since_s: float) -> None:
        if not attempt and since_s >= self._warm_up_s:
            self.late += count

    def close(self, second: int, in_flight: int, queued: int, replicas: tuple[int, int], pods: Pods | None) -> Sample:
        """The second's sample; `replicas`: ready, issued. What is counted afterwards is the next second's."""
        self._record(second, replicas)
        sample = Sample(
            at_s=second + 1.0,
            arrived=self.arrived,
            retried=self.retried if self._marked else 0,
            refused=self.refused,
            completed=self.completed,
            in_flight=self.in_flight_s,
            queued=self.queued_s,
            in_flight_now=in_flight,
            queued_now=queued,
            service_s=self.service_s / self.completed if self.completed else None,
            pods=pods,
            ever=self.tally.attempts,
        )
        self._clear()
        return sample

    def settle(self) -> None:
        """After the last second: those found late at its end."""
        self.tally.late += self.late

    def _record(self, second: int, replicas: tuple[int, int]) -> None:
        tally, series = self.tally, self.series
        tally.attempts += self.arrived
        tally.completed += self.completed
        tally.turned_away += self.refused
        tally.refused += self.refused_first
        tally.late += self.late
        tally.lost += self.lost
        if second >= self._warm_up_s:
            tally.requests += self.arrived - self.retried
        series.arrived.append(self.arrived - self.retried)
        series.refused.append(self.refused_first)
        series.late.append(self.late)
        series.in_flight.append(self.in_flight_s)
        series.queued.append(self.queued_s)
        series.ready.append(replicas[0])
        series.issued.append(replicas[1])
