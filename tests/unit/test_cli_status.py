"""What `status` says of an endpoint object, whatever part of its status exists."""

from typing import Any

from stacks.cli import status


def endpoint(**parts: Any) -> dict[str, Any]:
    spec = {"team": "alpha", "model": {"uri": "models:/wine/1"}, "concurrency": {"min": 1, "max": 64}}
    return {"metadata": {"name": "wine", "generation": 2}, "spec": spec, "status": parts}


def ready(value: str, reason: str = "Serving", generation: int = 2) -> dict[str, Any]:
    return {"type": "Ready", "status": value, "reason": reason, "message": "m", "observedGeneration": generation}


def test_an_object_that_no_controller_has_seen_is_pending_and_shows_no_numbers() -> None:
    row = status.row(status.read(endpoint()))
    assert row[2:5] == ["-", "-/-", "-"]
    assert row[6] == "Pending"


def test_a_condition_about_an_older_generation_is_not_ready() -> None:
    assert not status.read(endpoint(conditions=[ready("True", generation=1)])).ready
    assert status.read(endpoint(conditions=[ready("True", generation=2)])).ready


def test_a_zero_is_shown_as_zero_and_an_unknown_as_a_dash() -> None:
    shown = status.row(status.read(endpoint(autoscaler={"readyReplicas": 0, "desiredReplicas": None})))
    assert shown[3] == "0/-"


def test_the_reason_of_an_endpoint_that_is_not_ready_stands_below_the_table() -> None:
    text = status.render([status.read(endpoint(conditions=[ready("False", "ImagePullFailed")]))])
    assert text.splitlines()[-1] == "wine: ImagePullFailed: m"


def declared(phase: str, name: str = "wine-1", seen: int = 2) -> dict[str, Any]:
    revision = {"name": name, "phase": phase, "reason": "ModelLoadFailed", "message": "m"}
    return endpoint(observedGeneration=seen, declaredRevision="wine-1", revisions=[revision])


def test_waiting_ends_early_only_where_the_revision_declared_now_has_failed() -> None:
    assert status.failure(declared("Failed")) == "ModelLoadFailed: m"
    assert status.failure(declared("Starting")) is None
    assert status.failure(declared("Failed", seen=1)) is None
    assert status.failure(declared("Failed", name="wine-0")) is None
    assert status.failure(endpoint()) is None


def test_decisions_are_listed_with_their_reasons() -> None:
    decision = {"at": "t", "revision": "wine-1", "from": 1, "to": 3, "reason": "Demand", "detail": "12 over 4"}
    text = status.render_one(status.read(endpoint(autoscaler={"decisions": [decision]})))
    assert "1 -> 3" in text and "12 over 4" in text


def test_a_replica_over_several_nodes_is_told_so_where_one_endpoint_is_shown() -> None:
    wide = endpoint(autoscaler={"readyReplicas": 1, "desiredReplicas": 2})
    assert "nodes" not in status.render_one(status.read(wide))
    wide["spec"]["nodes"] = 2
    text = status.render_one(status.read(wide))
    assert "1/2" in text, "groups, not pods"
    assert "replicas: each over 2 nodes, the pod that leads takes its requests" in text


def test_json_holds_null_for_what_is_unknown() -> None:
    assert status.as_json([status.read(endpoint())])[0]["ready_replicas"] is None
