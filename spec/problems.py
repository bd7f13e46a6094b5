"""Owns what is told to a person about a file: one `Problem` each, all of them in one `SpecError`.

Leaves finding them to the readers. One idea: nobody corrects a file in rounds, so every problem is told at once, with
the place, the field and what is allowed there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What is wrong at one place; `line` and `column` count from 1 and are None where no place can be named."""

    file: str
    line: int | None
    column: int | None
    field: str
    message: str
    allowed: str | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column or 1}"
        field = f"{self.field}: " if self.field else ""
        allowed = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{place}: {field}{self.message}{allowed}"


class SpecError(ValueError):
    """Every problem that was found, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems), key=_order))
        super().__init__("\n".join(map(str, self.problems)))


def _order(problem: Problem) -> tuple[str, int, int, str, str]:
    return (problem.file, problem.line or 0, problem.column or 0, problem.field, problem.message)
