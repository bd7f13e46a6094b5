"""Gate, then apply: the plan's steps judged by the rules on operations, then each stack in order."""

from __future__ import annotations

from collections.abc import Callable

from policies import operations
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Pulumi

Watch = Callable[[str], Callable[[], str | None]]


def gate(plans: tuple[StackPlan, ...], console: Console) -> None:
    """Raises CliError with every step of every stack that the rules refuse; nothing is applied then."""
    refused = [
        f"{plan.stack}: {verdict}"
        for plan in plans
        if plan.preview is not None
        for verdict in operations.refused(operations.judge(plan.preview.steps))
    ]
    if refused:
        lines = "\n".join(f"- {line}" for line in refused)
        raise CliError(f"the rules on operations refuse this plan; nothing was applied:\n{lines}", code=ExitCode.POLICY)


def apply(pulumi: Pulumi, plans: tuple[StackPlan, ...], console: Console, watch: Watch) -> None:
    """Apply each stack that changes. One endpoint's failure does not keep the others from being applied."""
    failures: list[CliError] = []
    for plan in plans:
        if not plan.changes:
            continue
        verb = "Removing" if plan.removed else "Applying"
        try:
            with console.step(f"{verb} {plan.stack}"):
                _apply_one(pulumi, plan, console, watch)
        except CliError as error:
            if plan.stack.endswith(".platform"):
                raise
            console.note(f"    failed: {error.message}")
            failures.append(error)
    if failures:
        first = failures[0]
        message = "\n".join(error.message for error in failures)
        raise CliError(message, hint=first.hint, code=first.code)


def _apply_one(pulumi: Pulumi, plan: StackPlan, console: Console, watch: Watch) -> None:
    if plan.removed:
        pulumi.destroy(plan.stack, console.progress)
    else:
        pulumi.up(plan.stack, console.progress, watch(plan.stack))
