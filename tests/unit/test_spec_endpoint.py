"""Endpoint files: defaults, rules, and every problem of a file at once with its place."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spec.endpoint import Concurrency, EndpointSpec, Latency, load_endpoint
from spec.problems import SpecError
from spec.quantities import Cpu, Memory

FILE = "stacks/local/endpoints/alpha/iris.yaml"
MINIMAL = "endpoint: iris\nmodel: models:/iris/1\nconcurrency: {min: 1, max: 64}\n"
FULL = """\
# a comment
endpoint: iris
model: models:/iris/7
concurrency:
  min: 4
  max: 2000
resources: {cpu: "2", memory: 2048Mi}
access: {teams: [gamma, beta]}
deadline_s: 30
queue: {max: 16, timeout_s: 2.5}
latency: {p95_ms: 250}
rollout: {hold_s: 0, start_timeout_s: 900}
"""


def load(text: str | bytes, file: str = FILE) -> EndpointSpec:
    return load_endpoint(text, file, "alpha")


def told(text: str | bytes, file: str = FILE) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text, file)
    return [str(problem) for problem in caught.value.problems]


def test_model_and_concurrency_are_enough() -> None:
    spec = load(MINIMAL)
    assert (spec.endpoint, spec.team, str(spec.model)) == ("iris", "alpha", "models:/iris/1")
    assert (spec.concurrency.min, spec.concurrency.max) == (1, 64)
    assert (spec.resources.cpu, spec.resources.memory) == (Cpu(500), Memory(1024**3))
    assert (spec.deadline_ms, spec.queue_timeout_ms, spec.queue_max) == (60_000, 5_000, 64)
    assert spec.allowed_teams == ("alpha",)
    assert (spec.rollout.hold_s, spec.rollout.start_timeout_s) == (None, None)
    assert spec.latency is None


def test_every_field_of_a_file_is_read() -> None:
    spec = load(FULL)
    assert (spec.model.version, spec.concurrency) == (7, Concurrency(min=4, max=2000))
    assert (str(spec.resources.cpu), str(spec.resources.memory)) == ("2", "2Gi")
    assert spec.allowed_teams == ("alpha", "beta", "gamma")
    assert (spec.deadline_ms, spec.queue_timeout_ms, spec.queue_max) == (30_000, 2_500, 16)
    assert (spec.rollout.hold_s, spec.rollout.start_timeout_s) == (0, 900)
    assert spec.latency == Latency(p95_ms=250)


def test_a_file_may_come_as_bytes() -> None:
    assert load(MINIMAL.encode()) == load(MINIMAL)


def test_two_spellings_of_an_amount_are_one_spec() -> None:
    one = load(MINIMAL + "resources: {cpu: 0.5, memory: 2Gi}\n")
    assert one == load(MINIMAL + 'resources: {cpu: "500m", memory: 2048Mi}\n')


def test_a_queue_holds_at_least_eight() -> None:
    assert load(MINIMAL.replace("64", "2")).queue_max == 8


def test_a_spec_does_not_change() -> None:
    with pytest.raises(ValidationError):
        load(MINIMAL).deadline_s = 1


def test_a_spec_survives_its_own_json() -> None:
    spec = load(FULL)
    assert EndpointSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "old,new,problem",
    [
        ("endpoint: iris", "endpoint: iri", "1:11: endpoint: 'iri' differs from the file's name 'iris'"),
        ("endpoint: iris", "endpoint: Iris", "1:11: endpoint: 'Iris' is no name for the endpoint"),
        ("endpoint: iris\n", "", "1:1: endpoint: is missing"),
        ("endpoint: iris", "endpoint: 1", "1:11: endpoint: must be text, not 1"),
        ("models:/iris/1", "models:/iris@best", "2:8: model: 'models:/iris@best' is an alias"),
        ("models:/iris/1", "models:/iris/latest", "2:8: model: 'models:/iris/latest' may mean"),
        ("models:/iris/1", "[a]", "2:8: model: a list is not allowed here (allowed: models:/<name>/<version>"),
        ("models:/iris/1", "7", "2:8: model: 7 is not allowed here (allowed: models:/<name>/<version>"),
        ("model: models:/iris/1\n", "", "1:1: model: is missing (allowed: models:/<name>/<version>"),
        ("concurrency: {min: 1, max: 64}", "", "1:1: concurrency: is missing"),
        ("{min: 1, max: 64}", "{min: 1}", "3:14: concurrency.max: is missing (allowed: 1 to 100000)"),
        ("{min: 1, max: 64}", "{min: 0, max: 64}", "3:20: concurrency.min: 0 is not yet possible"),
        ("{min: 1, max: 64}", "{min: -1, max: 64}", "3:20: concurrency.min: -1 is too small (allowed: 1 to"),
        ("{min: 1, max: 64}", "{min: 65, max: 64}", "3:29: concurrency.max: 64 is below min 65"),
        ("{min: 1, max: 64}", "{min: 1, max: 100001}", "3:28: concurrency.max: 100001 is too large (allowed: 1"),
        ("{min: 1, max: 64}", "{min: 1, max: 64.0}", "3:28: concurrency.max: must be a whole number, not 64.0"),
        ("{min: 1, max: 64}", '{min: 1, max: "64"}', "3:28: concurrency.max: must be a whole number, not '64'"),
        ("{min: 1, max: 64}", "{min: true, max: 64}", "3:20: concurrency.min: must be a whole number, not true"),
        ("{min: 1, max: 64}", "64", "3:14: concurrency: must be a mapping of `field: value`, not 64"),
        ("{min: 1, max: 64}", "{min: 1, Max: 64}", "3:23: concurrency.Max: unknown field: did you mean max?"),
    ],
)
def test_a_wrong_value_is_a_problem_with_its_place_and_what_is_allowed(old: str, new: str, problem: str) -> None:
    assert any(text.startswith(f"{FILE}:{problem}") for text in told(MINIMAL.replace(old, new)))


@pytest.mark.parametrize(
    "line,problem",
    [
        ("latency: {}", "4:10: latency.p95_ms: is missing (allowed: 1 to 297000)"),
        ("latency: {p95_ms: 0}", "4:19: latency.p95_ms: 0 is too small (allowed: 1 to 297000)"),
        ("latency: 250", "4:10: latency: must be a mapping"),
        ("deadline_s: 0", "4:13: deadline_s: 0 is too small (allowed: 1 to 297)"),
        ("deadline_s: 298", "4:13: deadline_s: 298 is too large (allowed: 1 to 297)"),
        ("deadline: 60", "4:1: deadline: unknown field: did you mean deadline_s? (allowed: endpoint, model, "),
        ("colour: red", "4:1: colour: unknown field (allowed: endpoint, model, concurrency, "),
        ("team: beta", "4:1: team: is set by where the file lies: remove it"),
        ("image: registry/iris:1", "4:1: image: not yet: "),
        ("queue: {max: 0}", "4:14: queue.max: 0 is too small (allowed: 1 to 100000)"),
        ("queue: {timeout_s: 0}", "4:20: queue.timeout_s: 0 is too small (allowed: 0.1 to 60)"),
        ("queue: {timeout_s: 61}", "4:20: queue.timeout_s: 61 is too large (allowed: 0.1 to 60)"),
        ("queue: {max: }", "4:13: queue.max: has no value"),
        ("access: {teams: beta}", "4:17: access.teams: must be a list, not 'beta'"),
        ("access: {teams: [beta, beta]}", "4:17: access.teams: beta stands twice"),
        ("access: {teams: [Beta]}", "4:18: access.teams[0]: 'Beta' is no name for the team"),
        ("access: [beta]", "4:9: access: must be a mapping"),
        ("resources: {cpu: 9m}", "4:18: resources.cpu: 9m is too small (allowed: 10m to 256)"),
        ("resources: {cpu: 257}", "4:18: resources.cpu: 257 is too large (allowed: 10m to 256)"),
        ("resources: {cpu: two}", "4:18: resources.cpu: 'two' is no amount of CPU (allowed: "),
        ("resources: {cpu: true}", "4:18: resources.cpu: true is not allowed here (allowed: "),
        ("resources: {memory: 512m}", "4:21: resources.memory: '512m' is no amount of memory: m means"),
        ("resources: {memory: 512}", "4:21: resources.memory: 512 is too small (allowed: 64Mi to 16Ti)"),
        ("resources: {gpu: 1}", "4:13: resources.gpu: unknown field (allowed: cpu, memory)"),
        ("rollout: {hold_s: -1}", "4:19: rollout.hold_s: -1 is too small (allowed: 0 to 86400)"),
        ("rollout: {start_timeout_s: 9}", "4:28: rollout.start_timeout_s: 9 is too small (allowed: 10 to 7200)"),
    ],
)
def test_a_wrong_optional_field_is_one_problem(line: str, problem: str) -> None:
    (text,) = told(MINIMAL + line + "\n")
    assert text.startswith(f"{FILE}:{problem}")


def test_an_image_instead_of_a_model_is_answered_with_not_yet_alone() -> None:
    (text,) = told(MINIMAL.replace("model: models:/iris/1", "image: registry/iris:1"))
    assert "image: not yet" in text


def test_problems_of_text_schema_and_fields_among_each_other_are_told_at_once() -> None:
    text = (
        "endpoint: irs\nmodel: models:/iris\nconcurrency: {min: 8, max: 4}\ndeadline_s: 1e3\nqueue: {max: 1, max: 2}\n"
    )
    assert [problem.split(":", 3)[3].split(":")[0].strip() for problem in told(text)] == [
        "endpoint",
        "model",
        "concurrency.max",
        "deadline_s",
        "queue.max",
    ]


def test_a_value_that_is_a_trap_is_told_once() -> None:
    (text,) = told(MINIMAL.replace("max: 64", "max: 0x40"))
    assert "hexadecimal" in text


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(told(MINIMAL + f"deadline_s: {'x' * 5000}\n")[0]) < 300


def test_a_key_or_value_can_not_write_to_the_terminal() -> None:
    text = MINIMAL + '"\\e[31mred\\n": 1\ndeadline_s: "\\e[0m"\n"' + "k" * 900 + '": 1\n'
    problems = told(text)
    assert len(problems) == 3
    assert all(problem.isprintable() and len(problem) < 500 for problem in problems)


def test_a_file_whose_name_is_no_endpoint_name_is_refused() -> None:
    assert any("differs" in text for text in told(MINIMAL, "stacks/local/endpoints/alpha/Iris.yaml"))


@pytest.mark.parametrize("text", [MINIMAL + "---\na: 1\n", "%YAML 1.1\n---\n" + MINIMAL])
def test_a_directive_or_a_second_document_does_not_hide_the_fields_problems(text: str) -> None:
    assert any("names no version" in problem for problem in told(text.replace("iris/1", "iris")))


@pytest.mark.case("autoscaler-E4")
@pytest.mark.case("autoscaler-H2")
@pytest.mark.case("autoscaler-H3")
def test_rows_about_waking_from_zero_do_not_apply_while_no_file_can_ask_for_zero() -> None:
    """No deploy of nothing, no request held for a first pod, no wake-up: one replica is always there."""
    with pytest.raises(SpecError, match="0 is not yet possible"):
        load_endpoint("endpoint: e\nmodel: models:/m/1\nconcurrency: {min: 0, max: 64}\n", "e.yaml", "alpha")
