"""The order in which stacks are applied."""

from typing import Any

from stacks.cli.applying import in_order
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Preview, count_operations


def plan(stack: str, *operations: str) -> StackPlan:
    steps: tuple[dict[str, Any], ...] = tuple({"op": operation, "urn": "urn:x"} for operation in operations)
    return StackPlan(stack, Preview(stack, steps, count_operations(steps)))


def order(*plans: StackPlan) -> list[list[str]]:
    return [[each.stack for each in group] for group in in_order(plans) if group]


GONE = StackPlan("local.alpha.old", None)
GONE_PLATFORM = StackPlan("local.platform", None)


def test_the_platform_comes_first_then_endpoints_side_by_side_then_removals() -> None:
    plans = (plan("local.platform", "update"), plan("local.alpha.a", "create"), plan("local.beta.b", "update"), GONE)
    assert order(*plans) == [["local.platform"], ["local.alpha.a", "local.beta.b"], ["local.alpha.old"]]


def test_what_does_not_change_is_not_applied() -> None:
    assert order(plan("local.platform", "same", "refresh"), plan("local.alpha.a", "update")) == [["local.alpha.a"]]


def test_endpoints_are_drained_before_the_platform_takes_their_namespace_away() -> None:
    plans = (plan("local.platform", "delete"), plan("local.beta.b", "update"), GONE)
    assert order(*plans) == [["local.alpha.old"], ["local.platform"], ["local.beta.b"]]


def test_a_platform_that_is_removed_goes_after_its_endpoints() -> None:
    assert order(GONE_PLATFORM, GONE) == [["local.alpha.old"], ["local.platform"]]
