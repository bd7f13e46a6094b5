"""Invariants of the vocabulary: a loader answers with a spec or a SpecError, and each value has one spelling."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from spec import names
from spec.endpoint import EndpointSpec, load_endpoint
from spec.environment import load_environment
from spec.platform import load_platform
from spec.problems import SpecError
from spec.quantities import Cpu, Memory, parse_cpu, parse_memory
from spec.revision import canonical_json
from spec.yaml_text import read_yaml

FILE = "stacks/local/endpoints/alpha/iris.yaml"
FIELDS = ["endpoint", "model", "concurrency", "min", "max", "resources", "cpu", "access", "teams", "queue", "cluster"]
FIELDS += ["image", "container", "protocol", "port", "paths", "env", "secret", "key", "accelerator", "nodes", "runtime"]
WORDS = [
    "r.io/a:1",
    "v2",
    "iris",
    "models:/iris/1",
    "on",
    "010",
    "1e3",
    "0",
    "64",
    "-1",
    "~",
    "{}",
    "[]",
    "*a",
    "&a 1",
    "!!str x",
    "1Gi",
]
PIECES = st.sampled_from([*[f"{field}: " for field in FIELDS], *WORDS, "\n", "  ", "- ", "{", "}", "[", "]", ", ", "'"])
YAML_LIKE = st.lists(PIECES, max_size=40).map("".join)
TEXTS = st.one_of(st.text(max_size=200), YAML_LIKE, st.binary(max_size=200))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
WITHOUT_DEADLINE = settings(deadline=None)  # a busy machine is slow, not wrong
LABEL = st.from_regex(r"[a-z]([-a-z0-9]{0,14}[a-z0-9])?", fullmatch=True)


@WITHOUT_DEADLINE
@given(TEXTS)
def test_loading_any_text_ends_in_a_spec_or_a_spec_error(text: str | bytes) -> None:
    for load in (lambda: load_endpoint(text, FILE, "alpha"), lambda: load_platform(text, FILE, "local")):
        try:
            load()
        except SpecError as error:
            assert error.problems


@WITHOUT_DEADLINE
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5))
def test_loading_any_values_ends_in_a_spec_or_a_spec_error(values: dict[str, Any]) -> None:
    try:
        load_endpoint(json.dumps(values), FILE, "alpha")
    except SpecError as error:
        assert all(str(problem).startswith(FILE) for problem in error.problems)


@WITHOUT_DEADLINE
@given(st.dictionaries(st.sampled_from([FILE, "stacks/local/platform.yaml", "x", ""]) | st.text(max_size=30), TEXTS))
def test_loading_any_files_ends_in_an_environment_or_a_spec_error(files: dict[str, str | bytes]) -> None:
    try:
        load_environment("local", files)
    except SpecError as error:
        assert error.problems


@WITHOUT_DEADLINE
@given(YAML_LIKE)
def test_a_text_without_problems_means_the_same_to_another_reader(text: str) -> None:
    document = read_yaml(text, "f.yaml")
    if not document.problems:
        assert document.value == yaml.safe_load(text)


@WITHOUT_DEADLINE
@given(st.integers(0, 10**9).map(Cpu))
def test_an_amount_of_cpu_is_read_back_from_its_spelling(cpu: Cpu) -> None:
    assert parse_cpu(str(cpu)) == cpu


@WITHOUT_DEADLINE
@given(st.integers(0, 2**48).map(Memory))
def test_an_amount_of_memory_is_read_back_from_its_spelling(memory: Memory) -> None:
    assert parse_memory(str(memory)) == memory


@WITHOUT_DEADLINE
@given(VALUES)
def test_canonical_json_is_json_and_its_own_canonical_form(value: Any) -> None:
    canonical = canonical_json(value)
    assert canonical_json(json.loads(canonical)) == canonical


@WITHOUT_DEADLINE
@given(LABEL, LABEL, LABEL)
def test_every_stack_is_found_again_by_its_name_and_by_its_file(environment: str, team: str, endpoint: str) -> None:
    for stack in (names.PlatformStack(environment), names.EndpointStack(environment, team, endpoint)):
        assert names.parse_stack(stack.name) == stack
        assert names.stack_of_file(stack.file) == stack


@WITHOUT_DEADLINE
@given(st.text(max_size=60))
def test_a_text_that_names_a_stack_is_that_stacks_name(text: str) -> None:
    try:
        stack = names.parse_stack(text)
    except ValueError:
        return
    assert stack.name == text


@WITHOUT_DEADLINE
@given(
    low=st.integers(1, 100_000),
    high=st.integers(1, 100_000),
    deadline_s=st.integers(1, 297),
    cpu=st.integers(10, 256_000).map(Cpu),
)
def test_a_spec_written_out_is_read_back_equal(low: int, high: int, deadline_s: int, cpu: Cpu) -> None:
    low, high = sorted((low, high))
    text = (
        f"endpoint: iris\nmodel: models:/iris/1\nconcurrency: {{min: {low}, max: {high}}}\n"
        f"deadline_s: {deadline_s}\nresources: {{cpu: {cpu}}}\n"
    )
    spec = load_endpoint(text, FILE, "alpha")
    assert (spec.concurrency.min, spec.concurrency.max, spec.deadline_s) == (low, high, deadline_s)
    assert EndpointSpec.model_validate_json(spec.model_dump_json()) == spec
