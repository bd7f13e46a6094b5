"""The plan's text and counts, from previews as Pulumi writes them."""

import json
from typing import Any, cast

import pytest

from stacks.cli import planning, pulumi_output
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.pulumi_output import Preview, count_operations, diagnostics

ENDPOINT = (
    "urn:pulumi:local.alpha.wine::knobless::knobless:serving:ModelEndpoint"
    "$kubernetes:knobless.dev/v1alpha1:ModelEndpoint::wine"
)


def step(operation: str, urn: str = ENDPOINT, paths: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"op": operation, "urn": urn, "detailedDiff": {path: {"kind": "update"} for path in paths}}


def plan(*steps: dict[str, Any]) -> planning.StackPlan:
    return planning.StackPlan("local.alpha.wine", Preview("local.alpha.wine", steps, count_operations(steps)))


def test_a_preview_of_unchanged_objects_has_no_changes() -> None:
    assert not plan(step("same"), step("read")).changes
    assert planning.describe(plan(step("same"))) == ["local.alpha.wine: no change"]


def test_a_replace_counts_once_though_pulumi_lists_its_parts() -> None:
    assert count_operations((step("create-replacement"), step("replace"), step("delete-replaced"))) == {"replace": 1}


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([step("create")], "new endpoint"),
        ([step("update", paths=("spec.podTemplate.spec.containers[0].image",))], "new revision"),
        ([step("update", paths=("spec.nodes",))], "new revision"),
        ([step("update", paths=("spec.runtime.initialLimit",))], "no pod of a model restarts"),
        ([step("update", paths=("spec.concurrency.max",))], "no pod of a model restarts"),
        ([step("update", paths=("spec.access.teams",))], "no pod of a model restarts"),
    ],
)
def test_the_plan_says_whether_pods_restart(steps: list[dict[str, Any]], says: str) -> None:
    assert says in planning.describe(plan(*steps))[0]


def test_each_changed_object_is_named_with_what_changes() -> None:
    lines = planning.describe(plan(step("update", paths=("spec.concurrency.max", "spec.routing.queueMax"))))
    assert lines[1].strip() == "update ModelEndpoint wine: spec.concurrency.max, spec.routing.queueMax"


def test_a_removed_file_is_announced_as_the_end_of_its_url() -> None:
    assert "404" in planning.describe(planning.StackPlan("local.alpha.old", None))[0]


@pytest.mark.parametrize("kind", ["pulumi:pulumi:Stack", "pulumi:providers:kubernetes"])
def test_pulumis_own_resources_are_not_listed(kind: str) -> None:
    own = step("create", f"urn:pulumi:s::knobless::{kind}::cluster")
    assert len(planning.describe(plan(own, step("create")))) == len(planning.describe(plan(step("create")))) == 2


def test_orphans_are_endpoint_stacks_of_this_environment_without_a_file() -> None:
    known = ["local.platform", "local.alpha.wine", "local.alpha.old", "staging.alpha.old", "somebody-elses"]
    assert planning.orphans(known, ["local.platform", "local.alpha.wine"], "local") == ["local.alpha.old"]


NAMESPACE = "urn:pulumi:local.platform::knobless::knobless:serving:Team$kubernetes:core/v1:Namespace::team-{team}"


class Known:
    """Stands for pulumi: the stacks that its backend knows, and a plan that takes a team's namespace away."""

    def stacks(self) -> list[str]:
        return ["local.platform", "local.leaving.last", "local.alpha.old", "local.alpha.wine"]

    def preview(self, stack: str, *, is_new: bool) -> Preview:
        assert not is_new
        urns = [NAMESPACE.format(team="leaving")] if stack == "local.platform" else []
        steps = tuple(step("delete", urn) for urn in urns)
        return Preview(stack, steps, count_operations(steps))


@pytest.mark.parametrize(
    ("removals", "gone"), [(True, ["local.alpha.old", "local.leaving.last"]), (False, ["local.leaving.last"])]
)
def test_endpoints_of_a_team_that_goes_go_first_even_where_only_others_were_named(
    removals: bool, gone: list[str]
) -> None:
    declared = ["local.platform", "local.alpha.wine"]
    plans = planning.make(cast(Pulumi, Known()), declared, "local", removals=removals, report=lambda _: None)
    assert [plan.stack for plan in plans if plan.removed] == gone


def test_diagnostics_keep_what_is_wrong_and_drop_the_progress() -> None:
    output = "\n".join(
        [
            "Updating (local.platform):",
            " +  pulumi:pulumi:Stack creating",
            "Diagnostics:",
            "  x (y):",
            "    error: boom",
            "",
            "Resources:",
            "    1 unchanged",
        ]
    )
    assert diagnostics(output) == "Diagnostics:\n  x (y):\n    error: boom"


def test_output_without_diagnostics_is_cut_to_its_end() -> None:
    lines = [f"line {i}" for i in range(200)]
    assert diagnostics("\n".join(lines)).splitlines() == lines[-pulumi_output.TAIL_LINES :]


def test_a_failed_json_preview_tells_its_errors_and_not_its_steps() -> None:
    entries = [
        {"message": "error: the image x is not in the registry\n"},
        {"message": "error: an unhandled error occurred: y"},
    ]
    output = json.dumps({"steps": [{"op": "create"}], "diagnostics": entries}) + "\nwarning: z\n"
    assert diagnostics(output) == "the image x is not in the registry\nwarning: z"


def test_the_plan_knows_the_digest_that_the_endpoint_object_will_carry() -> None:
    inputs = {"metadata": {"annotations": {"knobless.dev/spec-digest": "d" * 64}}}
    before = {"metadata": {"annotations": {"knobless.dev/spec-digest": "c" * 64}}}
    refreshed = {**step("refresh"), "newState": {"inputs": before}}
    assert plan(refreshed, {**step("update"), "newState": {"inputs": inputs}}).spec_digest == "d" * 64
    assert plan(refreshed).spec_digest is None
    assert plan(step("update", urn="urn:pulumi:x::knobless::knobless:serving:ModelEndpoint::wine")).spec_digest is None
    assert planning.StackPlan("local.alpha.old", None).spec_digest is None


def test_a_policys_verdict_is_told_and_the_rest_of_the_output_is_not() -> None:
    output = "\n".join(
        [
            "@ previewing update....",
            " ~  kubernetes:x update",
            "Policies:",
            "    of-somebody@v0.1.0",
            "        - [mandatory]  recalled",
            "          version 2 was recalled",
            "",
            "Diagnostics:",
            "    error: preview failed",
            "",
            "Outputs:",
            "  ~ model: x",
        ]
    )
    told = diagnostics(output)
    assert "version 2 was recalled" in told and "previewing" not in told and "Outputs" not in told
