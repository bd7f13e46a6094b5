"""What is kept of objects: all that a controller reads, and each text once."""

import json

from controllers.autoscaler.view import foreign_writer, is_claimed
from controllers.kube import DEPLOYMENTS, PODS, Object
from controllers.kube.kept import kept
from controllers.kube.store import Store
from controllers.targets import targets_of
from spec import names

REPLICAS = {"f:spec": {"f:replicas": {}, "f:paused": {}}}
TEMPLATE = {"manager": "rollout", "fieldsV1": {"f:spec": {"f:template": {}}}}


def pod(name: str) -> Object:
    server = {"name": "server", "image": "iris:1", "ports": [{"name": "http", "containerPort": 8080}]}
    return {
        "kind": PODS.kind,
        "metadata": {"namespace": "team-alpha", "name": name, "uid": "u", "labels": {names.LABEL_COMPONENT: "model"}},
        "spec": {"containers": [server, {"name": "beside"}], "volumes": [{"name": "model"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def deployment(*managers: str) -> Object:
    owners = [{"manager": manager, "fieldsV1": REPLICAS} for manager in managers]
    metadata = {"namespace": "team-alpha", "name": "iris-a", "managedFields": [TEMPLATE, *owners]}
    return {"kind": DEPLOYMENTS.kind, "metadata": metadata, "spec": {"replicas": 2, "template": {"spec": {"x": [1]}}}}


def test_of_a_pod_its_status_its_labels_and_its_ports_are_kept() -> None:
    found, whole = kept(pod("a")), pod("a")
    assert (found["metadata"], found["status"]) == (whole["metadata"], whole["status"])
    assert found["spec"] == {
        "containers": [{"name": "server", "ports": whole["spec"]["containers"][0]["ports"]}, {"name": "beside"}]
    }
    assert targets_of([found]) == targets_of([whole])
    assert targets_of([found])


def test_of_any_other_kind_all_is_kept_but_who_owns_which_field() -> None:
    assert kept(deployment()) == {**deployment(), "metadata": {"namespace": "team-alpha", "name": "iris-a"}}


def test_who_sets_replicas_is_kept() -> None:
    found = kept(deployment(names.MANAGER_AUTOSCALER, "kubectl"))
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == [names.MANAGER_AUTOSCALER, "kubectl"]
    assert is_claimed(found)
    assert foreign_writer(found) == "kubectl"
    assert not is_claimed(kept(deployment("kubectl")))


def test_what_is_given_is_left_as_it_is_and_keeping_twice_changes_nothing() -> None:
    given = deployment("kubectl")
    once = kept(given)
    assert given == deployment("kubectl")
    assert kept(once) == once


def test_two_objects_of_the_same_words_hold_each_word_once() -> None:
    one, other = (kept(json.loads(json.dumps(pod(name)))) for name in ("a", "b"))
    assert one["status"]["podIP"] is other["status"]["podIP"]
    assert {id(key) for key in one["status"]} == {id(key) for key in other["status"]}


def test_a_store_keeps_no_more_of_an_answer_to_a_write() -> None:
    store = Store(PODS)
    store.put(pod("a"))
    assert store.objects["team-alpha", "a"] == kept(pod("a"))
