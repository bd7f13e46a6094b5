"""Owns what an endpoint file can put into its container's environment: texts, and references to Secrets.

Leaves the Secrets to whoever made them in the team's namespace. One idea: a secret's value is never in Git, in a plan
or in a state, so a file can only say where it is; text under a name that smells of a secret is refused while reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Discriminator, Field, Tag

from spec.fields import SecretName
from spec.reading import SpecModel, echo, refused

VARIABLES_MOST: Final = 100
VARIABLE_FORMS: Final = "text, {secret: <name>, key: <key>}"
NAME_RULE: Final = "letters, digits and _, first no digit"
# A variable with such a name holds a secret; a policy says so too, of every pod.
SECRET_NAME: Final = re.compile(
    r"(?:^|[_.-])(?:key|token|password|passwd|passphrase|secret|credentials?)$", re.IGNORECASE
)
USER_IN_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
# What a pod of ours is started with. Another value would start something else.
OURS: Final = frozenset({"PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONSAFEPATH"})
OURS_PREFIX: Final = "KNOBLESS_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def _check_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise refused(f"{echo(text)} is no name of a variable: {NAME_RULE}")
    if text.startswith(OURS_PREFIX):
        raise refused(f"names that begin with {OURS_PREFIX} are the platform's own")
    return text


def _check_key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise refused(f"{echo(text)} is no key of a Secret: letters, digits, '-', '_' and '.'")
    return text


class SecretKey(SpecModel):
    """One key of a Secret in the team's namespace."""

    secret: SecretName
    key: Annotated[str, AfterValidator(_check_key)]


def _tag(value: Any) -> str:
    return "<secret>" if isinstance(value, Mapping | SecretKey) else "<text>"


Variable = Annotated[
    Annotated[str, Field(max_length=8_192), Tag("<text>")] | Annotated[SecretKey, Tag("<secret>")],
    Discriminator(_tag),
]


def _check_all(values: dict[str, str | SecretKey]) -> dict[str, str | SecretKey]:
    if len(values) > VARIABLES_MOST:
        raise refused(f"{len(values)} variables are more than {VARIABLES_MOST}")
    for name, value in values.items():
        if isinstance(value, str) and (problem := secret_problem(name, value)) is not None:
            raise refused(problem, "{secret: <name>, key: <key>}", field=name)
    return values


def secret_problem(name: str, value: str) -> str | None:
    """Why this text may not stand in a file or a manifest; None where it may."""
    if value and SECRET_NAME.search(name):
        return "holds a secret as text: name the Secret that has it"
    if USER_IN_URL.search(value):
        return "holds a password in an address: name the Secret that has it"
    return None


Variables = Annotated[dict[Annotated[str, AfterValidator(_check_name)], Variable], AfterValidator(_check_all)]
