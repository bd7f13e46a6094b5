"""Names: lengths with everything that is added, and the way back from each name."""

from __future__ import annotations

import pytest

from spec import names
from spec.endpoint import NODES_MOST
from spec.sizing import REPLICAS_MAX

DIGEST = "0123abcd" + "0" * 56


def test_the_longest_endpoint_leaves_room_for_the_longest_pod_name() -> None:
    assert names.longest_pod_name("e" * names.ENDPOINT_MAX) <= names.DNS_LABEL_MAX


def test_the_longest_revision_is_a_label_value_and_leaves_room_for_an_endpoint_slice() -> None:
    revision = names.revision_name("e" * names.ENDPOINT_MAX, DIGEST)
    assert len(revision) + names.GENERATED_SUFFIX <= names.DNS_LABEL_MAX


def test_the_last_group_of_the_longest_revision_is_a_stateful_set_whose_pods_can_be_labelled() -> None:
    """Its workers belong to a StatefulSet of the leader's name, whose revisions' names are a label's value."""
    leader = f"{names.revision_name('e' * names.ENDPOINT_MAX, DIGEST)}-{REPLICAS_MAX - 1}"
    assert len(leader) + names.REPLICA_SET_SUFFIX_MAX <= names.DNS_LABEL_MAX
    assert len(f"{leader}-{NODES_MOST - 1}") <= names.DNS_LABEL_MAX


def test_the_longest_team_namespace_is_a_dns_label() -> None:
    assert len(names.team_namespace("t" * names.TEAM_MAX)) <= names.DNS_LABEL_MAX


def test_the_longest_stack_name_is_accepted_by_pulumi() -> None:
    stack = names.EndpointStack("v" * names.ENVIRONMENT_MAX, "t" * names.TEAM_MAX, "e" * names.ENDPOINT_MAX)
    assert len(stack.name) <= names.STACK_NAME_MAX


@pytest.mark.parametrize("what,limit", [("endpoint", 36), ("team", 20), ("environment", 16)])
def test_a_name_has_a_longest_length(what: str, limit: int) -> None:
    assert names.name_problem(what, "a" * limit) is None
    assert f"at most {limit}" in (names.name_problem(what, "a" * (limit + 1)) or "")


@pytest.mark.parametrize("name", ["a", "a1", "a-b", "fraud-detector", "a--b"])
def test_a_dns_label_that_starts_with_a_letter_is_a_name(name: str) -> None:
    assert names.name_problem("endpoint", name) is None


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "a-", "a_b", "a.b", "a b", "ä", "a\n", "a/b", "..", "а"])
def test_what_is_no_dns_label_is_no_name(name: str) -> None:
    assert "lower-case" in (names.name_problem("team", name) or "")


def test_a_revision_is_the_endpoint_and_eight_hex_digits_and_leads_back_to_it() -> None:
    assert names.revision_name("iris", DIGEST) == "iris-0123abcd"
    assert names.endpoint_of_revision("iris-0123abcd") == "iris"
    assert names.endpoint_of_revision("a-0123abcd-0123abcd") == "a-0123abcd"


@pytest.mark.parametrize("name", ["iris", "iris-0123abc", "iris-0123abcg", "-0123abcd", "Iris-0123abcd"])
def test_a_name_of_another_shape_is_no_revision(name: str) -> None:
    assert names.endpoint_of_revision(name) is None


@pytest.mark.parametrize("digest", ["", "0123", "0123ABCD" * 8, "zzzzzzzz"])
def test_a_revision_needs_a_lower_case_digest(digest: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        names.revision_name("iris", digest)


def test_a_team_namespace_leads_back_to_its_team() -> None:
    assert names.team_namespace("alpha") == "team-alpha"
    assert names.team_of_namespace("team-alpha") == "alpha"


@pytest.mark.parametrize("namespace", [names.SYSTEM_NAMESPACE, "default", "team-", "team-Alpha", "alpha"])
def test_another_namespace_belongs_to_no_team(namespace: str) -> None:
    assert names.team_of_namespace(namespace) is None


STACKS = [
    (names.PlatformStack("local"), "local.platform", "stacks/local/platform.yaml"),
    (
        names.EndpointStack("local", "alpha", "iris"),
        "local.alpha.iris",
        "stacks/local/endpoints/alpha/iris.yaml",
    ),
    (
        names.EndpointStack("local", "platform", "platform"),
        "local.platform.platform",
        "stacks/local/endpoints/platform/platform.yaml",
    ),
]


@pytest.mark.parametrize("stack,name,file", STACKS)
def test_a_stack_has_one_name_and_one_file_and_both_lead_back(stack: names.Stack, name: str, file: str) -> None:
    assert (stack.name, stack.file) == (name, file)
    assert names.parse_stack(name) == stack
    assert names.stack_of_file(file) == stack


@pytest.mark.parametrize(
    "name", ["", "local", "local.alpha", "local.alpha.iris.x", "local..iris", "Local.platform", ".platform", "a.b.c d"]
)
def test_a_name_of_another_shape_is_no_stack(name: str) -> None:
    with pytest.raises(ValueError):
        names.parse_stack(name)


@pytest.mark.parametrize(
    "path",
    [
        "stacks/local/platform.yml",
        "stacks/local/endpoints/iris.yaml",
        "stacks/local/endpoints/alpha/iris.yml",
        "stacks/local/endpoints/alpha/deep/iris.yaml",
        "stacks/local/alpha/iris.yaml",
        "stacks/local/endpoints/alpha/Iris.yaml",
        "stacks/local/endpoints/alpha/.yaml",
        "/stacks/local/platform.yaml",
        "other/local/platform.yaml",
        "platform.yaml",
        "",
    ],
)
def test_a_path_of_another_shape_declares_no_stack(path: str) -> None:
    with pytest.raises(ValueError):
        names.stack_of_file(path)


def test_a_stack_of_ours_is_referred_to_within_the_one_organization_of_a_self_managed_backend() -> None:
    assert names.stack_reference(names.PlatformStack("local")) == "organization/knobless/local.platform"


def test_a_revisions_labels_name_endpoint_team_and_revision() -> None:
    labels = names.revision_labels("iris", "alpha", "iris-0123abcd")
    assert labels == {
        "app.kubernetes.io/managed-by": "knobless",
        "app.kubernetes.io/component": "model",
        "knobless.dev/endpoint": "iris",
        "knobless.dev/team": "alpha",
        "knobless.dev/revision": "iris-0123abcd",
    }
