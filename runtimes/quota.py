"""How many CPUs this process may use.

Owns reading the cgroup quota (v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``) and what follows: predictors and threads. Leaves
starting them to the pool. One idea: the node's core count is never the answer inside a pod.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

Read = Callable[[str], str | None]
_ROOT = "/sys/fs/cgroup"
# Every name under which a numeric library looks for its number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",  # what scikit-learn's stored n_jobs=-1 means
)


@dataclass(frozen=True)
class Cpu:
    """What may run at once: predictor processes, and numeric threads in each of them."""

    cores: float
    predictors: int
    threads: int


def read_file(path: str) -> str | None:
    """A file's text, or None where it is not there or not ours to read."""
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


def cpu_quota(read: Read = read_file) -> float | None:
    """The smallest CPU quota over this process's cgroup and those above it, in cores; None where none is set."""
    found = [quota for path, version in _own_cgroups(read) for quota in _quotas_up(path, version, read)]
    return min(found, default=None)


def cpu(predictors: int | None, quota: float | None, affinity: int) -> Cpu:
    """Predictors = the cores rounded up unless stated; threads so that all predictors together fit into the cores."""
    cores = min(quota, affinity) if quota else float(affinity)
    count = predictors or max(1, math.ceil(cores))
    return Cpu(cores=cores, predictors=count, threads=max(1, int(cores / count)))


def own_affinity() -> int:
    """The number of CPUs that the scheduler may put this process on."""
    return len(os.sched_getaffinity(0))


def _own_cgroups(read: Read) -> Iterator[tuple[str, int]]:
    for line in (read("/proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            yield path, 2
        elif "cpu" in controllers.split(","):
            yield path, 1


def _quotas_up(path: str, version: int, read: Read) -> Iterator[float]:
    # In a container the path may be the host's while only its own subtree is mounted: the root is always asked too.
    own = PurePosixPath(path)
    for folder in [own, *own.parents]:
        quota = _quota_v2(folder, read) if version == 2 else _quota_v1(folder, read)
        if quota is not None:
            yield quota


def _quota_v2(folder: PurePosixPath, read: Read) -> float | None:
    text = read(f"{_ROOT}{_suffix(folder)}/cpu.max")
    quota, _, period = (text or "max").strip().partition(" ")
    return None if quota == "max" else int(quota) / int(period or 100_000)


def _quota_v1(folder: PurePosixPath, read: Read) -> float | None:
    for mount in ("cpu", "cpu,cpuacct"):
        quota = read(f"{_ROOT}/{mount}{_suffix(folder)}/cpu.cfs_quota_us")
        period = read(f"{_ROOT}/{mount}{_suffix(folder)}/cpu.cfs_period_us")
        if quota and period and int(quota) > 0:
            return int(quota) / int(period)
    return None


def _suffix(folder: PurePosixPath) -> str:
    return "" if str(folder) == "/" else str(folder)
