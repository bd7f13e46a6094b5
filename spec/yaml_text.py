"""Owns reading a file's text as strict YAML: values, the place of each, and every problem found on the way.

Leaves the meaning of words to `yaml_scalars` and the fields to the models. One idea: a small part of YAML has one
meaning to every reader; all else (anchors, tags, tabs, several documents, ...) is a problem with line and column and
never another value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from spec.problems import Problem
from spec.yaml_scalars import Trap, read_plain

Path = tuple[str | int, ...]
Place = tuple[int, int]

MAX_CHARACTERS: Final = 65_536
MAX_DEPTH: Final = 16
_BYTE_ORDER_MARK: Final = "\ufeff"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_MESSAGE_LIMIT: Final = 300
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]|\r(?!\n)")


@dataclass
class Document:
    """A file as values and places. Where `problems` is not empty, `value` is what could still be read."""

    file: str
    value: Any = None
    problems: list[Problem] = field(default_factory=list)
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    broken: set[Path] = field(default_factory=set)

    def is_broken(self, path: Path) -> bool:
        """Whether a problem of the text already stands at `path` or above it."""
        return any(path[:length] in self.broken for length in range(len(path) + 1))

    def place(self, path: Path, key: bool = False) -> Place | None:
        """Where the value at `path` (or its key) stands, or the nearest thing around it."""
        if key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path)

    def report(self, path: Path, message: str, allowed: str | None = None, key: bool = False) -> None:
        """Add a problem at `path`."""
        line, column = self.place(path, key) or (None, None)
        text = shorten(message, _MESSAGE_LIMIT)
        self.problems.append(Problem(self.file, line, column, field_text(path), text, allowed))


def field_text(path: Path) -> str:
    """`access.teams[0]`; a key that is no plain name is quoted and shortened."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_key_text(part)}" for part in path)
    return text.removeprefix(".")


def _key_text(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else f'"{shorten(key)}"'


def shorten(text: str, limit: int = 60) -> str:
    """Text of a file for a message: without characters that a terminal would act on, and not too long."""
    safe = "".join(character if character.isprintable() else "?" for character in text)
    return safe if len(safe) <= limit else f"{safe[: limit - 3]}..."


def read_yaml(text: str | bytes, file: str) -> Document:
    """Read a file whose root is a mapping. Never raises: what is wrong stands in `problems`."""
    document = Document(file)
    decoded = _decode(text, document)
    if decoded is not None and _check_characters(decoded, document):
        _Reader(document).read(decoded)
    return document


def _decode(text: str | bytes, document: Document) -> str | None:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start]
        place = (before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1)
        message = f"byte 0x{text[error.start]:02x} is not UTF-8: save the file as UTF-8"
        document.problems.append(Problem(document.file, *place, "", message))
        return None


def _check_characters(text: str, document: Document) -> bool:
    """Report characters that a file may not hold; False where reading on makes no sense."""

    def add(offset: int, message: str) -> None:
        line, column = text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
        document.problems.append(Problem(document.file, line, column, "", message))

    if len(text) > MAX_CHARACTERS:
        message = f"the file has {len(text)} characters, more than a spec can need"
        document.problems.append(Problem(document.file, None, None, "", message, f"at most {MAX_CHARACTERS}"))
        return False
    if text.startswith(_BYTE_ORDER_MARK):
        add(0, "the file starts with a byte order mark: save it as UTF-8 without one")
    if control := _CONTROL.search(text):
        add(control.start(), f"character U+{ord(control[0]):04X} is not allowed: remove it")
    for line in re.finditer(r"^[^\t\n]*\t", text, re.MULTILINE):
        add(line.end() - 1, "a tab: write spaces")
    return not document.problems


class _Reader:
    """Builds values from parser events; the depth is bounded, so is the recursion."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self, text: str) -> None:
        document = self._document
        try:
            self._read(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            context = f" ({error.context})" if error.context else ""
            mark = error.problem_mark or error.context_mark
            self._unreadable(
                f"{error.problem}{context}", mark.line + 1 if mark else None, mark.column + 1 if mark else None
            )
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            self._unreadable(str(error), None, None)
        except _TooDeepError:
            document.broken.add(())

    def _unreadable(self, why: str, line: int | None, column: int | None) -> None:
        self._document.broken.add(())
        self._document.problems.append(Problem(self._document.file, line, column, "", f"not readable as YAML: {why}"))

    def _read(self, events: Iterator[yaml.Event]) -> None:
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                self._start(event, documents)
                if documents == 1:
                    self._document.value = self._node(next(events), events, ())
                    self._check_root()
                else:
                    return
        if documents == 0:
            self._trouble((), (1, 1), "the file is empty")

    def _start(self, event: yaml.DocumentStartEvent, count: int) -> None:
        place = _place(event)
        if event.version or event.tags:
            self._tell((), place, "a % directive: remove it")
        if count > 1:
            self._tell((), place, "a second document: write one document to a file")

    def _check_root(self) -> None:
        document = self._document
        if not isinstance(document.value, dict) and () not in document.broken:
            self._trouble((), document.values[()], "the file holds no mapping: write `field: value` lines")

    def _trouble(self, path: Path, place: Place, message: str) -> None:
        self._document.broken.add(path)
        self._tell(path, place, message)

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Any:
        place = _place(event)
        self._document.values[path] = place
        if isinstance(event, yaml.AliasEvent):
            self._trouble(path, place, f"*{shorten(str(event.anchor))} repeats another place: write the value itself")
            return None
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.anchor is not None:
            self._trouble(path, place, f"&{shorten(event.anchor)} names a value for repeating it: remove the anchor")
        if event.tag is not None:
            self._trouble(path, place, f"{shorten(event.tag)} is a tag: remove it, and quote what shall be text")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if len(path) >= MAX_DEPTH:
            self._trouble(path, place, f"nested deeper than {MAX_DEPTH} levels")
            raise _TooDeepError
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, path)
        return self._sequence(events, path)

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        word = str(event.value)
        if any("\ud800" <= character <= "\udfff" for character in word):
            self._trouble(path, _place(event), "half of a surrogate pair is no character")
            return None
        if event.style is not None:
            return word
        if _lines(event) > 1:
            self._trouble(path, _place(event), "unquoted text goes on over lines: quote it, or check the indentation")
            return word
        value = read_plain(word)
        if isinstance(value, Trap):
            self._trouble(path, _place(event), value.message)
            return word
        return value

    def _sequence(self, events: Iterator[yaml.Event], path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: Path) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._key(event, events, path)
            if key is None or key in entries:
                if key is not None:
                    first = self._document.keys[(*path, key)][0]
                    self._trouble((*path, key), _place(event), f"stands twice, first in line {first}")
                self._skip(events, path)
                continue
            self._document.keys[(*path, key)] = _place(event)
            entries[key] = self._node(next(events), events, (*path, key))
        return entries

    def _key(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> str | None:
        """The key as text, or None after reporting why it is none."""
        place = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            _skip_node(event, events)
            self._tell(path, place, "a key that is not text: write a plain name")
            return None
        if event.anchor is not None or event.tag is not None:
            self._tell(path, place, "an anchor or a tag at a key: remove it")
            return None
        if event.style is None and event.value == "<<":
            self._tell(path, place, "<< merges another mapping: write the fields themselves")
            return None
        value = read_plain(event.value) if event.style is None else event.value
        if isinstance(value, Trap):
            self._tell(path, place, f"key {value.message}")
            return None
        if not isinstance(value, str):
            self._tell(path, place, f'key {shorten(event.value)} is not text: write "{shorten(event.value)}"')
            return None
        return value

    def _tell(self, path: Path, place: Place, message: str) -> None:
        text = shorten(message, _MESSAGE_LIMIT)
        self._document.problems.append(Problem(self._document.file, *place, field_text(path), text))

    def _skip(self, events: Iterator[yaml.Event], path: Path) -> None:
        _skip_node(next(events), events)


class _TooDeepError(Exception):
    """Ends the reading of a file that nests too deeply."""


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _lines(event: yaml.Event) -> int:
    start, end = event.start_mark, event.end_mark
    return end.line - start.line + 1 if start and end else 1


def _skip_node(event: yaml.Event, events: Iterator[yaml.Event]) -> None:
    depth = 0
    while True:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth == 0:
            return
        event = next(events)
