"""The requests that wait for a predictor.

Owns their order and their bound; leaves running them to the pool. Pure. One idea: first come, first served, and whoever
leaves or expires is gone at once, whatever stands before it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class LineFullError(Exception):
    """As many requests as the process takes are already in it."""


class Line(Generic[T]):
    """A bounded first-in, first-out line that anybody may leave from anywhere."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._waiting: OrderedDict[int, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, item: T) -> None:
        """Stand at the end; LineFullError where there is no room."""
        if len(self._waiting) >= self._longest:
            raise LineFullError
        self._waiting[id(item)] = item

    def leave(self, item: T) -> bool:
        """Step out; false where the item does not wait (any more)."""
        return self._waiting.pop(id(item), None) is not None

    def take(self) -> T | None:
        """The one who has waited longest, or None."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None
