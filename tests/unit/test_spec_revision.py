"""Identity of a pod template: equal content, equal bytes, whoever wrote it."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from spec.revision import canonical_json, revision_of, sha256_hex, spec_digest


@pytest.mark.parametrize(
    "value,text",
    [
        ({"b": 1, "a": [1.0, 2.5, "ä"]}, '{"a":[1,2.5,"ä"],"b":1}'),
        ({"a": (1, 2)}, '{"a":[1,2]}'),
        (None, "null"),
        (True, "true"),
        (1.0, "1"),
        (-0.0, "0"),
        ("a\nb", '"a\\nb"'),
        ({}, "{}"),
    ],
)
def test_canonical_json_has_one_form(value: Any, text: str) -> None:
    assert canonical_json(value) == text.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"x", {"a": {1, 2}}, object()])
def test_what_json_has_no_form_for_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        canonical_json(value)


def test_a_number_that_comes_back_as_a_float_makes_no_new_revision() -> None:
    template = {"spec": {"containers": [{"ports": [{"containerPort": 8080}]}]}}
    echoed = {"spec": {"containers": [{"ports": [{"containerPort": 8080.0}]}]}}
    assert revision_of("iris", template) == revision_of("iris", echoed)


def test_true_is_not_one() -> None:
    assert sha256_hex({"a": True}) != sha256_hex({"a": 1})


def test_a_revision_is_named_by_the_first_eight_digits_over_the_canonical_bytes() -> None:
    digest = hashlib.sha256(b'{"spec":{}}').hexdigest()
    assert revision_of("iris", {"spec": {}}) == f"iris-{digest[:8]}"


def test_a_changed_template_is_another_revision_and_a_changed_order_of_keys_is_not() -> None:
    assert revision_of("iris", {"a": 1, "b": 2}) == revision_of("iris", {"b": 2, "a": 1})
    assert revision_of("iris", {"a": 1}) != revision_of("iris", {"a": 2})


def test_other_nodes_are_another_revision_and_one_node_is_as_if_nothing_were_said() -> None:
    template = {"spec": {}}
    assert revision_of("iris", template, 1) == revision_of("iris", template)
    assert len({revision_of("iris", template, nodes) for nodes in (1, 2, 3)}) == 3
    assert revision_of("iris", template, 2) == revision_of("iris", template, 2.0)  # type: ignore[arg-type]


def test_a_spec_digest_is_a_whole_sha256() -> None:
    assert spec_digest({"team": "alpha"}) == hashlib.sha256(b'{"team":"alpha"}').hexdigest()
