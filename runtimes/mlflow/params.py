"""The parameters of a prediction against those that the model declares.

Owns names and types; leaves defaults to MLflow, which fills them in. One idea: a name that nobody knows is an error,
for a silently dropped parameter is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtimes.mlflow.columns import convert_scalar
from runtimes.mlflow.errors import Problem
from runtimes.mlflow.signature import SCALARS, Param


def check_params(given: Mapping[str, Any], declared: Sequence[Param]) -> tuple[dict[str, Any], list[Problem]]:
    """The parameters in their types, and what is wrong with them."""
    known = {param.name: param for param in declared}
    checked: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in given.items():
        if name not in known:
            problems.append(Problem(f"the model has no parameter `{name[:64]}`; {_known(declared)}", "params"))
            continue
        checked[name], reason = _checked(known[name], value)
        if reason is not None:
            problems.append(Problem(f"parameter `{name}`: {reason}", name))
    return checked, problems


def _checked(param: Param, value: Any) -> tuple[Any, str | None]:
    if value is None or param.type not in SCALARS:
        return value, None  # MLflow's own check decides
    if not param.is_list:
        return convert_scalar(param.type, value)
    if not isinstance(value, list):
        return None, "not a list"
    converted = [convert_scalar(param.type, item) for item in value]
    return [item for item, _ in converted], next((reason for _, reason in converted if reason), None)


def _known(declared: Sequence[Param]) -> str:
    return f"it takes {', '.join(f'`{param.name}`' for param in declared)}" if declared else "it takes none"
