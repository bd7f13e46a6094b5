"""The pod of an image of one's own: the user's container behind the interface, and who ends after whom."""

from __future__ import annotations

from typing import Any

import pytest

from components.manifests import endpoint
from components.manifests.pod import environment
from components.manifests.served import ServedImage
from spec.endpoint import EndpointSpec, load_endpoint
from spec.platform import Rollout
from spec.revision import revision_of

TEXT = """
endpoint: ranker
image: ghcr.io/acme/ranker:1.4
container: {protocol: v2}
concurrency: {min: 1, max: 64}
"""
IMAGE = ServedImage(
    "ghcr.io/acme/ranker:1.4", "1.4", "ghcr.io/acme/ranker@sha256:" + "a" * 64, "r/knobless/proxy@sha256:" + "b" * 64, 8
)


def spec_of(added: str = "", container: str = "{protocol: v2}") -> EndpointSpec:
    text = TEXT.replace("{protocol: v2}", container) + added
    return load_endpoint(text, "stacks/local/endpoints/alpha/ranker.yaml", "alpha")


def rendered(spec: EndpointSpec, image: ServedImage = IMAGE, rollout: Rollout | None = None) -> dict[str, Any]:
    return endpoint.endpoint_object(spec, image, "http://198.18.0.1:5500", rollout or Rollout())


def pod_of(spec: EndpointSpec) -> dict[str, Any]:
    pod: dict[str, Any] = rendered(spec)["spec"]["podTemplate"]["spec"]
    return pod


def own(spec: EndpointSpec) -> dict[str, Any]:
    (found,) = pod_of(spec)["initContainers"]
    assert isinstance(found, dict)
    return found


def proxy(spec: EndpointSpec) -> dict[str, Any]:
    (found,) = pod_of(spec)["containers"]
    assert isinstance(found, dict)
    return found


def argument(container: dict[str, Any], flag: str) -> list[str]:
    args = container["args"]
    return [args[index + 1] for index, word in enumerate(args) if word == flag]


def test_the_endpoint_says_which_image_serves_and_by_what_it_is_known() -> None:
    content = rendered(spec_of())["spec"]
    assert content["model"] == {"uri": "ghcr.io/acme/ranker:1.4", "version": "1.4", "sha256": "a" * 64}
    assert content["runtime"] == {"name": "proxy", "initialLimit": 8}


def test_the_user_s_container_ends_after_the_interface_and_not_with_it() -> None:
    """An init container that goes on is told to end once all others have ended."""
    assert own(spec_of())["restartPolicy"] == "Always"
    assert "lifecycle" not in own(spec_of())


@pytest.mark.case("runtimes-C14")
@pytest.mark.parametrize(("deadline_s", "stop_s"), [(1, 1), (60, 15), (297, 120)])
def test_grace_covers_leaving_the_longest_answer_and_both_ends(deadline_s: int, stop_s: int) -> None:
    spec = spec_of(f"deadline_s: {deadline_s}\n", f"{{protocol: v2, stop_s: {stop_s}}}")
    leave_s = proxy(spec)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod_of(spec)["terminationGracePeriodSeconds"] == leave_s + deadline_s + 15 + stop_s


def test_the_interface_is_told_where_the_container_is_and_how_it_is_asked() -> None:
    spec = spec_of("", "{protocol: http, port: 9000, health: /up, paths: [/a, /b/c]}")
    told = {flag: argument(proxy(spec), flag) for flag in ("--upstream-port", "--protocol", "--health-path", "--path")}
    assert told == {
        "--upstream-port": ["9000"],
        "--protocol": ["http"],
        "--health-path": ["/up"],
        "--path": ["/a", "/b/c"],
    }
    assert argument(proxy(spec_of()), "--path") == []


@pytest.mark.parametrize(("added", "expected"), [("", None), ("affinity: prefix", "prefix"), ("affinity: none", None)])
def test_an_image_has_affinity_where_its_file_says_so(added: str, expected: str | None) -> None:
    assert rendered(spec_of(added))["spec"]["routing"].get("affinity") == expected


def test_requests_and_readiness_go_to_the_interface_alone() -> None:
    spec = spec_of()
    assert proxy(spec)["ports"] == [{"name": "http", "containerPort": 18080, "protocol": "TCP"}]
    assert proxy(spec)["readinessProbe"]["httpGet"]["port"] == "http"
    assert not {"ports", "readinessProbe"} & own(spec).keys()
    assert endpoint.service(spec)["spec"]["ports"][0]["port"] == 18080
    door = endpoint.doors(spec, "http://198.18.0.1:5500")["spec"]["ingress"][0]
    assert door["ports"] == [{"protocol": "TCP", "port": 18080}]


def test_the_kubelet_asks_the_container_itself_whether_it_started_and_lives() -> None:
    spec = spec_of("", "{protocol: openai, port: 8000}")
    for name in ("startupProbe", "livenessProbe"):
        assert own(spec)[name]["httpGet"] == {"path": "/health", "port": 8000, "scheme": "HTTP"}


def test_the_user_s_container_is_as_strict_as_ours_and_runs_as_its_own_user() -> None:
    security = own(spec_of())["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    assert "runAsUser" not in pod_of(spec_of())["securityContext"]
    named = own(spec_of("", "{protocol: v2, user: 1000}"))["securityContext"]
    assert (named["runAsUser"], named["runAsGroup"]) == (1000, 1000)
    assert proxy(spec_of())["securityContext"]["runAsUser"] == 10001


def test_only_tmp_and_what_the_file_names_can_be_written() -> None:
    spec = spec_of("", "{protocol: v2, writable: [/var/cache/x, /dev/shm]}")
    assert [mount["mountPath"] for mount in own(spec)["volumeMounts"]] == ["/tmp", "/var/cache/x", "/dev/shm"]
    assert len({mount["name"] for mount in own(spec)["volumeMounts"]}) == 3


def test_variables_and_secrets_reach_the_user_s_container_alone() -> None:
    spec = spec_of("env: {MODE: fast, HOME: /srv, TOKEN: {secret: s, key: k}}\n")
    assert own(spec)["env"] == [
        {"name": "HOME", "value": "/srv"},
        {"name": "MODE", "value": "fast"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    assert proxy(spec)["env"] == environment({"HOME": "/tmp"}, spec_of())


def test_the_file_s_resources_are_the_user_s_container_s() -> None:
    spec = spec_of('resources: {cpu: "2", memory: 3Gi}\naccelerator: {gpus: 1}\n')
    assert own(spec)["resources"]["limits"] == {"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}
    assert "nvidia.com/gpu" not in proxy(spec)["resources"]["limits"]
    assert pod_of(spec)["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert not {"tolerations", "nodeSelector"} & pod_of(spec_of()).keys()


def test_another_image_or_another_proxy_makes_a_new_revision_and_another_tag_of_the_same_image_too() -> None:
    def revision(image: ServedImage) -> str:
        return revision_of("ranker", rendered(spec_of(), image)["spec"]["podTemplate"])

    others = [
        ServedImage(IMAGE.uri, "1.4", IMAGE.image.replace("a" * 64, "c" * 64), IMAGE.proxy_image, 8),
        ServedImage(IMAGE.uri, "1.4", IMAGE.image, IMAGE.proxy_image.replace("b" * 64, "c" * 64), 8),
        ServedImage(IMAGE.uri, "1.5", IMAGE.image, IMAGE.proxy_image, 8),
    ]
    assert len({revision(image) for image in (IMAGE, *others)}) == 4


def test_another_first_limit_makes_no_new_revision() -> None:
    changed = ServedImage(IMAGE.uri, "1.4", IMAGE.image, IMAGE.proxy_image, 16)
    templates = [rendered(spec_of(), image)["spec"]["podTemplate"] for image in (IMAGE, changed)]
    assert templates[0] == templates[1]
