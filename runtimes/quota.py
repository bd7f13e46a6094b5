"""How many CPUs and how much memory this process may use.

Owns reading the cgroup's limits (v2 ``cpu.max`` and ``memory.max``, v1 ``cpu.cfs_quota_us`` and
``memory.limit_in_bytes``) and what follows of CPUs: predictors and threads. Leaves starting them to the pool. One idea:
what the node has is never the answer inside a pod.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

Read = Callable[[str], str | None]
_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # v1 writes the largest number of pages where there is no limit
# Every name under which a numeric library looks for its number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "RAYON_NUM_THREADS",  # tokenizers
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
    found = [_quota(folder, version, read) for folder, version in _folders_up("cpu", read)]
    return min((quota for quota in found if quota is not None), default=None)


def memory_limit(read: Read = read_file) -> int | None:
    """The smallest memory limit over this process's cgroup and those above it, in bytes; None where none is set."""
    found = [_limit(folder, version, read) for folder, version in _folders_up("memory", read)]
    return min((limit for limit in found if limit is not None), default=None)


def cpu(predictors: int | None, quota: float | None, affinity: int) -> Cpu:
    """Predictors = the cores rounded up unless stated; threads so that all predictors together fit into the cores."""
    cores = min(quota, affinity) if quota else float(affinity)
    count = predictors or max(1, math.ceil(cores))
    return Cpu(cores=cores, predictors=count, threads=max(1, int(cores / count)))


def own_affinity() -> int:
    """The number of CPUs that the scheduler may put this process on."""
    return len(os.sched_getaffinity(0))


def _folders_up(controller: str, read: Read) -> Iterator[tuple[PurePosixPath, int]]:
    # In a container the path may be the host's while only its own subtree is mounted: the root is always asked too.
    for path, version in _own_cgroups(controller, read):
        own = PurePosixPath(path)
        yield from ((folder, version) for folder in [own, *own.parents])


def _own_cgroups(controller: str, read: Read) -> Iterator[tuple[str, int]]:
    for line in (read("/proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            yield path, 2
        elif controller in controllers.split(","):
            yield path, 1


def _quota(folder: PurePosixPath, version: int, read: Read) -> float | None:
    return _quota_v2(folder, read) if version == 2 else _quota_v1(folder, read)


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


def _limit(folder: PurePosixPath, version: int, read: Read) -> int | None:
    own = _suffix(folder)
    place = f"{own}/memory.max" if version == 2 else f"/memory{own}/memory.limit_in_bytes"
    text = (read(f"{_ROOT}{place}") or "max").strip()
    return None if text == "max" or int(text) >= _UNLIMITED else int(text)


def _suffix(folder: PurePosixPath) -> str:
    return "" if str(folder) == "/" else str(folder)
