"""Server-sent events: how the pieces of a streamed answer are framed.

Owns the framing, the end of a stream and where one event ends; leaves what is in an event to the engine. Pure.
"""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
_MOST_HELD_BYTES = 1 << 20  # of an event that has not ended: then it is passed on as it is


def event(document: bytes, name: bytes | None = None) -> bytes:
    """One JSON document, which has no line breaks of its own, as an event."""
    head = b"" if name is None else b"event: " + name + b"\n"
    return head + b"data: " + document + b"\n\n"


class Whole:
    """Cuts a stream that arrives in pieces of any size where its events end, so that each can be looked at."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """All events that are complete with this piece; mostly it is exactly that, and nothing is copied."""
        if self._held:
            piece = self._held + piece
            self._held = b""
        if piece.endswith((b"\n\n", b"\r\n\r\n")):
            return piece
        end = max(_after(piece, b"\n\n"), _after(piece, b"\r\n\r\n"))
        if end == 0 and len(piece) > _MOST_HELD_BYTES:
            return piece
        self._held = piece[end:]
        return piece[:end]

    def rest(self) -> bytes:
        """What is left once the stream has ended."""
        held, self._held = self._held, b""
        return held


def _after(piece: bytes, mark: bytes) -> int:
    at = piece.rfind(mark)
    return 0 if at < 0 else at + len(mark)
