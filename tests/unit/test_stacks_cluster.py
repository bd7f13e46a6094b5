"""Where the cluster is: from Git what Git says, from the file of facts the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spec.platform import load_platform
from stacks.cluster import ClusterUnknownError, authority, cluster_facts

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
    "prometheus": "http://198.18.0.1:9090",
    "gateway_url": "https://198.18.0.1:8443",
    "node_address": "198.18.0.1",
    "authority": "/home/knobless/ca/ca.crt",
}


def told(folder: Path, text: str) -> dict[str, str]:
    file = folder / "cluster.json"
    file.write_text(text)
    return {"KNOBLESS_CLUSTER": str(file), "HOME": "/home/user"}


def test_the_embedded_cluster_is_what_its_file_says(tmp_path: Path) -> None:
    facts = cluster_facts(EMBEDDED, told(tmp_path, json.dumps(FACTS)))
    assert facts.model_dump() == FACTS | {"registry_plain_http": True, "groups": False}


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
    facts = cluster_facts(OWN, told(tmp_path, json.dumps(FACTS | {"context": "prod"})))
    assert (facts.registry, facts.kubeconfig) == ("r.example", "/node/kubeconfig")


def test_a_cluster_of_one_s_own_has_no_address_of_its_gateway_until_it_is_told(tmp_path: Path) -> None:
    assert cluster_facts(OWN, {"HOME": "/home/user"}).gateway_url is None
    facts = cluster_facts(OWN, told(tmp_path, json.dumps({"context": "prod", "gateway_url": "https://g"})))
    assert (facts.gateway_url, facts.kubeconfig) == ("https://g", "/home/user/.kube/config")


@pytest.mark.parametrize("other", [{}, {"context": "staging"}])
def test_a_file_about_another_cluster_says_nothing_about_one_s_own(tmp_path: Path, other: dict[str, str]) -> None:
    facts = cluster_facts(OWN, told(tmp_path, json.dumps(FACTS | other)))
    assert (facts.kubeconfig, facts.gateway_url, facts.node_address) == ("/home/user/.kube/config", None, None)


@pytest.mark.parametrize(
    ("stated", "registry", "plain"),
    [("r.example", "r.example", False), ("http://r.example:5000/a", "r.example:5000/a", True)],
)
def test_the_scheme_of_a_registry_is_no_part_of_image_names(stated: str, registry: str, plain: bool) -> None:
    platform = OWN.model_copy(update={"registry": stated})
    facts = cluster_facts(platform, {"HOME": "/home/user"})
    assert (facts.registry, facts.registry_plain_http) == (registry, plain)


def test_of_several_kubeconfigs_the_one_with_the_context_is_taken(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("a", "b", "c")}
    for name, context in (("a", "other"), ("b", "prod"), ("c", "prod")):
        files[name].write_text(f"contexts: [{{name: {context}}}]\n")
    assert cluster_facts(OWN, {"KUBECONFIG": ":".join(map(str, files.values()))}).kubeconfig == str(files["b"])


def test_the_local_authority_is_read_where_it_is_and_its_absence_is_told(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    stated = {"authority": str(file)}
    facts = cluster_facts(EMBEDDED, told(tmp_path, json.dumps(FACTS | stated)))
    with pytest.raises(ClusterUnknownError, match=r"ca\.crt.*run `knobless up`"):
        authority(facts)
    file.write_bytes(b"a certificate")
    assert authority(facts) == b"a certificate"
    with pytest.raises(ClusterUnknownError, match="run `knobless up`"):
        authority(facts.model_copy(update={"authority": None}))
