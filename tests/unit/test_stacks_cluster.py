"""Where the cluster is: from Git what Git says, from the file of facts the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spec.platform import load_platform
from stacks.cluster import ClusterUnknownError, cluster_facts

EMBEDDED = load_platform("environment: local", "stacks/local/platform.yaml", "local")
OWN = load_platform(
    "environment: cloud\ncluster: {context: prod}\nregistry: r.example\nmodel_registry: https://m.example\n"
    "gateway: {expose: LoadBalancer}\n",
    "stacks/cloud/platform.yaml",
    "cloud",
)
FACTS = {
    "kubeconfig": "/node/kubeconfig",
    "registry": "198.18.0.1:5000",
    "model_registry": "http://198.18.0.1:5500",
    "gateway_url": "https://198.18.0.1:8443",
    "node_address": "198.18.0.1",
}


def told(folder: Path, text: str) -> dict[str, str]:
    file = folder / "cluster.json"
    file.write_text(text)
    return {"KNOBLESS_CLUSTER": str(file), "HOME": "/home/user"}


def test_the_embedded_cluster_is_what_its_file_says(tmp_path: Path) -> None:
    facts = cluster_facts(EMBEDDED, told(tmp_path, json.dumps(FACTS)))
    assert facts.model_dump() == FACTS


def test_a_fact_that_is_not_known_here_is_passed_over(tmp_path: Path) -> None:
    assert cluster_facts(EMBEDDED, told(tmp_path, json.dumps(FACTS | {"later": 1}))).registry == FACTS["registry"]


@pytest.mark.parametrize("variables", [{}, {"KNOBLESS_CLUSTER": ""}, {"KNOBLESS_CLUSTER": "/nowhere/cluster.json"}])
def test_an_embedded_cluster_that_never_started_names_the_command(variables: dict[str, str]) -> None:
    with pytest.raises(ClusterUnknownError, match="`knobless up` starts it"):
        cluster_facts(EMBEDDED, variables | {"HOME": "/home/user", "KUBECONFIG": "/somebody/else"})


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_file_that_is_no_object_of_facts_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ClusterUnknownError, match=r"cluster\.json \(KNOBLESS_CLUSTER\) is no JSON object"):
        cluster_facts(EMBEDDED, told(tmp_path, text))


def test_a_file_that_lacks_facts_says_which(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnknownError, match="registry, model_registry"):
        cluster_facts(EMBEDDED, told(tmp_path, json.dumps({"kubeconfig": "/node/kubeconfig"})))


@pytest.mark.parametrize(
    ("variables", "kubeconfig"),
    [
        ({"HOME": "/home/user"}, "/home/user/.kube/config"),
        ({"HOME": "/home/user", "KUBECONFIG": "/a"}, "/a"),
        ({"HOME": "/home/user", "KUBECONFIG": "/a:/b"}, "/a"),
    ],
)
def test_a_cluster_of_one_s_own_is_found_where_kubectl_looks(variables: dict[str, str], kubeconfig: str) -> None:
    facts = cluster_facts(OWN, variables)
    assert (facts.kubeconfig, facts.registry, facts.model_registry) == (kubeconfig, "r.example", "https://m.example")


def test_what_git_declares_stands_above_the_file(tmp_path: Path) -> None:
    facts = cluster_facts(OWN, told(tmp_path, json.dumps(FACTS)))
    assert (facts.registry, facts.kubeconfig) == ("r.example", "/node/kubeconfig")


def test_a_cluster_of_one_s_own_has_no_address_of_its_gateway_until_it_is_told(tmp_path: Path) -> None:
    assert cluster_facts(OWN, {"HOME": "/home/user"}).gateway_url is None
    assert cluster_facts(OWN, told(tmp_path, json.dumps(FACTS))).gateway_url == FACTS["gateway_url"]
