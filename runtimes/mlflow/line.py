"""The requests that wait for a predictor.

Owns their order, their bound, and who may go together; leaves running them to the pool. Pure. One idea: first come,
first served, and whoever is like the first goes with it; whoever leaves or expires is gone at once.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, Protocol, TypeVar


class Item(Protocol):
    """What can stand in the line."""

    @property
    def rows(self) -> int:
        """How much of a call it takes."""

    def like(self, other: Any, /) -> bool:
        """Whether it may share a call with the other."""


T = TypeVar("T", bound=Item)


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

    def rejoin(self, items: list[T]) -> None:
        """Stand in front of everybody, in this order: they have waited before."""
        for item in reversed(items):
            self._waiting[id(item)] = item
            self._waiting.move_to_end(id(item), last=False)

    def leave(self, item: T) -> bool:
        """Step out; false where the item does not wait (any more)."""
        return self._waiting.pop(id(item), None) is not None

    def take(self, most_rows: int) -> list[T]:
        """The one who has waited longest, and all who may go with it; empty where nobody waits."""
        if not self._waiting:
            return []
        _, first = self._waiting.popitem(last=False)
        taken, rows = [first], first.rows
        if not self._waiting or rows >= most_rows:
            return taken
        for item in list(self._waiting.values()):
            if rows + item.rows <= most_rows and first.like(item):
                del self._waiting[id(item)]
                taken.append(item)
                rows += item.rows
        return taken
