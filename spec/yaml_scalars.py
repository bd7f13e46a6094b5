"""Owns what one unquoted word of a file means, and which words are traps.

Leaves the structure of a file to `yaml_text`. One idea: a word that some YAML version or library reads as another value
than it looks like has no meaning here; the person is told what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Scalar = str | int | float | bool

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_LONGEST_NUMBER = 18  # digits that fit a signed 64 bit integer and that a float still tells apart well enough

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH = {"true": True, "false": False}
_TRUE_WORDS = frozenset({"y", "yes", "on", "true"})
_FALSE_WORDS = frozenset({"n", "no", "off", "false"})


@dataclass(frozen=True)
class Trap:
    """An unquoted word without a meaning here; `message` says what to write instead."""

    message: str


_NUMBER_TRAPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F_]+"), "is a hexadecimal number"),
    (re.compile(r"[-+]?0[oO][0-7_]+"), "is an octal number to some YAML readers and text to others"),
    (re.compile(r"[-+]?0[bB][01_]+"), "is a binary number to some YAML readers and text to others"),
    (re.compile(r"[-+]?0[0-9]+"), "is an octal number to some YAML readers"),
    (re.compile(r"[-+]?[0-9]+(?::[0-9]+)+(?:\.[0-9]*)?"), "is a number of base 60 to some YAML readers"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?"), "is a number to some YAML readers and text to others"),
    (
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+"),
        "is a number to some YAML readers and text to others",
    ),
    (
        re.compile(r"\+[0-9][0-9.]*|[-+]?\.[0-9]+|[-+]?[0-9]+\.|[-+]?0[0-9]+\.[0-9]*"),
        "is an unusual way to write a number",
    ),
    (re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE), "is no finite number"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?"), "is a date to some YAML readers"),
)


def read_plain(word: str) -> Scalar | Trap:
    """The value of an unquoted word: true, false, a whole number, a decimal fraction, or text. Else a trap."""
    if word in _NULL:
        return Trap("has no value: write one, or remove the line ({} is an empty mapping)")
    if word in _TRUTH:
        return _TRUTH[word]
    if word.lower() in _TRUE_WORDS | _FALSE_WORDS:
        meant = "true" if word.lower() in _TRUE_WORDS else "false"
        return Trap(f'{word} is a truth value to some YAML readers: write {meant}, or "{word}" for text')
    if _INTEGER.fullmatch(word) or _DECIMAL.fullmatch(word):
        return _number(word)
    for pattern, why in _NUMBER_TRAPS:
        if pattern.fullmatch(word):
            return Trap(f'{word} {why}: write plain decimal digits such as 10 or 0.5, or "{word}" for text')
    return word


def _number(word: str) -> int | float | Trap:
    if sum(character.isdigit() for character in word) > _LONGEST_NUMBER:
        return Trap(f"has more than {_LONGEST_NUMBER} digits")
    return float(word) if "." in word else int(word)
