"""Gate, then apply: the plan's steps judged by the rules on operations, the platform first, endpoints side by side.

Endpoint stacks share nothing, so one that waits for its pods does not keep the others waiting, and one that fails
does not keep the others from being applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from policies import operations
from policies.operations import Verdict
from stacks.cli.console import Console, duration
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Pulumi

Watch = Callable[[StackPlan], Callable[[], str | None]]
AT_ONCE = 4
INTERRUPTED = "interrupted"


Agreed = Mapping[str, Sequence[Verdict]]


def gate(plans: tuple[StackPlan, ...], announced: Collection[str] = ()) -> Agreed:
    """What a person has announced, by stack. CliError with every step that the rules refuse: nothing is applied."""
    judged = {plan.stack: operations.judge(plan.preview.steps, announced) for plan in plans if plan.preview is not None}
    refused = [(stack, verdict) for stack, verdicts in judged.items() for verdict in operations.refused(verdicts)]
    if refused:
        lines = "\n".join(f"- {stack}: {verdict}" for stack, verdict in refused)
        raise CliError(
            f"the rules on operations refuse this plan; nothing was applied:\n{lines}",
            hint="`knobless up --announce NAME` agrees to an operation on NAME",
            code=ExitCode.POLICY,
        )
    return judged


def apply(
    pulumi: Pulumi, plans: tuple[StackPlan, ...], console: Console, watch: Watch, agreed: Agreed | None = None
) -> None:
    """Apply each stack that changes, group after group. Raises CliError with every failure of a group."""
    for group in in_order(plans):
        failures = _apply_group(pulumi, group, console, watch, agreed or {})
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


def _apply_group(
    pulumi: Pulumi, plans: list[StackPlan], console: Console, watch: Watch, agreed: Agreed
) -> list[CliError]:
    if not plans:
        return []
    stop = Event()
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        running = [
            pool.submit(_apply_one, pulumi, plan, console, watch(plan), stop, agreed.get(plan.stack, ()))
            for plan in plans
        ]
        try:
            return [failure for future in running if (failure := future.result()) is not None]
        except KeyboardInterrupt:
            stop.set()  # each run interrupts its pulumi, which writes its state and unlocks
            for future in running:
                future.cancel()
            raise


def _apply_one(
    pulumi: Pulumi,
    plan: StackPlan,
    console: Console,
    watch: Callable[[], str | None],
    stop: Event,
    agreed: Sequence[Verdict],
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
            _up(pulumi, plan, say, abandon, agreed)
    except CliError as error:
        return error
    console.note(f"    {plan.stack} {past} in {duration(console.clock() - started_s)}")
    return None


def _up(
    pulumi: Pulumi,
    plan: StackPlan,
    say: Callable[[str], None],
    abandon: Callable[[], str | None],
    agreed: Sequence[Verdict],
) -> None:
    if plan.is_new:
        pulumi.init(plan.stack)
    pulumi.up(plan.stack, say, abandon, [verdict.urn for verdict in agreed])
    if any(verdict.operation == operations.REPLACE for verdict in agreed):
        # Where the engine asks for a replace, the new object is made before the old one is deleted, and under one name
        # that deletes the new one. A second run finds it missing and makes it.
        pulumi.up(plan.stack, say, abandon)
