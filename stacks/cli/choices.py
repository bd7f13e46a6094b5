"""What serves each endpoint and why, told before a plan; what can't be served ends the command with every reason.

Leaves choosing to `stacks.choosing`, which the Pulumi program asks too. One idea: a wrong combination is told of all
endpoints at once, by file and field, and not by the first stack that fails.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from spec.endpoint import EndpointSpec
from spec.problems import SpecError
from stacks.choosing import Place, served, told_choice
from stacks.cli.errors import CliError, ExitCode


def lines(place: Place, specs: Sequence[EndpointSpec]) -> list[str]:
    """A line an endpoint; CliError with the problems of all where any can't be served."""
    if not specs:
        return []
    with ThreadPoolExecutor(max_workers=min(len(specs), 2 * (os.cpu_count() or 1))) as pool:
        told = list(pool.map(lambda spec: _told(place, spec), specs))
    problems = [problem for each in told if isinstance(each, SpecError) for problem in each.problems]
    if problems:
        raise CliError("\n".join(map(str, SpecError(problems).problems)), code=ExitCode.SPEC)
    return [line for line in told if isinstance(line, str)]


def _told(place: Place, spec: EndpointSpec) -> str | SpecError:
    try:
        return f"{spec.endpoint:<12} {spec.model or spec.image}: {told_choice(spec, served(place, spec))}"
    except SpecError as error:
        return error
