"""What a node is told is a value: it survives the way over the disk, and its digest tells two apart."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from controllers.autoscaler.signals import QUERIES
from embedded import configs, layout, monitoring, node, readiness, services
from embedded.instance import Instance
from embedded.specification import NodeSpecification, dump, files_digest, load

TOOLS = Path("/opt/tools/bin")
PYTHON = Path("/opt/mlflow/bin/python")
INSTANCE = Instance("dev", index=2)


def specification(instance: Instance = INSTANCE, mlflow_python: Path | None = PYTHON) -> NodeSpecification:
    return node.specify(instance, TOOLS, mlflow_python, configs.rendered(instance, "registry/pause:1"))


def test_a_specification_comes_back_from_disk_unchanged() -> None:
    assert load(dump(specification())) == specification()


def test_the_same_instance_has_the_same_digest() -> None:
    assert specification().digest == specification().digest


@pytest.mark.parametrize(
    "other",
    [
        specification(Instance("dev", index=3)),
        specification(Instance("dev", index=2, mlflow_port=5501)),
        specification(mlflow_python=None),
        replace(specification(), files_digest="other"),
    ],
)
def test_any_difference_changes_the_digest(other: NodeSpecification) -> None:
    assert other.digest != specification().digest


def test_the_digest_of_files_covers_names_and_contents() -> None:
    assert files_digest({"a": "1", "b": "2"}) == files_digest({"b": "2", "a": "1"})
    assert len({files_digest(files) for files in ({"a": "1"}, {"a": "2"}, {"b": "1"})}) == 3


def test_every_component_comes_after_components_that_exist_and_start_earlier() -> None:
    seen: set[str] = set()
    for component in specification().components:
        assert seen.issuperset(component.after), component.name
        seen.add(component.name)


def test_mlflow_is_a_component_only_where_an_interpreter_is_named() -> None:
    names = [component.name for component in specification(mlflow_python=None).components]
    assert "mlflow" not in names
    assert [*names, "mlflow"] == [component.name for component in specification().components]


def test_no_component_sees_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    allowed = {"PATH", "HOME", "LANG", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION"}
    for component in specification().components:
        assert allowed.issuperset(component.environment), component.name


def test_node_ports_cover_the_gateway() -> None:
    first, last = map(int, services.NODE_PORTS.split("-"))
    assert first <= INSTANCE.gateway_port <= last


def test_the_kubelets_kernel_settings_are_shown_and_not_set() -> None:
    shown = {step.argv[-1] for step in layout.steps(INSTANCE) if step.argv[:2] == ("mount", "--bind")}
    assert {f"/proc/sys/{name}" for name in layout.KUBELET_TUNABLES} <= shown
    written = [
        entry.path for step in layout.steps(INSTANCE) for entry in step.entries if entry.path.startswith("/proc")
    ]
    assert written == ["/proc/sys/net/ipv4/ip_forward"]


def test_a_home_outside_var_lib_is_not_mounted_over_itself() -> None:
    outside = layout.steps(Instance(home=Path("/srv/knobless")))
    assert not any("--rbind" in step.argv for step in outside)
    assert sum("--rbind" in step.argv for step in layout.steps(INSTANCE)) == 2


def test_configurations_of_kubernetes_are_json_with_the_instances_addresses() -> None:
    files = {path.name: text for path, text in configs.rendered(INSTANCE, "registry/pause:1").items()}
    kubelet, proxy = json.loads(files["kubelet.yaml"]), json.loads(files["kube-proxy.yaml"])
    assert kubelet["clusterDNS"] == ["198.18.95.254"]
    assert (kubelet["cgroupDriver"], kubelet["cgroupRoot"]) == ("cgroupfs", "/knobless-dev")
    assert (proxy["mode"], proxy["clusterCIDR"]) == ("nftables", "198.18.64.0/20")
    network = json.loads(files["10-knobless.conflist"])["plugins"][0]
    assert network["ipam"]["ranges"] == [[{"subnet": "198.18.64.0/20"}]]
    assert json.loads(files["registry.yaml"])["http"]["addr"] == "198.18.95.254:5000"


def test_prometheus_reads_the_node_its_containers_and_what_the_controllers_list() -> None:
    config = json.loads(configs.rendered(INSTANCE, "registry/pause:1")[INSTANCE.conf / "prometheus.json"])
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == {"node", "kubelet", "controllers", "pods"}
    # the label that joins a node's numbers with those of the containers on it
    assert {jobs[name]["static_configs"][0]["labels"]["node"] for name in ("node", "kubelet")} == {"knobless-dev"}
    assert jobs["kubelet"]["static_configs"][0]["targets"] == ["198.18.95.254:10250"]
    assert jobs["pods"]["http_sd_configs"][0]["url"].endswith("/services/controllers:health/proxy/targets")


def test_prometheus_keeps_every_metric_of_the_kubelet_that_the_autoscaler_asks_for() -> None:
    config = json.loads(configs.rendered(INSTANCE, "registry/pause:1")[INSTANCE.conf / "prometheus.json"])
    rules = [job.get("metric_relabel_configs", [{}])[0].get("regex", "") for job in config["scrape_configs"]]
    asked = set(re.findall(r"\b(?:container|node)_\w+(?=\{)", " ".join(QUERIES.values())))
    assert len(asked) >= 8
    assert {name for name in asked if not any(re.fullmatch(rule, name) for rule in rules)} == set()


def test_what_the_nodes_prometheus_may_do_is_two_reads() -> None:
    roles = {value["metadata"]["name"]: value for _, value in readiness.bindings() if value["kind"] == "ClusterRole"}
    rules = roles[monitoring.USER]["rules"]
    assert [rule["verbs"] for rule in rules] == [["get"], ["get"]]
    assert [rule["resources"] for rule in rules] == [["nodes/metrics"], ["services/proxy"]]
    assert rules[1]["resourceNames"] == ["controllers:health"]


def test_containerd_has_its_own_root_and_never_lowers_an_oom_score() -> None:
    text = configs.containerd(INSTANCE, "registry/pause:1")
    assert f'root = "{INSTANCE.containerd}"' in text
    assert "restrict_oom_score_adj = true" in text
    assert 'sandbox_image = "registry/pause:1"' in text


def test_files_of_two_instances_share_no_address_and_no_state() -> None:
    other = Instance("other", index=3)
    text = "\n".join(configs.rendered(other, "registry/pause:1").values())
    for own in (str(INSTANCE.node_address), str(INSTANCE.pods), str(INSTANCE.services), str(INSTANCE.node)):
        assert own not in text
