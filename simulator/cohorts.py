"""Requests in service, by cohort, in virtual time.

Owns when a cohort's requests complete. Its one idea: service times are drawn ahead in bins, so a cohort costs one draw
of counts, and a slowdown only changes how fast virtual time passes.
"""

from __future__ import annotations

import numpy as np

from simulator.scenario import Service

_POOL = 1 << 16
_LAG_SHARE = 0.02
_FEW = 6  # requests drawn one by one; more, by array


class InService:
    """A request that arrives evenly within its bin and takes `s` bins completes floor(s + U) bins on, which is `s` in
    the mean, U in [0, 1). Where virtual time is slow it stands `_beyond` a bin's edge, and completes what is due a
    little after its edge, by `_lag` in the mean: both are part of the time that a cohort still has to wait.
    """

    def __init__(self, service: Service, bin_s: float, random: np.random.Generator) -> None:
        if service.cv > 0:
            shape = 1 / service.cv**2
            taken_s = random.gamma(shape, service.mean_s / shape, _POOL)
        else:
            taken_s = np.full(_POOL, service.mean_s)
        self._draws = taken_s / bin_s + random.random(_POOL)
        self.longest = float(self._draws.max())
        self._span = int(self.longest) + 2
        self._whole = self._draws.astype(np.int64)
        self._few = self._draws.tolist()
        self._taken = 0
        self._ahead = np.zeros(self._span * 16 + 64, dtype=np.int64)
        self._at, self._beyond, self._lag = 0, 0.0, 0.0

    def pass_time(self, bins: float) -> int:
        """Completions while `bins` of virtual time pass, at most one."""
        if bins != 1.0:
            self._beyond += bins
            if self._beyond < 1.0:
                return 0
            self._beyond -= 1.0
            self._lag += (self._beyond - self._lag) * _LAG_SHARE
        self._at += 1
        if self._at + self._span >= len(self._ahead):
            rest = self._ahead[self._at :].copy()
            self._ahead[:] = 0
            self._ahead[: len(rest)] = rest
            self._at = 0
        return int(self._ahead[self._at])

    def admit(self, count: int, late_after_bins: float) -> tuple[int, int]:
        """(done within the bin already, late ones): `late_after_bins` in virtual bins of service."""
        begin = self._taken
        if begin + count > _POOL:
            begin = 0
        self._taken = begin + count
        if count > _POOL:
            return self._admit_parts(count, late_after_bins)
        if count <= _FEW:
            return self._admit_few(self._few[begin : begin + count], late_after_bins + 0.5)
        draws = self._draws[begin : begin + count]
        ahead = self._beyond - self._lag
        whole = (draws + ahead).astype(np.int64) if ahead else self._whole[begin : begin + count]
        done = np.bincount(whole)
        self._ahead[self._at + 1 : self._at + len(done)] += done[1:]
        is_late = late_after_bins + 0.5 < self.longest
        return int(done[0]), int(np.count_nonzero(draws > late_after_bins + 0.5)) if is_late else 0

    def _admit_few(self, draws: list[float], late_after: float) -> tuple[int, int]:
        at_once = late = 0
        ahead = self._beyond - self._lag
        for draw in draws:
            bins = int(draw + ahead)
            if bins:
                self._ahead[self._at + bins] += 1
            else:
                at_once += 1
            if draw > late_after:
                late += 1
        return at_once, late

    def _admit_parts(self, count: int, late_after_bins: float) -> tuple[int, int]:
        at_once = late = 0
        for part in [_POOL] * (count // _POOL) + [count % _POOL]:
            more = self.admit(part, late_after_bins)
            at_once, late = at_once + more[0], late + more[1]
        return at_once, late
