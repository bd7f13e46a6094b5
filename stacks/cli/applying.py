"""Gate, then apply: the plan's steps judged by the rules on operations, the platform first, endpoints side by side.

Endpoint stacks share nothing, so one that waits for its pods does not keep the others waiting, and one that fails
does not keep the others from being applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from policies import operations
from stacks.cli.console import Console, duration
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Pulumi

Watch = Callable[[StackPlan], Callable[[], str | None]]
AT_ONCE = 4
INTERRUPTED = "interrupted"


def gate(plans: tuple[StackPlan, ...], announced: Collection[str] = ()) -> None:
    """Raises CliError with every step of every stack that the rules refuse; nothing is applied then."""
    refused = [
        f"{plan.stack}: {verdict}"
        for plan in plans
        if plan.preview is not None
        for verdict in operations.refused(operations.judge(plan.preview.steps, announced))
    ]
    if refused:
        lines = "\n".join(f"- {line}" for line in refused)
        raise CliError(
            f"the rules on operations refuse this plan; nothing was applied:\n{lines}",
            hint="`knobless up --announce NAME` agrees to an operation on NAME",
            code=ExitCode.POLICY,
        )


def apply(pulumi: Pulumi, plans: tuple[StackPlan, ...], console: Console, watch: Watch) -> None:
    """Apply each stack that changes, group after group. Raises CliError with every failure of a group."""
    for group in in_order(plans):
        failures = _apply_group(pulumi, group, console, watch)
        if failures:
            message = "\n".join(error.message for error in failures)
            raise CliError(message, hint=failures[0].hint, code=failures[0].code)


def in_order(plans: tuple[StackPlan, ...]) -> list[list[StackPlan]]:
    """Groups of stacks that may be applied side by side: the platform, endpoints, removals, a removed platform.

    Where the platform takes something away (a team's namespace), the endpoints that are removed go first, so that they
    are drained and not torn down with it.
    """
    changing = [plan for plan in plans if plan.changes]
    platform = [plan for plan in changing if plan.of_platform and not plan.removed]
    endpoints = [plan for plan in changing if not plan.of_platform and not plan.removed]
    gone = [plan for plan in changing if not plan.of_platform and plan.removed]
    gone_platform = [plan for plan in changing if plan.of_platform and plan.removed]
    if any(plan.deletes for plan in platform):
        return [gone, platform, endpoints, gone_platform]
    return [platform, endpoints, gone, gone_platform]


def _apply_group(pulumi: Pulumi, plans: list[StackPlan], console: Console, watch: Watch) -> list[CliError]:
    if not plans:
        return []
    stop = Event()
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        running = [pool.submit(_apply_one, pulumi, plan, console, watch(plan), stop) for plan in plans]
        try:
            return [failure for future in running if (failure := future.result()) is not None]
        except KeyboardInterrupt:
            stop.set()  # each run interrupts its pulumi, which writes its state and unlocks
            for future in running:
                future.cancel()
            raise


def _apply_one(
    pulumi: Pulumi, plan: StackPlan, console: Console, watch: Callable[[], str | None], stop: Event
) -> CliError | None:
    verb, past = ("Removing", "removed") if plan.removed else ("Applying", "applied")
    console.note(f"==> {verb} {plan.stack}")
    started_s = console.clock()

    def say(line: str) -> None:
        if line.strip("."):
            console.progress(f"{plan.stack}: {line}")

    def abandon() -> str | None:
        return INTERRUPTED if stop.is_set() else watch()

    try:
        if plan.removed:
            pulumi.destroy(plan.stack, say, abandon)
        else:
            pulumi.up(plan.stack, say, abandon)
    except CliError as error:
        return error
    console.note(f"    {plan.stack} {past} in {duration(console.clock() - started_s)}")
    return None
