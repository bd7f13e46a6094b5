"""Owns amounts of CPU and memory: closed types, parsing, and one canonical way to write each.

Leaves limits on the amounts to the fields. One idea: `1024Mi` and `1Gi` are one value with one spelling, so that a
change of spelling makes no new revision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

_BINARY: Final = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4}
_DECIMAL: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_NUMBER: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_CPU = re.compile(_NUMBER + r"(m?)")
_MEMORY = re.compile(_NUMBER + r"([KMGT]i|[kMGT]|)")
CPU_FORMS: Final = '"500m", "2", 0.5'
MEMORY_FORMS: Final = "512Mi, 1.5Gi, 2G"


@dataclass(frozen=True, order=True)
class Cpu:
    """CPU time in thousandths of a core."""

    millicores: int

    def __str__(self) -> str:
        whole, rest = divmod(self.millicores, 1000)
        return f"{self.millicores}m" if rest else str(whole)


@dataclass(frozen=True, order=True)
class Memory:
    """Memory in bytes."""

    bytes: int

    def __str__(self) -> str:
        units = {"": 1} | _BINARY | _DECIMAL
        spellings = [f"{self.bytes // size}{suffix}" for suffix, size in units.items() if self.bytes % size == 0]
        return min(spellings, key=len)  # 2G, not 1953125Ki


def parse_cpu(text: str) -> Cpu:
    """`2`, `0.5`, `500m`; a ValueError says what is wrong."""
    match = _CPU.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no amount of CPU")
    millicores = Decimal(match[1]) * (1 if match[2] else 1000)
    if millicores != int(millicores):
        raise ValueError(f"{text!r} is finer than a thousandth of a core")
    return Cpu(int(millicores))


def parse_memory(text: str) -> Memory:
    """`512Mi`, `1.5Gi`, `2G`, or plain bytes; a ValueError says what is wrong."""
    match = _MEMORY.fullmatch(text)
    if match is None:
        hint = f": m means a thousandth of a byte, write {text[:-1]}Mi" if re.fullmatch(r"[0-9]+m", text) else ""
        raise ValueError(f"{text!r} is no amount of memory{hint}")
    amount = Decimal(match[1]) * (_BINARY | _DECIMAL | {"": 1})[match[2]]
    if amount != int(amount):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return Memory(int(amount))
