"""The order in which stacks are applied, and what an announcement changes."""

import io
from collections.abc import Callable, Collection
from typing import Any, cast

import pytest

from stacks.cli.applying import apply, gate, in_order
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.pulumi_output import Preview, count_operations


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


NAMESPACE = "urn:pulumi:local.platform::knobless::knobless:serving:Team$kubernetes:core/v1:Namespace::team-beta"
QUOTA = "urn:pulumi:local.platform::knobless::knobless:serving:Team$kubernetes:core/v1:ResourceQuota::team-beta/quota"


def of_platform(*steps: tuple[str, str]) -> StackPlan:
    told = tuple({"op": operation, "urn": urn} for operation, urn in steps)
    return StackPlan("local.platform", Preview("local.platform", told, count_operations(told)))


class Noting:
    """Stands for pulumi: notes what it is asked to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def init(self, stack: str) -> None:
        self.asked.append(("init", stack))

    def up(
        self, stack: str, say: Callable[[str], None], abandon: Callable[[], None], announced: Collection[str] = ()
    ) -> None:
        self.asked.append(("up", stack, *announced))


def applied(*plans: StackPlan, announced: Collection[str] = ()) -> list[tuple[str, ...]]:
    pulumi = Noting()
    console = Console(err=io.StringIO(), out=io.StringIO())
    apply(cast(Pulumi, pulumi), plans, console, lambda _: lambda: None, gate(plans, announced))
    return pulumi.asked


TEAM_GOES = of_platform(("delete", QUOTA), ("delete", NAMESPACE))


def test_the_removal_of_a_team_is_refused_until_it_is_announced() -> None:
    with pytest.raises(CliError) as caught:
        gate((TEAM_GOES,))
    assert caught.value.code is ExitCode.POLICY
    assert "refused: delete of Namespace team-beta: everything in the namespace would go with it" in str(caught.value)
    assert "--announce NAME" in caught.value.hint


def test_an_announced_removal_takes_off_the_protection_of_that_alone() -> None:
    assert applied(TEAM_GOES, announced=["team-beta"]) == [("up", "local.platform", NAMESPACE)]


def test_an_announced_replace_is_looked_at_again_since_it_may_take_the_new_object_along() -> None:
    replaced = of_platform(("create-replacement", NAMESPACE), ("replace", NAMESPACE), ("delete-replaced", NAMESPACE))
    assert applied(replaced, announced=["team-beta"]) == [("up", "local.platform", NAMESPACE), ("up", "local.platform")]


def test_a_new_stack_is_made_when_it_is_applied() -> None:
    new = StackPlan("local.alpha.a", plan("local.alpha.a", "create").preview, is_new=True)
    assert applied(new, plan("local.beta.b", "update"))[:1] == [("init", "local.alpha.a")]
