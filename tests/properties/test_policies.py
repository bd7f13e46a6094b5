"""Invariants of the rules: they judge any object, and nothing unknown or odd makes them look away."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.declared import UNKNOWN, Declared
from policies.operations import judge, refused
from policies.rules import check_stack

KINDS = ["Pod", "Deployment", "Job", "CronJob", "ModelEndpoint", "Service", "ClusterRole", "RoleBinding", "Namespace"]
KINDS += ["LeaderWorkerSet"]
KEYS = st.sampled_from(
    [
        *("metadata", "name", "namespace", "spec", "template", "podTemplate", "containers", "initContainers", "env"),
        *("securityContext", "resources", "limits", "lifecycle", "preStop", "sleep", "seconds", "volumes", "hostPath"),
        *("rules", "verbs", "roleRef", "subjects", "type", "replicas", "concurrency", "min", "max", "routing", "items"),
        *("leaderWorkerTemplate", "leaderTemplate", "workerTemplate"),
    ]
)
LEAVES = st.none() | st.booleans() | st.floats() | st.text(max_size=6) | st.just(UNKNOWN)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
KIND = st.sampled_from(KINDS) | st.just(UNKNOWN) | VALUES
OPERATIONS = st.sampled_from(["create", "update", "same", "delete", "replace", "create-replacement", "odd"]) | LEAVES
WITHOUT_DEADLINE = settings(deadline=None)  # a busy machine is slow, not wrong


@WITHOUT_DEADLINE
@given(st.lists(st.tuples(KIND, st.dictionaries(KEYS, VALUES, max_size=4)), max_size=3))
def test_any_objects_get_verdicts(objects: list[tuple[Any, dict[str, Any]]]) -> None:
    resources = [Declared("kubernetes:x/v1:X", "x", fields | {"kind": kind}) for kind, fields in objects]
    assert all(violation.field and violation.message for violation in check_stack(resources))


@WITHOUT_DEADLINE
@given(st.sampled_from(["Pod", "Deployment", "Job", "LeaderWorkerSet", "ModelEndpoint"]), VALUES)
def test_a_pod_of_which_nothing_right_is_known_never_passes(kind: str, spec: Any) -> None:
    resource = Declared(f"kubernetes:x/v1:{kind}", "x", {"kind": kind, "metadata": {"name": "x"}, "spec": spec})
    assert check_stack([resource])


@WITHOUT_DEADLINE
@given(st.lists(st.dictionaries(st.sampled_from(["op", "urn", "oldState", "newState"]), OPERATIONS | VALUES)))
def test_any_steps_get_verdicts(steps: list[dict[str, Any]]) -> None:
    assert len(judge(steps)) <= len(steps)


@WITHOUT_DEADLINE
@given(OPERATIONS, st.sets(st.text(max_size=5), max_size=3))
def test_nothing_but_what_keeps_an_endpoint_passes_unannounced(operation: Any, announced: set[str]) -> None:
    urn = "urn:pulumi:t::knobless::kubernetes:knobless.dev/v1alpha1:ModelEndpoint::team-alpha/iris"
    passed = not refused(judge([{"op": operation, "urn": urn}], announced))
    assert passed == (operation in ("create", "update", "same"))
