"""NaN and infinity in JSON that somebody else wrote.

Owns turning them into null, outside of strings; leaves answers that we encode ourselves to the engine. Pure. One idea:
two searches for bytes decide for nearly all answers that there is nothing to do.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?(?:Infinity|NaN)', re.DOTALL)


def is_finite(text: bytes) -> bool:
    """Whether there is nothing to replace; false also where only a string has the words."""
    return b"NaN" not in text and b"Infinity" not in text


def finite(text: bytes) -> tuple[bytes, int]:
    """The text with null in place of what no strict parser reads, and how many there were."""
    if is_finite(text):
        return text, 0
    count = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal count
        token = match[0]
        if token.startswith(b'"'):
            return token
        count += 1
        return b"null"

    return _TOKEN.sub(replace, text), count
