"""Which GPUs this process has.

Owns asking the driver's tool; leaves what follows to each runtime. No tool and no GPU are the same answer: none.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

_QUESTION = ("nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits")
_MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU: capability is its generation, 8.0 an A100, 9.0 an H100."""

    name: str
    memory_bytes: int
    capability: float


def found() -> tuple[Gpu, ...]:
    """The GPUs that the driver shows to this process."""
    try:
        told = subprocess.run(_QUESTION, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse(told)


def parse(told: str) -> tuple[Gpu, ...]:
    """`NVIDIA H100 80GB HBM3, 81559, 9.0` a line."""
    lines = [[part.strip() for part in line.rsplit(",", 2)] for line in told.splitlines() if line.strip()]
    return tuple(Gpu(name, int(memory) * _MIB, float(capability)) for name, memory, capability in lines)
