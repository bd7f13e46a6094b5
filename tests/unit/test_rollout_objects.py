"""Endpoint object -> Deployment and Service; object -> view."""

import copy

import pytest

from controllers.kube import DEPLOYMENTS, LEADER_WORKER_SETS, Object
from controllers.rollout.objects import deployment_object, service_object, workload_object
from controllers.rollout.view import endpoint_view, revision_view
from spec.revision import revision_of

TEMPLATE: Object = {
    "metadata": {"labels": {"app.kubernetes.io/component": "model"}, "annotations": {"a": "b"}},
    "spec": {"containers": [{"name": "server", "image": "r/iris@sha256:1", "ports": [{"containerPort": 8080}]}]},
}
ENDPOINT: Object = {
    "apiVersion": "knobless.dev/v1alpha1",
    "kind": "ModelEndpoint",
    "metadata": {"namespace": "team-alpha", "name": "iris", "uid": "u1", "generation": 3},
    "spec": {
        "team": "alpha",
        "model": {"uri": "models:/iris/7", "version": "7", "sha256": "0" * 64},
        "runtime": {"name": "mlflow", "initialLimit": 64},
        "podTemplate": TEMPLATE,
        "concurrency": {"min": 4, "max": 100},
        "routing": {"deadlineMs": 60000, "queueMax": 100, "queueTimeoutMs": 5000},
        "access": {"teams": ["alpha"]},
        "rollout": {"holdS": 300, "startTimeoutS": 600},
    },
}
REVISION = revision_of("iris", TEMPLATE)


@pytest.mark.case("autoscaler-E1")
@pytest.mark.case("autoscaler-E6")
def test_a_revisions_deployment_never_states_replicas() -> None:
    assert "replicas" not in deployment_object(ENDPOINT, REVISION)["spec"]


def test_a_deployment_holds_the_template_as_given_plus_the_labels() -> None:
    template = deployment_object(ENDPOINT, REVISION)["spec"]["template"]
    assert template["spec"] == TEMPLATE["spec"]
    assert template["metadata"]["annotations"] == {"a": "b"}
    assert template["metadata"]["labels"] == {
        "app.kubernetes.io/component": "model",
        "app.kubernetes.io/managed-by": "knobless",
        "knobless.dev/endpoint": "iris",
        "knobless.dev/team": "alpha",
        "knobless.dev/revision": REVISION,
    }


@pytest.mark.parametrize("render", [deployment_object, service_object])
def test_what_a_revision_has_belongs_to_the_endpoint_object(render: object) -> None:
    owner = render(ENDPOINT, REVISION)["metadata"]["ownerReferences"]  # type: ignore[operator]
    assert owner == [
        {
            "apiVersion": "knobless.dev/v1alpha1",
            "kind": "ModelEndpoint",
            "name": "iris",
            "uid": "u1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_the_selectors_of_two_revisions_never_meet() -> None:
    one, two = (deployment_object(ENDPOINT, name)["spec"]["selector"]["matchLabels"] for name in ("a", "b"))
    assert one != two
    assert set(one) == {"knobless.dev/endpoint", "knobless.dev/revision"}


def test_the_service_is_headless_and_selects_the_revisions_pods() -> None:
    service = service_object(ENDPOINT, REVISION)
    labels = deployment_object(ENDPOINT, REVISION)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()


WIDE: Object = copy.deepcopy(ENDPOINT) | {"spec": ENDPOINT["spec"] | {"nodes": 3}}
GROUPS = revision_of("iris", TEMPLATE, 3)


def test_a_replica_over_several_nodes_is_a_group_of_pods_of_one_template() -> None:
    made, one = workload_object(WIDE, GROUPS), deployment_object(ENDPOINT, GROUPS)
    assert (made["apiVersion"], made["kind"]) == ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")
    assert made["metadata"] == one["metadata"]
    assert made["spec"] == {
        "leaderWorkerTemplate": {
            "size": 3,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": one["spec"]["template"],
        },
        "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
        "startupPolicy": "LeaderCreated",
    }


def test_a_replica_on_one_node_is_a_deployment_s_said_or_not() -> None:
    said = ENDPOINT | {"spec": ENDPOINT["spec"] | {"nodes": 1}}
    assert (
        workload_object(said, REVISION) == workload_object(ENDPOINT, REVISION) == deployment_object(ENDPOINT, REVISION)
    )
    assert endpoint_view(said).declared == REVISION


def test_of_groups_the_service_selects_those_that_lead() -> None:
    alone = service_object(ENDPOINT, REVISION)["spec"]["selector"]
    led = service_object(WIDE, REVISION, LEADER_WORKER_SETS)["spec"]["selector"]
    assert led == alone | {"leaderworkerset.sigs.k8s.io/worker-index": "0"}


def test_a_service_goes_by_what_runs_its_revision_not_by_what_is_declared_now() -> None:
    """The endpoint spanned no nodes before: its old revision's pods lead nobody, and go on being selected."""
    view, live = endpoint_view(WIDE), stored(deployment_object(ENDPOINT, REVISION))
    before = revision_view(WIDE, view, live, service_object(ENDPOINT, REVISION), [])
    assert (before.kind, before.service_in_place) == (DEPLOYMENTS, True)
    groups = stored(workload_object(WIDE, GROUPS))
    now = revision_view(WIDE, view, groups, service_object(WIDE, GROUPS, LEADER_WORKER_SETS), [])
    assert (now.kind, now.workload_in_place, now.service_in_place) == (LEADER_WORKER_SETS, True, True)
    assert not revision_view(WIDE, view, groups, service_object(WIDE, GROUPS), []).service_in_place


def test_a_cluster_without_the_kind_is_seen_where_the_kind_is_needed() -> None:
    assert endpoint_view(WIDE, [LEADER_WORKER_SETS]).kind_missing
    assert not endpoint_view(WIDE).kind_missing
    assert not endpoint_view(ENDPOINT, [LEADER_WORKER_SETS]).kind_missing


def test_rendering_leaves_the_endpoint_object_alone() -> None:
    before = copy.deepcopy(ENDPOINT)
    deployment_object(ENDPOINT, REVISION)
    service_object(ENDPOINT, REVISION)
    assert before == ENDPOINT


def test_the_declared_revision_is_named_by_the_template_alone() -> None:
    other = copy.deepcopy(ENDPOINT)
    other["spec"] |= {"concurrency": {"min": 1, "max": 9}, "access": {"teams": ["alpha", "beta"]}}
    assert endpoint_view(other).declared == endpoint_view(ENDPOINT).declared == REVISION


def test_a_view_reads_times_in_seconds() -> None:
    view = endpoint_view(ENDPOINT)
    assert (view.drain_s, view.hold_s, view.start_timeout_s) == (65.0, 300.0, 600.0)


def stored(obj: Object) -> Object:
    """As the API server gives it back: with defaults, a uid and the autoscaler's replicas."""
    held = copy.deepcopy(obj)
    held["metadata"] |= {"uid": "d1", "generation": 2}
    held["spec"]["replicas"] = 5
    return held


def test_a_deployment_is_in_place_though_the_server_added_defaults() -> None:
    live = stored(deployment_object(ENDPOINT, REVISION))
    live["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    view = revision_view(ENDPOINT, endpoint_view(ENDPOINT), live, service_object(ENDPOINT, REVISION), [])
    assert (view.workload_in_place, view.service_in_place, view.replicas) == (True, True, 5)


def test_a_hand_on_the_template_is_seen() -> None:
    live = stored(deployment_object(ENDPOINT, REVISION))
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    assert not revision_view(ENDPOINT, endpoint_view(ENDPOINT), live, None, []).workload_in_place


def test_a_missing_service_is_seen() -> None:
    live = stored(deployment_object(ENDPOINT, REVISION))
    assert not revision_view(ENDPOINT, endpoint_view(ENDPOINT), live, None, []).service_in_place
