"""What the buffers of one request mean, on both sides of the socket.

Owns the words that the front and a predictor share about a request's values; leaves making the buffers to plan and
reading them to inputs. Pure and of the standard library. One idea: a request is a few contiguous blocks in an order
that both sides know from the signature, so joining requests is joining bytes.

A block holds one kind of value, row by row. Its code is numpy's (``f8``, ``i4``, ``b1``, ``M8``: nanoseconds) or one of
those that have no array form and travel as one flat JSON list: ``js`` (as they are), ``b64`` (bytes), ``Int`` and
``Bool`` (numbers and booleans, of which some are missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

Buffer = bytes | bytearray | memoryview
ITEM_BYTES = {
    "b1": 1, "i1": 1, "u1": 1, "i2": 2, "u2": 2, "f2": 2, "i4": 4, "u4": 4, "f4": 4, "i8": 8, "u8": 8, "f8": 8, "M8": 8,
}  # fmt: skip


class Form(Enum):
    """What a request's blocks become in front of the model."""

    TABLE = "table"  # the columns of a DataFrame
    TENSORS = "tensors"  # one array, or a dictionary of arrays
    BODY = "body"  # the request's own bytes, which the predictor reads itself


@dataclass(frozen=True, slots=True)
class Block:
    """One contiguous run of values of one kind.

    ``names`` are the columns in it (a row holds one value of each), or the one tensor; ``shape`` is what a row of that
    tensor looks like, None where the tensor has no rows (a scalar).
    """

    code: str
    names: tuple[str | int | None, ...]
    shape: tuple[int, ...] = ()

    @property
    def item_bytes(self) -> int | None:
        """Bytes of one value; None where the block is a JSON list."""
        return ITEM_BYTES.get(self.code)


@dataclass(frozen=True, slots=True)
class Layout:
    """The blocks of a request in their order: the widest values first, so that every block stays aligned."""

    form: Form
    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, form: Form, blocks: list[Block]) -> Layout:
        return cls(form, tuple(sorted(blocks, key=lambda block: -(block.item_bytes or 0))))


def layout_to_plain(layout: Layout) -> dict[str, Any]:
    """The layout as JSON can carry it."""
    blocks = [[block.code, list(block.names), list(block.shape)] for block in layout.blocks]
    return {"form": layout.form.value, "blocks": blocks}


def layout_from_plain(plain: Mapping[str, Any]) -> Layout:
    """The layout that ``layout_to_plain`` wrote."""
    blocks = [Block(code, tuple(names), tuple(shape)) for code, names, shape in plain["blocks"]]
    return Layout(Form(plain["form"]), tuple(blocks))
