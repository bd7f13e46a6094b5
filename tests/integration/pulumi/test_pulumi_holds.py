"""A person's hold on replicas beside Pulumi: it is nobody's difference, and nobody takes it away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from controllers.autoscaler.control import Control, Mode, control_text
from spec import names

pytestmark = pytest.mark.process
NAMESPACE = "team-alpha"
PATH = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}/held"


@pytest.fixture(scope="module")
def held(engine: Any, platform: str, cluster: Any) -> Iterator[str]:
    """The stack of an endpoint that a person has set to five replicas for a while."""
    stack = engine.made(engine.endpoint("alpha", "held"))
    ran = engine.up(stack)
    assert ran.code == 0, ran.output
    hold(cluster, {names.ANNOTATION_CONTROL: control_text(Control(Mode.SCALE, 5, 4e9))})
    yield stack


def hold(cluster: Any, annotations: dict[str, str]) -> None:
    """As the command line applies it."""
    uid = cluster.endpoint(NAMESPACE, "held")["metadata"]["uid"]
    metadata = {"name": "held", "uid": uid, "annotations": annotations}
    body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata}
    cluster.apply(PATH, body, manager=names.MANAGER_CONTROL).raise_for_status()


def annotations(cluster: Any) -> dict[str, str]:
    found: dict[str, str] = cluster.endpoint(NAMESPACE, "held")["metadata"]["annotations"]
    return found


@pytest.mark.case("autoscaler-E2")
def test_a_hold_is_no_change_to_a_plan_nor_to_a_run_with_or_without_a_refresh(
    engine: Any, held: str, cluster: Any
) -> None:
    for arguments in ((), ("--refresh",)):
        ran = engine.up(held, "--expect-no-changes", *arguments)
        assert ran.code == 0, ran.output
    assert names.ANNOTATION_CONTROL in annotations(cluster)


def test_a_change_in_git_leaves_a_hold_and_the_state_never_learns_of_it(engine: Any, held: str, cluster: Any) -> None:
    engine.endpoint("alpha", "held", concurrency="{min: 1, max: 9}")
    ran = engine.up(held)
    assert ran.code == 0, ran.output
    assert names.ANNOTATION_CONTROL in annotations(cluster)
    state = json.loads(engine.run("stack", "export", "-s", held).output)["deployment"]["resources"]
    assert names.ANNOTATION_CONTROL not in json.dumps([each["inputs"] for each in state if "inputs" in each])
    hold(cluster, {})
    assert names.ANNOTATION_CONTROL not in annotations(cluster)
    assert names.ANNOTATION_SPEC_DIGEST in annotations(cluster)
    ran = engine.up(held, "--expect-no-changes")
    assert ran.code == 0, ran.output
