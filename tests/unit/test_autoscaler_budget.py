"""A namespace's quota as a budget of replicas: what is there stays, what has no room is not asked for."""

from typing import Any

import pytest

from controllers.autoscaler.budget import amount, budget_of
from controllers.kube import Object


def deployment(replicas: int = 2, cpu: str = "500m", **more: Any) -> Object:
    resources = {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}} | more
    pod = {"containers": [{"resources": resources}], "initContainers": [{"resources": {"limits": {"memory": "100Mi"}}}]}
    return {"spec": {"template": {"spec": pod}}, "status": {"replicas": replicas}}


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> Object:
    return {"spec": spec, "status": {"hard": hard, "used": used}}


@pytest.mark.parametrize(
    ("quotas", "budget"),
    [
        ([], None),
        ([quota({"services": "1"}, {"services": "1"})], None),
        ([quota({"pods": "10"}, {"pods": "4"})], 8),
        ([quota({"count/pods": "10"}, {"count/pods": "4"})], 8),
        ([quota({"requests.cpu": "4"}, {"requests.cpu": "1500m"})], 7),
        ([quota({"cpu": "4"}, {"cpu": "1500m"})], 7),
        ([quota({"limits.memory": "8Gi"}, {"limits.memory": "4.5Gi"})], 5),
        ([quota({"requests.memory": "8Gi"}, {"requests.memory": "7Gi"})], 3),
        ([quota({"pods": "10"}, {"pods": "4"}), quota({"requests.cpu": "2"}, {"requests.cpu": "2"})], 2),
        ([quota({"pods": "2"}, {"pods": "5"})], 2),
        ([quota({"pods": "10"}, {})], 12),
        ([quota({"pods": "many"}, {"pods": "4"})], None),
        ([quota({"pods": "0"}, {"pods": "0"}, scopes=["BestEffort"])], None),
        ([quota({"requests.nvidia.com/gpu": "0"}, {})], None),
    ],
)
@pytest.mark.case("autoscaler-C9")
def test_the_budget_is_what_there_is_and_what_the_quotas_leave(quotas: list[Object], budget: int | None) -> None:
    assert budget_of(quotas, deployment(), 1) == budget


def test_the_budget_takes_nothing_away_that_was_asked_for_whatever_the_books_say() -> None:
    assert budget_of([quota({"pods": "10"}, {"pods": "10"})], deployment(replicas=0), 7) == 7


def test_gpus_count_as_limited() -> None:
    one = deployment(limits={"nvidia.com/gpu": "2"})
    assert budget_of([quota({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "4"})], one, 1) == 4


def test_a_larger_init_container_is_what_a_pod_counts_for() -> None:
    pod = deployment()
    pod["spec"]["template"]["spec"]["initContainers"][0]["resources"]["limits"]["memory"] = "2Gi"
    assert budget_of([quota({"limits.memory": "8Gi"}, {"limits.memory": "4Gi"})], pod, 1) == 4


def test_a_replica_over_several_nodes_counts_with_all_of_its_pods() -> None:
    """3 x 500m of the 4 CPUs that are left: two replicas more than the two there are."""
    pod = deployment()["spec"]["template"]
    spec = {"leaderWorkerTemplate": {"size": 3, "workerTemplate": pod}}
    groups = {"kind": "LeaderWorkerSet", "spec": spec, "status": {"replicas": 2}}
    assert budget_of([quota({"requests.cpu": "7"}, {"requests.cpu": "3"})], groups, 1) == 4
    assert budget_of([quota({"pods": "14"}, {"pods": "6"})], groups, 1) == 4


def test_a_sidecar_counts_beside_the_containers() -> None:
    """Kubernetes' own sum: 2 Gi beside the container's 1 Gi; 4 Gi left are one replica more."""
    pod = deployment()
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {"memory": "2Gi"}}}
    pod["spec"]["template"]["spec"]["initContainers"].insert(0, sidecar)
    assert budget_of([quota({"limits.memory": "8Gi"}, {"limits.memory": "4Gi"})], pod, 1) == 3


@pytest.mark.parametrize(
    ("text", "value"), [("500m", 0.5), ("2", 2), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("x", None)]
)
def test_amounts_are_read_as_the_api_writes_them(text: str, value: float | None) -> None:
    found = amount(text)
    assert found == value if value is None else float(found or 0) == value
