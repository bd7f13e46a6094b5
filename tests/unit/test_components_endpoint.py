"""What of an endpoint file reaches its pods, and how long everybody waits for whom."""

from __future__ import annotations

from typing import Any

import pytest

from components.manifests import endpoint
from components.manifests.served import ServedModel, wish_of
from components.manifests.team import quota
from components.manifests.traffic import to_url
from runtimes.selection import select
from runtimes.selection_card import Card
from spec.endpoint import EndpointSpec, load_endpoint
from spec.platform import Quota, Rollout
from spec.quantities import Cpu, Memory, parse_cpu, parse_memory
from spec.revision import revision_of, spec_digest

FILE = "stacks/local/endpoints/alpha/wine.yaml"
TEXT = """
endpoint: wine
model: models:/wine/1
concurrency: {min: 1, max: 64}
"""
IMAGE = "registry:5000/knobless/model@sha256:" + "0" * 64
CARD = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)
REGISTRY = "http://198.18.0.1:5500"


def spec_of(added: str = "") -> EndpointSpec:
    return load_endpoint(TEXT + added, FILE, "alpha")


def served(spec: EndpointSpec, version: str = "1", sha256: str = "ab" * 32, image: str = IMAGE) -> ServedModel:
    return ServedModel(f"models:/wine/{version}", version, sha256, image, image, select(CARD, wish_of(spec)))


def rendered(spec: EndpointSpec, model: ServedModel | None = None, rollout: Rollout | None = None) -> dict[str, Any]:
    return endpoint.endpoint_object(spec, model or served(spec), REGISTRY, rollout or Rollout())


def revision(obj: dict[str, Any]) -> str:
    return revision_of(obj["metadata"]["name"], obj["spec"]["podTemplate"])


FIRST = rendered(spec_of())


@pytest.mark.case("pulumi-E2")
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(rendered(load_endpoint(TEXT.replace("64", "65"), FILE, "alpha")), id="concurrency"),
        pytest.param(rendered(spec_of("access: {teams: [beta]}")), id="access"),
        pytest.param(rendered(spec_of("queue: {max: 9, timeout_s: 1}")), id="queue"),
        pytest.param(rendered(spec_of("latency: {p95_ms: 250}")), id="latency"),
        pytest.param(rendered(spec_of("affinity: prefix")), id="affinity"),
        pytest.param(rendered(spec_of(), rollout=Rollout(hold_s=1)), id="hold"),
        pytest.param(rendered(spec_of(), rollout=Rollout(start_timeout_s=30)), id="start-timeout"),
    ],
)
def test_what_is_not_the_model_makes_no_new_revision(changed: dict[str, Any]) -> None:
    assert changed["spec"] != FIRST["spec"]
    assert revision(changed) == revision(FIRST)


@pytest.mark.case("pulumi-E2")
@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(rendered(spec_of('resources: {cpu: "1"}')), id="cpu"),
        pytest.param(rendered(spec_of("resources: {memory: 2Gi}")), id="memory"),
        pytest.param(rendered(spec_of("deadline_s: 61")), id="deadline"),
        pytest.param(rendered(spec_of(), served(spec_of(), "2", "cd" * 32)), id="model"),
        pytest.param(rendered(spec_of(), served(spec_of(), image=IMAGE + "1")), id="image"),
        pytest.param(rendered(spec_of(), rollout=Rollout(start_timeout_s=900)), id="a-load-longer-than-usual"),
    ],
)
@pytest.mark.case("pulumi-E4")
def test_what_a_running_process_cannot_change_makes_a_new_revision(changed: dict[str, Any]) -> None:
    assert revision(changed) != revision(FIRST)


LLM = Card("transformers", pyfunc=True, python="3.11.9", size_bytes=12_345, task="llm/v1/chat")
EMBEDDER = Card("sentence_transformers", pyfunc=True, python="3.11.9", size_bytes=12_345)


@pytest.mark.parametrize(
    ("card", "added", "expected"),
    [
        (LLM, "", "prefix"),
        (LLM, "affinity: prefix", "prefix"),
        (LLM, "affinity: none", None),
        (LLM, "runtime: mlflow", None),
        (EMBEDDER, "runtime: vllm", None),
        (CARD, "", None),
        (CARD, "affinity: prefix", "prefix"),
    ],
)
def test_prompts_that_begin_alike_prefer_one_replica_of_what_vllm_generates_unless_the_file_says_else(
    card: Card, added: str, expected: str | None
) -> None:
    spec = spec_of(added)
    model = ServedModel("models:/wine/1", "1", "ab" * 32, IMAGE, IMAGE, select(card, wish_of(spec)))
    assert rendered(spec, model)["spec"]["routing"].get("affinity") == expected


@pytest.mark.case("pulumi-E3")
def test_a_new_model_version_changes_the_endpoint_object_alone() -> None:
    spec = spec_of()
    following = spec.model_copy(update={"model": spec.model.__class__("models:/wine/2", "wine", 2)})
    for render in (endpoint.service_account, endpoint.service, endpoint.disruption_budget):
        assert render(following) == render(spec)
    assert endpoint.doors(following, REGISTRY) == endpoint.doors(spec, REGISTRY)


def test_the_digest_of_the_spec_stands_beside_it() -> None:
    assert FIRST["metadata"]["annotations"]["knobless.dev/spec-digest"] == spec_digest(FIRST["spec"])


def test_the_stack_waits_for_ready_of_this_spec() -> None:
    assert FIRST["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Ready"


@pytest.mark.case("pulumi-C2")
@pytest.mark.case("autoscaler-E5")
@pytest.mark.parametrize(
    ("start_timeout_s", "deadline_s", "wait_s"),
    [(600, 60, 720), (7200, 60, 7320), (10, 297, 447), (10, 1, 151), (327, 297, 447)],
)
def test_the_wait_is_the_time_to_start_or_to_end_and_a_margin(
    start_timeout_s: int, deadline_s: int, wait_s: int
) -> None:
    obj = rendered(spec_of(f"deadline_s: {deadline_s}"), rollout=Rollout(start_timeout_s=start_timeout_s))
    assert obj["metadata"]["annotations"]["pulumi.com/timeoutSeconds"] == str(wait_s)


def test_another_login_to_the_registry_is_for_pods_to_come_and_restarts_none() -> None:
    """The account carries it, and the pod template does not."""
    account = endpoint.service_account(spec_of(), ["registry-login"])
    assert account["imagePullSecrets"] == [{"name": "registry-login"}]
    assert "imagePullSecrets" not in endpoint.service_account(spec_of())
    assert "imagePullSecrets" not in FIRST["spec"]["podTemplate"]["spec"]


@pytest.mark.case("autoscaler-D8")
@pytest.mark.parametrize("deadline_s", [1, 60, 297])
def test_grace_outlasts_leaving_the_balancer_and_the_longest_answer(deadline_s: int) -> None:
    pod = rendered(spec_of(f"deadline_s: {deadline_s}"))["spec"]["podTemplate"]["spec"]
    leave_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert leave_s == 15
    assert pod["terminationGracePeriodSeconds"] == leave_s + deadline_s + 15


@pytest.mark.parametrize(
    ("start_timeout_s", "load_s", "failures"), [(10, 600, 660), (600, 600, 660), (900, 900, 960), (7200, 7200, 7260)]
)
def test_the_probe_waits_longer_than_the_runtime_lets_a_model_load(
    start_timeout_s: int, load_s: int, failures: int
) -> None:
    pod = rendered(spec_of(), rollout=Rollout(start_timeout_s=start_timeout_s))["spec"]["podTemplate"]["spec"]
    server = pod["containers"][0]
    assert server["args"][server["args"].index("--load-timeout-s") + 1] == str(load_s)
    assert (server["startupProbe"]["periodSeconds"], server["startupProbe"]["failureThreshold"]) == (1, failures)


@pytest.mark.parametrize(("cpu", "count"), [("10m", 1), ("500m", 1), ("1", 1), ("1001m", 2), ("1500m", 2), ("8", 8)])
def test_a_replica_has_one_predictor_for_each_started_core(cpu: str, count: int) -> None:
    spec = spec_of(f'resources: {{cpu: "{cpu}"}}')
    args = rendered(spec)["spec"]["podTemplate"]["spec"]["containers"][0]["args"]
    assert spec.resources.cpu == parse_cpu(cpu)
    assert args[args.index("--predictors") + 1] == str(count)


@pytest.mark.parametrize(("cpu", "asked"), [("10m", "10m"), ("500m", "100m"), ("1", "200m"), ("5", "1")])
def test_a_pod_asks_for_a_fifth_of_its_cpu_and_for_all_of_its_memory(cpu: str, asked: str) -> None:
    pod = rendered(spec_of(f'resources: {{cpu: "{cpu}", memory: 3Gi}}'))["spec"]["podTemplate"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["resources"]["requests"] == {"cpu": asked, "memory": "3Gi"}
        assert container["resources"]["limits"]["memory"] == "3Gi"


@pytest.mark.parametrize(
    ("card", "shared"),
    [
        (CARD, None),
        (Card("transformers", pyfunc=True, task="llm/v1/chat", size_bytes=300_000), "1Gi"),
        (Card("onnx", pyfunc=False, takes="tensors", stored="onnx", size_bytes=300_000), "1Gi"),
    ],
    ids=["mlflow", "vllm", "triton"],
)
def test_an_engine_whose_processes_share_memory_has_more_of_it_than_a_pod_has_by_itself(
    card: Card, shared: str | None
) -> None:
    spec = spec_of()
    model = ServedModel("models:/wine/1", "1", "ab" * 32, IMAGE, IMAGE, select(card, wish_of(spec)))
    pod = rendered(spec, model)["spec"]["podTemplate"]["spec"]
    paths = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    memory = [each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if each["emptyDir"].get("medium") == "Memory"]
    assert memory == ([shared] if shared else [])
    assert paths.get("shm") == ("/dev/shm" if shared else None)


LLM = Card("transformers", pyfunc=True, task="llm/v1/chat", size_bytes=300_000)


def over(nodes: int) -> tuple[EndpointSpec, ServedModel]:
    spec = spec_of(f"resources: {{nodes: {nodes}}}")
    return spec, ServedModel("models:/wine/1", "1", "ab" * 32, IMAGE, IMAGE, select(LLM, wish_of(spec)))


def test_a_replica_over_several_nodes_is_said_by_the_object_and_to_the_server() -> None:
    one, two = rendered(*over(1)), rendered(*over(2))
    assert ("nodes" in one["spec"], two["spec"]["nodes"]) == (False, 2)
    (server,) = two["spec"]["podTemplate"]["spec"]["containers"]
    assert server["args"][server["args"].index("--nodes") + 1] == "2"
    assert "--nodes" not in one["spec"]["podTemplate"]["spec"]["containers"][0]["args"]


def test_each_node_has_room_for_all_files_of_a_model_of_which_its_memory_holds_a_part() -> None:
    spec, size = spec_of(), 400 << 30
    large = select(Card("transformers", pyfunc=True, task="llm/v1/chat", size_bytes=size), wish_of(spec))
    pod = rendered(spec, ServedModel("models:/wine/1", "1", "ab" * 32, IMAGE, IMAGE, large))["spec"]["podTemplate"]
    (room,) = [each["emptyDir"]["sizeLimit"] for each in pod["spec"]["volumes"] if each["name"] == "model"]
    assert large.nodes == 3
    assert parse_memory(room).bytes >= 2 * size  # they come, and are moved into place


@pytest.mark.parametrize("deadline_s", [1, 60, 297])
def test_a_worker_that_has_to_go_stays_until_its_leader_has_answered(deadline_s: int) -> None:
    """Both begin to leave at once; the leader's end is 15 + deadline + 15 s later, only then the worker's begins."""
    spec = spec_of(f"resources: {{nodes: 2}}\ndeadline_s: {deadline_s}")
    model = ServedModel("models:/wine/1", "1", "ab" * 32, IMAGE, IMAGE, select(LLM, wish_of(spec)))
    obj = rendered(spec, model, Rollout(start_timeout_s=10))
    grace_s = obj["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s == 15 + deadline_s + 15 + 15
    assert int(obj["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]) == 2 * grace_s + 120


def test_pods_of_groups_reach_each_other_also_where_the_file_went_back_to_one_node() -> None:
    """Only they do: a pod of its own has no number of a group."""
    grouped = [{"key": "leaderworkerset.sigs.k8s.io/group-index", "operator": "Exists"}]
    own = {"podSelector": {"matchLabels": {"knobless.dev/endpoint": "wine"}, "matchExpressions": grouped}}
    doors = endpoint.doors(over(2)[0], REGISTRY)
    assert (doors["spec"]["ingress"][-1], doors["spec"]["egress"][-1]) == ({"from": [own]}, {"to": [own]})
    assert len(doors["spec"]["ingress"]) == 2
    assert endpoint.doors(spec_of(), REGISTRY) == doors


def test_a_budget_lets_one_pod_go_a_worker_too() -> None:
    budget = endpoint.disruption_budget(over(2)[0])["spec"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, {"matchLabels": {"knobless.dev/endpoint": "wine"}})


def test_the_own_team_and_the_invited_ones_may_call() -> None:
    obj = rendered(spec_of("access: {teams: [zeta, beta]}"))
    assert obj["spec"]["access"]["teams"] == ["alpha", "beta", "zeta"]


def test_pods_carry_the_labels_that_controllers_look_for_but_not_yet_a_revision() -> None:
    labels = FIRST["spec"]["podTemplate"]["metadata"]["labels"]
    assert labels["knobless.dev/endpoint"] == "wine"
    assert labels["knobless.dev/team"] == "alpha"
    assert "knobless.dev/revision" not in labels


def port(number: int) -> dict[str, Any]:
    return {"ports": [{"protocol": "TCP", "port": number}]}


def block(cidr: str) -> dict[str, Any]:
    return {"to": [{"ipBlock": {"cidr": cidr}}]}


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://198.18.0.1:5500", block("198.18.0.1/32") | port(5500)),
        ("http://[fd00::1]:5500", block("fd00::1/128") | port(5500)),
        ("https://mlflow.example.com", port(443)),
        ("http://mlflow.example.com/path", port(80)),
    ],
)
def test_a_model_pod_may_reach_its_registry_and_no_more(url: str, rule: dict[str, Any]) -> None:
    assert to_url(url) == rule
    assert endpoint.doors(spec_of(), url)["spec"]["egress"][1:-1] == [rule]


def test_a_pod_may_reach_what_its_file_says_too_and_is_no_other_pod_for_it() -> None:
    spec = spec_of("egress: ['https://api.openai.com', 'postgresql://10.1.2.3:5432']")
    assert endpoint.doors(spec, REGISTRY)["spec"]["egress"][2:-1] == [port(443), block("10.1.2.3/32") | port(5432)]
    assert revision(rendered(spec)) == revision(rendered(spec_of()))


def test_a_team_without_a_bound_has_no_quota() -> None:
    assert quota("alpha", Quota()) is None


def test_a_quota_counts_cpu_as_requested_and_memory_as_limited() -> None:
    limit = quota("alpha", Quota(cpu=Cpu(8000), memory=Memory(1024**3), pods=50))
    assert limit is not None
    assert limit["spec"]["hard"] == {"requests.cpu": "8", "limits.memory": "1Gi", "pods": "50"}


def test_a_quota_bounds_only_what_it_states() -> None:
    limit = quota("alpha", Quota(pods=5))
    assert limit is not None
    assert limit["spec"]["hard"] == {"pods": "5"}
