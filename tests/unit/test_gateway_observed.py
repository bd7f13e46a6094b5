"""API objects become facts or one Fault with a sentence."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from controllers.gateway.observed import (
    Declared,
    Fault,
    Identity,
    Key,
    Pod,
    PodState,
    merge,
    read_endpoint,
    read_keys,
    read_slice,
)
from tests.gateway_lab.cluster import endpoint_object, revision, slice_object
from tests.gateway_lab.pods import Pod as FakePod
from tests.gateway_lab.pods import takes

REV = revision("iris")


def pod(name: str) -> FakePod:
    return FakePod(name, takes(0), port=8080)


def test_a_good_object_becomes_its_facts() -> None:
    said = read_endpoint(endpoint_object(teams=["beta"], limits={REV: 7}, queue_max=3, deadline_ms=2500, paths=["/a"]))
    assert isinstance(said, Declared)
    assert said.identity == Identity("team-alpha", "iris")
    assert said.teams == {"alpha", "beta"}
    assert said.traffic_revision == REV
    assert (said.limits, said.initial_limit, said.concurrency_max) == ({REV: 7}, 4, 1000)
    assert (said.queue_max, said.queue_timeout_ms, said.deadline_ms) == (3, 5000, 2500)
    assert said.paths == {"/a"}
    assert not said.prefix_affinity


def test_affinity_is_what_the_object_says() -> None:
    said = read_endpoint(endpoint_object(affinity="prefix"))
    assert isinstance(said, Declared)
    assert said.prefix_affinity


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec.runtime.initialLimit", 0, "spec.runtime.initialLimit is 0"),
        ("spec.runtime.initialLimit", True, "spec.runtime.initialLimit is True"),
        ("spec.runtime.initialLimit", "4", "spec.runtime.initialLimit is '4'"),
        ("spec.runtime", None, "runtime: an object is needed"),
        ("spec.concurrency.max", 0, "spec.concurrency.max is 0"),
        ("spec.concurrency.max", None, "spec.concurrency.max is None"),
        ("spec.routing.deadlineMs", 297_001, "from 1 to 297000"),
        ("spec.routing.deadlineMs", 0, "spec.routing.deadlineMs is 0"),
        ("spec.routing.queueMax", -1, "spec.routing.queueMax is -1"),
        ("spec.routing.queueTimeoutMs", 0, "spec.routing.queueTimeoutMs is 0"),
        ("spec.routing.paths", "/generate", "spec.routing.paths: a list is needed, str found"),
        ("spec.routing.paths", ["/generate", 7], "spec.routing.paths: '7' is no path"),
        ("spec.routing.paths", ["/a 1\ndel map keys.map"], "is no path"),
        ("spec.routing.paths", ["/a/.."], "spec.routing.paths: '/a/..' is no path"),
        ("spec.routing.paths", ["/" + "a" * 256], "is no path"),
        ("spec.routing.affinity", "prefix/9", "spec.routing.affinity is 'prefix/9'"),
        ("spec.routing.affinity", ["prefix"], "spec.routing.affinity is ['prefix']"),
        ("spec.routing.affinity", "", "spec.routing.affinity is ''"),
        ("spec.access.teams", [], "at least one team"),
        ("spec.access.teams", ["a b"], "can't name a team"),
        ("spec.access.teams", "alpha", "a list"),
        ("spec", None, "spec: an object is needed"),
        ("status.autoscaler.revisions", {REV: {"limit": 0}}, f"status.autoscaler.revisions.{REV}.limit is 0"),
        ("status.autoscaler.revisions", {REV: {"desired": -1}}, "desired is -1"),
        ("status.trafficRevision", "rose-00000001", "is no revision of iris"),
        ("status.trafficRevision", "iris", "is no revision of iris"),
        ("status.trafficRevision", revision("iris", 9), "is not among status.revisions"),
        ("metadata.generation", "x", "can't be read"),
    ],
)
def test_a_broken_object_is_one_fault_that_names_the_field(path: str, value: Any, message: str) -> None:
    obj = endpoint_object()
    *parents, last = path.split(".")
    place = obj
    for part in parents:
        place = place[part]
    place[last] = value
    said = read_endpoint(obj)
    assert isinstance(said, Fault)
    assert message in said.message


@pytest.mark.parametrize("value", [None, 5, "text", [], {"spec": 1}])
def test_nothing_that_an_object_may_hold_raises(value: Any) -> None:
    for part in ("spec", "status"):
        obj = copy.deepcopy(endpoint_object())
        obj[part] = value
        assert isinstance(read_endpoint(obj), Fault | Declared)


def test_an_endpoint_without_a_traffic_revision_is_good_and_has_none() -> None:
    said = read_endpoint(endpoint_object(traffic=""))
    assert isinstance(said, Declared)
    assert said.traffic_revision is None


def test_a_slice_gives_its_pods_with_state_and_port() -> None:
    obj = slice_object("iris", REV, [pod("a"), pod("b"), pod("c")], leaving=["b"], unready=["c"])
    found = {each.name: (each.state, each.address, each.port) for each in read_slice(obj)}
    assert found == {
        "a": (PodState.READY, "127.0.0.1", 8080),
        "b": (PodState.TERMINATING, "127.0.0.1", 8080),
        "c": (PodState.NOT_READY, "127.0.0.1", 8080),
    }


def test_a_condition_that_nobody_set_means_ready() -> None:
    obj = slice_object("iris", REV, [pod("a")])
    obj["endpoints"][0]["conditions"] = {}
    assert [each.state for each in read_slice(obj)] == [PodState.READY]


def changed(change: str) -> dict[str, Any]:
    obj = slice_object("iris", REV, [pod("a")])
    labels, entry = obj["metadata"]["labels"], obj["endpoints"][0]
    match change:
        case "no endpoint label":
            del labels["knobless.dev/endpoint"]
        case "no revision label":
            del labels["knobless.dev/revision"]
        case "another's revision":
            labels["knobless.dev/revision"] = revision("rose")
        case "no port":
            obj["ports"] = []
        case "a name for an address":
            entry["addresses"] = ["example.org"]
        case "a command in the pod's name":
            entry["targetRef"]["name"] = "a;disable frontend https"
        case "no addresses":
            entry["addresses"] = None
        case "endpoints of another type":
            obj["endpoints"] = 5
    return obj


@pytest.mark.parametrize(
    "change",
    [
        "no endpoint label",
        "no revision label",
        "another's revision",
        "no port",
        "a name for an address",
        "a command in the pod's name",
        "no addresses",
        "endpoints of another type",
    ],
)
def test_a_slice_that_is_not_ours_or_not_sound_gives_no_pod(change: str) -> None:
    assert read_slice(changed(change)) == ()
    assert len(read_slice(changed("nothing"))) == 1


def at(state: PodState, address: str = "10.0.0.1") -> Pod:
    return Pod(Identity("team-alpha", "iris"), REV, "a", address, 8080, state)


def test_a_pod_in_two_slices_counts_once_and_leaving_wins() -> None:
    assert merge([at(PodState.READY), at(PodState.TERMINATING)]) == (at(PodState.TERMINATING),)
    assert merge([at(PodState.READY), at(PodState.NOT_READY)]) == (at(PodState.READY),)
    assert merge([at(PodState.READY), at(PodState.READY)]) == (at(PodState.READY),)


@pytest.mark.parametrize("turned", [False, True])
def test_a_pod_with_two_addresses_is_reached_by_ipv4(turned: bool) -> None:
    both = [at(PodState.READY, "fd00::1"), at(PodState.READY, "10.0.0.1")]
    assert [each.address for each in merge(both[::-1] if turned else both)] == ["10.0.0.1"]


def secret(**entries: Any) -> dict[str, Any]:
    texts = {name: entry if isinstance(entry, str) else json.dumps(entry) for name, entry in entries.items()}
    return {"data": {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}}


def test_keys_are_digests_in_capitals_with_their_team() -> None:
    found, problems = read_keys(secret(a={"team": "alpha", "sha256": "ab" * 32, "created": "x"}))
    assert found == (Key("alpha", "AB" * 32),)
    assert problems == ()


@pytest.mark.parametrize(
    "entry",
    [
        "no json",
        "[]",
        "null",
        {"team": "alpha"},
        {"team": "alpha", "sha256": "AB" * 32},
        {"team": "alpha", "sha256": "ab" * 31},
        {"team": "al pha", "sha256": "ab" * 32},
        {"team": 5, "sha256": "ab" * 32},
        {"team": "alpha", "sha256": None},
    ],
)
def test_a_broken_key_entry_is_named_never_echoed_and_stops_no_other(entry: Any) -> None:
    found, problems = read_keys(secret(broken=entry, good={"team": "beta", "sha256": "cd" * 32}))
    assert found == (Key("beta", "CD" * 32),)
    assert len(problems) == 1
    assert "broken" in problems[0]
    assert "ab" * 31 not in problems[0]


def test_a_digest_of_two_teams_stays_with_the_first_and_is_told() -> None:
    found, problems = read_keys(
        secret(a={"team": "alpha", "sha256": "ab" * 32}, b={"team": "beta", "sha256": "ab" * 32})
    )
    assert found == (Key("alpha", "AB" * 32),)
    assert problems == ("key b: its digest already belongs to team alpha",)


def test_no_secret_means_no_keys() -> None:
    assert read_keys(None) == ((), ())
    assert read_keys({"metadata": {}}) == ((), ())
