"""Owns the way from Pulumi's JSON (a stack's state, a preview's steps) to resources that the rules can judge.

Leaves the rules to `rules`; the pack has its own way, through Pulumi's library. One idea: a plan, a run and what
stands are judged by the same rules, so each source only has to say what it knows and mark what it doesn't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from policies.declared import UNKNOWN, Declared

# What Pulumi writes for a value that only the run will tell: text, number, truth value, list, object, asset, archive.
_UNKNOWNS: Final = frozenset(
    {
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
    }
)
# An object with this key is a value in a wrapper: a secret, an asset, an output.
_WRAPPER_KEY: Final = "4dabf18193072939515e22adb298388d"
_GOING: Final = frozenset({"delete", "delete-replaced", "discard", "discard-replaced", "remove-pending-replace"})


def declared_state(resource: Mapping[str, Any]) -> Declared:
    """One resource of `pulumi stack export` or of a preview's `newState`, by its inputs."""
    name = str(resource.get("urn", "")).split("::", 3)[-1]
    inputs = known(resource.get("inputs") or {})
    return Declared(str(resource.get("type", "")), name, inputs, bool(resource.get("protect", False)))


def declared_in_state(resources: Iterable[Mapping[str, Any]]) -> list[Declared]:
    """The Kubernetes objects of `deployment.resources` of `pulumi stack export`."""
    return [declared_state(each) for each in resources if _is_object(each)]


def declared_in_preview(steps: Iterable[Mapping[str, Any]]) -> list[Declared]:
    """The Kubernetes objects that stand after a run, from the steps of `pulumi preview --json`."""
    staying = [step.get("newState") or {} for step in steps if step.get("op") not in _GOING]
    return list({str(state.get("urn")): declared_state(state) for state in staying if _is_object(state)}.values())


def known(value: Any) -> Any:
    """Plain data, with UNKNOWN where Pulumi's JSON has a placeholder or a wrapper that hides the value."""
    match value:
        case str():
            return UNKNOWN if value in _UNKNOWNS else value
        case Mapping():
            return UNKNOWN if _WRAPPER_KEY in value else {key: known(item) for key, item in value.items()}
        case list():
            return [known(item) for item in value]
    return value


def _is_object(resource: Mapping[str, Any]) -> bool:
    return str(resource.get("type", "")).startswith("kubernetes:")
