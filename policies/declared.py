"""Owns how a rule sees one declared resource: plain values, paths for messages, and what is not known yet.

Leaves where resources come from (a graph, a preview, a state, a manifest) to the callers. One idea: a value that is
not known yet is a value of its own, and everything below it is unknown too, so that a rule can't overlook it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


class Unknown:
    """A value that only the run will tell. There is one, `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Declared:
    """One resource. `protect` is None where the source knows no such option, as a plain manifest."""

    type: str
    name: str
    object: Mapping[str, Any]
    protect: bool | None = None

    @property
    def root(self) -> Field:
        return Field("", self.object)

    @property
    def kind(self) -> Any:
        """The Kubernetes kind: text or UNKNOWN. An object that doesn't say it has the kind of its type token."""
        stated = self.object.get("kind")
        if stated is None:
            return self.type.rsplit(":", 1)[-1].removesuffix("Patch")
        return stated if isinstance(stated, str) else UNKNOWN

    @property
    def namespace(self) -> Any:
        """The namespace: text, None, or UNKNOWN."""
        return self.root.at("metadata", "namespace").value

    @property
    def label(self) -> str:
        """How a message names it: `Deployment team-alpha/iris`."""
        kind = self.kind if isinstance(self.kind, str) else self.type
        metadata = self.root.at("metadata")
        parts = [metadata.at(key).value for key in ("namespace", "name")]
        named = "/".join(part for part in parts if isinstance(part, str))
        return f"{kind} {named or self.name}"


def declared_manifest(manifest: Mapping[str, Any]) -> Declared:
    """A plain manifest as a resource."""
    name = manifest.get("metadata", {}).get("name", "")
    return Declared(f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", name, manifest)


@dataclass(frozen=True)
class Field:
    """A value and the path to it. What is absent is None; what can't be looked into holds unknowns."""

    path: str
    value: Any

    def at(self, *keys: str) -> Field:
        """The field below, key by key."""
        found = self
        for key in keys:
            path = f"{found.path}.{key}" if found.path else key
            value = found.value
            found = Field(path, value.get(key) if isinstance(value, Mapping) else None if value is None else UNKNOWN)
        return found

    def items(self) -> Iterator[Field]:
        """The entries of a list. What is no list, an unknown too, is one unknown entry."""
        if isinstance(self.value, list | tuple):
            for index, value in enumerate(self.value):
                yield Field(f"{self.path}[{index}]", value)
        elif self.value is not None:
            yield Field(f"{self.path}[*]", UNKNOWN)

    @property
    def unknown(self) -> bool:
        return self.value is UNKNOWN

    @property
    def absent(self) -> bool:
        return self.value is None

    def is_(self, expected: bool) -> bool:
        """Whether the value is exactly this truth value, and known."""
        return self.value is expected

    @property
    def text(self) -> str | None:
        """The value where it is text, else None."""
        return self.value if isinstance(self.value, str) else None

    @property
    def number(self) -> float | None:
        """The value where it is a number, else None. Numbers of Pulumi are floats."""
        known = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return float(self.value) if known else None


@dataclass(frozen=True)
class Violation:
    """One broken rule at one field; `message` says what to do."""

    rule: str
    resource: str
    field: str
    message: str

    @property
    def told(self) -> str:
        """The sentence, without the rule's name."""
        return f"{self.resource}: {self.field}: {self.message}"

    def __str__(self) -> str:
        return f"{self.told} [{self.rule}]"


@dataclass(frozen=True)
class Finding:
    """What a rule reports, before it is known which rule and which resource it was."""

    field: Field
    message: str

    @property
    def text(self) -> str:
        return "is not known before the run, and must be: state it" if self.field.unknown else self.message
