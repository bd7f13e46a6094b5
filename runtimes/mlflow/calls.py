"""One call of the model, as the front passes it on.

Owns what stands in it on the model's side; of the standard library, so that the worker knows it before the model's
environment has been tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.mlflow.layout import Buffer, Layout


class UnsplittableError(Exception):
    """The result of a call for several requests does not have one row for each of theirs."""


@dataclass(slots=True)
class Request:
    """The rows of one or more requests."""

    layout: Layout
    buffers: Sequence[Buffer]
    rows: Sequence[int | None]
    media: str = "json"
    params: Mapping[str, Any] | None = None
    index: list[Any] | None = None
    as_text: bool = True
