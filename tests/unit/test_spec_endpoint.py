"""Endpoint files: defaults, rules, and every problem of a file at once with its place."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runtimes import selection
from spec.endpoint import NODES_MOST, Accelerator, Concurrency, EndpointSpec, Latency, load_endpoint
from spec.image_reference import parse_image_reference
from spec.problems import SpecError
from spec.quantities import Cpu, Memory
from spec.variables import SecretKey

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
affinity: none
egress: ["https://api.openai.com", "postgresql://10.1.2.3:5432"]
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
    assert (spec.resources.cpu, spec.resources.memory, spec.runtime, spec.accelerator) == (None, None, None, None)
    assert (spec.first_limit, spec.least) == (64, (Cpu(100), Memory(1024**3)))
    assert (spec.deadline_ms, spec.queue_timeout_ms, spec.queue_max) == (60_000, 5_000, 64)
    assert spec.allowed_teams == ("alpha",)
    assert (spec.rollout.hold_s, spec.rollout.start_timeout_s) == (None, None)
    assert (spec.latency, spec.affinity, spec.egress) == (None, None, ())


def test_every_field_of_a_file_is_read() -> None:
    spec = load(FULL)
    assert (spec.model.version, spec.concurrency) == (7, Concurrency(min=4, max=2000))
    assert (str(spec.resources.cpu), str(spec.resources.memory)) == ("2", "2Gi")
    assert spec.allowed_teams == ("alpha", "beta", "gamma")
    assert (spec.deadline_ms, spec.queue_timeout_ms, spec.queue_max) == (30_000, 2_500, 16)
    assert (spec.rollout.hold_s, spec.rollout.start_timeout_s) == (0, 900)
    assert (spec.latency, spec.affinity) == (Latency(p95_ms=250), "none")
    assert spec.egress == ("https://api.openai.com", "postgresql://10.1.2.3:5432")


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
        (
            "model: models:/iris/1\n",
            "",
            "1:1: model: is missing, and no image is named instead (allowed: models:/<name>",
        ),
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
        ("affinity: session", "4:11: affinity: 'session' is not allowed here (allowed: prefix, none)"),
        (
            "egress: https://a",
            "4:9: egress: must be a list, not 'https://a' (allowed: [address, ...], each https://host",
        ),
        ("egress: [api.openai.com]", "4:10: egress[0]: 'api.openai.com' is nothing to reach (allowed: https://host"),
        ("egress: ['https://a/v1']", "4:10: egress[0]: 'https://a/v1' is nothing to reach"),
        ("egress: ['https://a:x']", "4:10: egress[0]: 'https://a:x' is nothing to reach"),
        ("egress: ['https://a:0']", "4:10: egress[0]: 'https://a:0' is nothing to reach"),
        ("egress: ['https://a b']", "4:10: egress[0]: 'https://a b' is nothing to reach"),
        ("egress: ['https://*.a']", "4:10: egress[0]: 'https://*.a' is nothing to reach"),
        ("egress: ['https://[fe80::1%a]']", "4:10: egress[0]: 'https://[fe80::1%a]' is nothing to reach"),
        ("egress: ['postgresql://a']", "4:10: egress[0]: 'postgresql://a' is nothing to reach"),
        ("egress: ['udp://a:53']", "4:10: egress[0]: udp does not run over TCP, and nothing else is opened"),
        ("egress: ['https://a', 'https://a']", "4:9: egress: https://a stands twice"),
        ("egress: ['https://me:secret@a']", "4:10: egress[0]: a user or a password does not belong into Git"),
        ("affinity: true", "4:11: affinity: true is not allowed here (allowed: prefix, none)"),
        ("deadline_s: 0", "4:13: deadline_s: 0 is too small (allowed: 1 to 297)"),
        ("deadline_s: 298", "4:13: deadline_s: 298 is too large (allowed: 1 to 297)"),
        ("deadline: 60", "4:1: deadline: unknown field: did you mean deadline_s? (allowed: endpoint, model, "),
        ("colour: red", "4:1: colour: unknown field (allowed: endpoint, model, image, container, concurrency, "),
        ("team: beta", "4:1: team: is set by where the file lies: remove it"),
        ("container: {protocol: v2}", "4:12: container: is for an image of one's own"),
        ("runtime: vlm", "4:10: runtime: 'vlm' is not allowed here (allowed: mlflow, vllm, triton)"),
        ("parallelism: 0", "4:14: parallelism: 0 is too small (allowed: 1 to 1000)"),
        ("parallelism: 1001", "4:14: parallelism: 1001 is too large (allowed: 1 to 1000)"),
        ("accelerator: {gpus: 9}", "4:21: accelerator.gpus: 9 is too large (allowed: 0 to 8)"),
        ("accelerator: {gpu_memory: 1Gi}", "4:27: accelerator.gpu_memory: 1Gi is too small (allowed: 4Gi to 1Ti)"),
        ("accelerator: {nodes: {a b: c}}", "4:28: accelerator.nodes.\"a b\": 'a b': 'c' is no label"),
        ("accelerator: {nodes: 2}", "4:22: accelerator.nodes: 2 is no label: how many nodes a replica spans is"),
        ("env: {A: 1}", "4:10: env.A: must be text, not 1"),
        ("env: {1A: x}", "4:7: env.1A: '1A' is no name of a variable"),
        ("env: {KNOBLESS_X: x}", "4:7: env.KNOBLESS_X: names that begin with KNOBLESS_ are the platform's own"),
        ("env: {PATH: /x}", "4:13: env.PATH: is set by the image of the model"),
        ("env: {API_KEY: abc}", "4:16: env.API_KEY: holds a secret as text"),
        ("env: {DB: 'http://u:p@h/x'}", "4:11: env.DB: holds a password in an address"),
        ("env: {A: {secret: openai}}", "4:10: env.A.key: is missing"),
        ("env: {A: {secret: Open_AI, key: k}}", "4:19: env.A.secret: 'Open_AI' is no name of a Secret"),
        ("env: {A: {secret: openai, key: k/l}}", "4:32: env.A.key: 'k/l' is no key of a Secret"),
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
        ("resources: {gpu: 1}", "4:13: resources.gpu: unknown field (allowed: cpu, memory, nodes)"),
        ("resources: {nodes: 0}", "4:20: resources.nodes: 0 is too small (allowed: 1 to 16)"),
        ("resources: {nodes: 17}", "4:20: resources.nodes: 17 is too large (allowed: 1 to 16)"),
        ("resources: {nodes: two}", "4:20: resources.nodes: must be a whole number, not 'two' (allowed: 1 to 16)"),
        ("resources: {nodes: {zone: a}}", "4:20: resources.nodes: a mapping is no number: labels of the nodes that it"),
        ("rollout: {hold_s: -1}", "4:19: rollout.hold_s: -1 is too small (allowed: 0 to 86400)"),
        ("rollout: {start_timeout_s: 9}", "4:28: rollout.start_timeout_s: 9 is too small (allowed: 10 to 7200)"),
    ],
)
def test_a_wrong_optional_field_is_one_problem(line: str, problem: str) -> None:
    (text,) = told(MINIMAL + line + "\n")
    assert text.startswith(f"{FILE}:{problem}")


@pytest.mark.case("runtimes-H4")
def test_a_model_without_a_version_is_refused_with_what_to_write() -> None:
    (text,) = told(MINIMAL.replace("models:/iris/1", "models:/fraud"))
    assert "'models:/fraud' names no version: write models:/fraud/<version>" in text


IMAGE = """\
endpoint: iris
image: ghcr.io/acme/iris:1.4
container: {protocol: v2}
concurrency: {min: 1, max: 64}
"""
CONTAINER = "container: {protocol: v2}"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (MINIMAL, "/invocations"),
        (IMAGE, "/v2/models/iris/infer"),
        (IMAGE.replace("v2", "mlflow"), "/invocations"),
        (IMAGE.replace("v2", "openai"), "/v1/chat/completions"),
        (IMAGE.replace("protocol: v2", "protocol: http, health: /up, paths: [/generate, /embed]"), "/generate"),
    ],
)
def test_a_prediction_is_asked_for_at_the_path_of_the_protocol(text: str, path: str) -> None:
    assert load(text).asked_at == path


def test_an_image_and_how_it_is_asked_are_enough() -> None:
    spec = load(IMAGE)
    assert (str(spec.image), spec.model) == ("ghcr.io/acme/iris:1.4", None)
    assert spec.container is not None
    assert (spec.container.port, spec.container.health_path) == (8080, "/v2/health/ready")
    assert (spec.container.user, spec.container.writable, spec.container.stop_s) == (None, (), 15)
    assert spec.first_limit == 8
    assert spec.least == (Cpu(150), Memory((1024 + 384) * 1024**2))


def test_a_replica_over_several_nodes_is_so_many_pods_and_no_more_than_selection_knows() -> None:
    spec = load(MINIMAL + "resources: {cpu: 2, nodes: 2}\n")
    assert (spec.resources.nodes, spec.pods_each) == (2, 2)
    assert spec.least == (Cpu(400), Memory(1024**3)), "of one pod"
    assert load(MINIMAL).pods_each == 1
    assert NODES_MOST == selection.NODES_MOST


def test_an_image_of_one_s_own_is_on_one_node() -> None:
    (text,) = told(IMAGE + "resources: {nodes: 2}\n")
    assert text.startswith(f"{FILE}:5:20: resources.nodes: only text that vLLM generates is split over nodes: write 1")
    assert load(IMAGE + "resources: {nodes: 1}\n").pods_each == 1


@pytest.mark.parametrize("runtime", ["mlflow", "triton"])
def test_a_runtime_that_splits_nothing_over_nodes_is_told_so_where_the_file_asks_for_it(runtime: str) -> None:
    (text,) = told(MINIMAL + f"runtime: {runtime}\nresources: {{nodes: 2}}\n")
    assert text.startswith(f"{FILE}:5:20: resources.nodes: only text that vLLM generates is split over nodes: write 1")
    assert load(MINIMAL + f"runtime: {runtime}\nresources: {{nodes: 1}}\n").pods_each == 1


def test_what_stands_beside_a_model_or_an_image_is_read() -> None:
    spec = load(
        MINIMAL + "runtime: vllm\nparallelism: 16\naccelerator: {gpus: 2, gpu_memory: 80Gi, nodes: {gpu: l4}}\n"
        "env: {MODE: fast, API_KEY: {secret: openai, key: token}}\n"
    )
    assert (spec.runtime, spec.parallelism, spec.first_limit) == ("vllm", 16, 16)
    assert spec.accelerator == Accelerator(gpus=2, gpu_memory=Memory(80 * 1024**3), nodes={"gpu": "l4"})
    assert spec.env == {"MODE": "fast", "API_KEY": SecretKey(secret="openai", key="token")}
    assert EndpointSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "old,new,problem",
    [
        ("iris:1.4", "iris", "2:8: image: 'ghcr.io/acme/iris' may mean another image tomorrow"),
        ("iris:1.4", "iris:latest", "2:8: image: 'ghcr.io/acme/iris:latest' may mean another image tomorrow"),
        ("ghcr.io/acme/", "", "2:8: image: 'iris:1.4' names no registry: write docker.io/library/iris:1.4"),
        ("ghcr.io/acme/", "acme/", "2:8: image: 'acme/iris:1.4' names no registry: write docker.io/acme/iris:1.4"),
        (":1.4", "@sha256:12", "2:8: image: 'sha256:12' is no digest"),
        ("ghcr.io", "https://ghcr.io", "2:8: image: 'https://ghcr.io/acme/iris:1.4' is an address"),
        ("ghcr.io/acme/iris", "ghcr.io/Acme/iris", "2:8: image: 'ghcr.io/Acme/iris:1.4' is no name of an image"),
        (CONTAINER, "", "1:1: container: is missing: say how the image is asked (allowed: {protocol: mlflow"),
        (CONTAINER, "container: {}", "3:12: container.protocol: is missing (allowed: mlflow, v2, openai, http)"),
        ("v2}", "v3}", "3:23: container.protocol: 'v3' is not allowed here (allowed: mlflow, v2, openai, http)"),
        ("v2}", "v2, port: 80}", "3:33: container.port: 80 is a port for root"),
        ("v2}", "v2, port: 18080}", "3:33: container.port: 18080 is the port of the platform's interface"),
        ("v2}", "v2, health: x}", "3:35: container.health: 'x' is no path"),
        ("v2}", "v2, paths: [p]}", "3:35: container.paths[0]: 'p' is no path"),
        ("v2}", "v2, paths: [/a/../b]}", "3:35: container.paths[0]: '/a/../b' is no path"),
        ("v2}", 'v2, paths: [/a, "/b?c"]}', "3:39: container.paths[1]: '/b?c' is no path"),
        ("v2}", "v2, paths: [/a, /b, /a]}", "3:34: container.paths: /a stands there twice"),
        ("v2}", "http, health: /}", "3:12: container.paths: the protocol http has no paths of its own"),
        ("v2}", "http, paths: [/p]}", "3:12: container.health: the protocol http has no health path of its own"),
        ("v2}", "http, health: /, paths: [/metrics]}", "3:48: container.paths[0]: /metrics is answered by"),
        ("v2}", "v2, writable: [/etc]}", "3:38: container.writable[0]: '/etc' can't be made writable"),
        ("v2}", "v2, user: 0}", "3:33: container.user: 0 is too small"),
        ("v2}\n", "v2}\nmodel: models:/iris/1\n", "2:8: image: stands beside a model"),
        ("v2}\n", "v2}\nruntime: vllm\n", "4:10: runtime: is for a model"),
    ],
)
def test_what_is_wrong_with_an_image_is_one_problem_with_its_place(old: str, new: str, problem: str) -> None:
    (text,) = told(IMAGE.replace(old, new))
    assert text.startswith(f"{FILE}:{problem}")


def test_a_container_of_one_s_own_may_set_variables_that_a_model_s_image_has_itself() -> None:
    assert load(IMAGE + "env: {PYTHONPATH: /app}\n").env == {"PYTHONPATH": "/app"}


def test_an_image_and_a_model_with_other_problems_are_told_together() -> None:
    text = IMAGE + "model: models:/iris\nparallelism: 0\n"
    assert [problem.split(": ")[1] for problem in told(text)] == ["image", "model", "parallelism"]


@pytest.mark.parametrize(
    ("text", "version", "by_digest"),
    [
        ("r.io/a/b:1.4", "1.4", "r.io/a/b@sha256:" + "0" * 64),
        ("r:5000/b@sha256:" + "a" * 64, "a" * 12, "r:5000/b@sha256:" + "a" * 64),
        ("localhost/b:2@sha256:" + "a" * 64, "2", "localhost/b@sha256:" + "a" * 64),
        ("r.io/b:" + "x" * 100, "x" * 12, "r.io/b@sha256:" + "0" * 64),
    ],
)
def test_an_image_is_called_by_its_tag_and_run_by_its_digest(text: str, version: str, by_digest: str) -> None:
    image = parse_image_reference(text)
    assert (str(image), image.version_text) == (text, version)
    assert image.at("sha256:" + "0" * 64) == by_digest


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
