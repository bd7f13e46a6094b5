"""platform.yaml: defaults, what a cluster of one's own needs, and every problem at once."""

from __future__ import annotations

import pytest

from spec.platform import PlatformSpec, load_platform
from spec.problems import SpecError

FILE = "stacks/local/platform.yaml"
MINIMAL = "environment: local\n"
FOREIGN = """\
environment: local
cluster: {context: prod}
registry: registry.example.com:5000/knobless
model_registry: https://mlflow.example.com/
gateway: {expose: LoadBalancer, port: 443}
"""


def load(text: str) -> PlatformSpec:
    return load_platform(text, FILE, "local")


def told(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(text)
    return [str(problem).removeprefix(f"{FILE}:") for problem in caught.value.problems]


def test_the_embedded_cluster_needs_a_name_alone() -> None:
    spec = load(MINIMAL)
    assert (spec.cluster, spec.context, spec.registry, spec.model_registry) == ("embedded", None, None, None)
    assert spec.gateway.model_dump() == {"expose": "NodePort", "port": 8443, "spare_backends": 256}
    assert spec.autoscaler.model_dump() == {
        "down_window_s": 120,
        "up_window_s": 20,
        "fast_window_s": 5,
        "growth": 10.0,
        "utilization": 0.8,
    }
    assert spec.rollout.model_dump() == {"hold_s": 300, "start_timeout_s": 600}
    assert spec.teams == {}


def test_a_cluster_of_ones_own_is_named_by_its_context() -> None:
    spec = load(FOREIGN)
    assert (spec.context, spec.registry) == ("prod", "registry.example.com:5000/knobless")
    assert spec.model_registry == "https://mlflow.example.com"
    assert (spec.gateway.expose, spec.gateway.port, spec.gateway.spare_backends) == ("LoadBalancer", 443, 256)


def test_a_team_pulls_with_the_platforms_secrets_or_with_its_own() -> None:
    spec = load(
        FOREIGN
        + "pull_secrets: [registry-login]\nteams: {a: {}, b: {pull_secrets: [b.login]}, c: {pull_secrets: []}}\n"
    )
    assert [spec.pull_secrets_of(team) for team in "abc"] == [("registry-login",), ("b.login",), ()]
    assert load(MINIMAL + "teams: {a: {}}\n").pull_secrets_of("a") == ()


def test_a_team_has_an_optional_quota() -> None:
    spec = load(MINIMAL + 'teams: {alpha: {quota: {cpu: "8", memory: 16Gi, pods: 50}}, beta: {}}\n')
    quota = spec.teams["alpha"].quota
    assert (str(quota.cpu), str(quota.memory), quota.pods) == ("8", "16Gi", 50)
    assert spec.teams["beta"].quota.model_dump() == {"cpu": None, "memory": None, "pods": None}


@pytest.mark.parametrize("text", [MINIMAL, FOREIGN, MINIMAL + "teams: {a: {quota: {memory: 1Gi}}}\n"])
def test_a_platform_survives_its_own_json(text: str) -> None:
    spec = load(text)
    assert PlatformSpec.model_validate_json(spec.model_dump_json(exclude_unset=True)) == spec


def test_one_problem_names_all_that_a_cluster_of_ones_own_lacks() -> None:
    (problem,) = told("environment: local\ncluster: {context: prod}\n")
    assert problem.startswith("2:10: cluster: ")
    assert problem.endswith("missing: registry, model_registry, gateway.expose")


def test_a_gateway_without_a_way_out_is_missing_it() -> None:
    (problem,) = told(FOREIGN.replace("expose: LoadBalancer, ", ""))
    assert problem.endswith("this field is missing: gateway.expose")


def test_a_port_of_every_node_has_no_default_on_a_cluster_of_ones_own() -> None:
    (problem,) = told(FOREIGN.replace("LoadBalancer, port: 443", "NodePort"))
    assert problem.startswith("2:10: cluster: ") and "missing: gateway.port (a port of the cluster's range" in problem
    assert load(FOREIGN.replace("LoadBalancer, port: 443", "NodePort, port: 30443")).gateway.port == 30443
    assert load(FOREIGN.replace(", port: 443", "")).gateway.port == 8443


@pytest.mark.parametrize("registry", ["http://10.0.0.1:5000", "http://registry/team/models", "registry:5000"])
def test_a_registry_without_tls_says_so(registry: str) -> None:
    assert load(FOREIGN.replace("registry.example.com:5000/knobless", registry)).registry == registry


def test_what_a_context_lacks_is_told_beside_other_problems() -> None:
    problems = told("environment: local\ncluster: {context: prod}\nregistry: https://x\nteams: {A: {}}\n")
    assert [problem.split(": ")[1] for problem in problems] == ["cluster", "registry", "teams.A"]
    assert problems[0].endswith("missing: model_registry, gateway.expose")


@pytest.mark.parametrize(
    "lines,problem",
    [
        ("registry: x:5000", "2:11: registry: the embedded cluster brings its own registry: remove it"),
        ("model_registry: http://x", "2:17: model_registry: the embedded cluster brings its own model registry"),
        ("prometheus: http://x", "2:13: prometheus: the embedded cluster brings its own prometheus: remove it"),
        ("gateway: {expose: LoadBalancer}", "2:19: gateway.expose: the embedded cluster has no load balancer"),
        ("gateway: {expose: Ingress}", "2:19: gateway.expose: 'Ingress' is not allowed here (allowed: NodePort, Load"),
        ("gateway: {port: 0}", "2:17: gateway.port: 0 is too small (allowed: 1 to 65535)"),
        ("gateway: {spare_backends: 0}", "2:27: gateway.spare_backends: 0 is too small (allowed: 1 to 4096)"),
        ("cluster: kind", "2:10: cluster: 'kind' is not allowed here (allowed: embedded, {context: "),
        ("cluster: {}", "2:10: cluster.context: is missing"),
        ("cluster: {context: 7}", "2:20: cluster.context: must be text, not 7"),
        ("cluster: {contxt: a}", "2:11: cluster.contxt: unknown field"),
        ("cluster: [a]", "2:10: cluster: a list is not allowed here (allowed: embedded"),
        ("teams: [alpha]", "2:8: teams: must be a mapping"),
        ("teams: {alpha: }", "2:15: teams.alpha: has no value"),
        ("teams: {Alpha: {}}", "2:9: teams.Alpha: 'Alpha' is no name for the team"),
        ("teams: {no: {}}", "2:9: teams: key no is a truth value"),
        ("teams: {alpha: {qota: {}}}", "2:17: teams.alpha.qota: unknown field: did you mean quota?"),
        ("teams: {alpha: {quota: {cpus: 1}}}", "2:25: teams.alpha.quota.cpus: unknown field: did you mean cpu?"),
        ("teams: {alpha: {quota: {pods: 0}}}", "2:31: teams.alpha.quota.pods: 0 is too small (allowed: 1 to"),
        ("teams: {alpha: {quota: {memory: 1GB}}}", "2:33: teams.alpha.quota.memory: '1GB' is no amount of memory"),
        ("pull_secrets: login", "2:15: pull_secrets: must be a list, not 'login'"),
        ("pull_secrets: [Login]", "2:16: pull_secrets[0]: 'Login' is no name of a Secret: lower-case letters"),
        ("pull_secrets: [{name: a}]", "2:16: pull_secrets[0]: must be text, not a mapping"),
        ("pull_secrets: [a, a]", "2:15: pull_secrets: a stands twice"),
        ("teams: {a: {pull_secrets: [a..b]}}", "2:28: teams.a.pull_secrets[0]: 'a..b' is no name of a Secret"),
        ("autoscaler: {growth: 1}", "2:22: autoscaler.growth: 1 is too small (allowed: above 1 to 1000)"),
        ("autoscaler: {utilization: 1.1}", "2:27: autoscaler.utilization: 1.1 is too large (allowed: 0.1 to 1)"),
        ("autoscaler: {fast_window_s: 21}", "2:13: autoscaler.up_window_s: 20 is shorter than fast_window_s 21"),
        ("autoscaler: {down_window_s: 19}", "2:29: autoscaler.down_window_s: 19 is shorter than up_window_s 20"),
        ("autoscaler: {down_window_s: 30.5}", "2:29: autoscaler.down_window_s: must be a whole number, not 30.5"),
        ("rollout: {hold: 3}", "2:11: rollout.hold: unknown field: did you mean hold_s?"),
    ],
)
def test_a_wrong_field_is_a_problem_with_its_place(lines: str, problem: str) -> None:
    assert any(text.startswith(problem) for text in told(MINIMAL + lines + "\n")), told(MINIMAL + lines + "\n")


@pytest.mark.parametrize(
    "old,new,words",
    [
        ("registry.example.com:5000/knobless", "https://registry.example.com", "without https://"),
        ("registry.example.com:5000/knobless", "https://registry.example.com", "http://host:port where it has no TLS"),
        ("registry.example.com:5000/knobless", "http://", "is no registry"),
        ("registry.example.com:5000/knobless", "HTTP://registry", "is no registry"),
        ("registry.example.com:5000/knobless", "http://user:secret@registry", "is no registry"),
        ("registry.example.com:5000/knobless", "user@registry", "is no registry"),
        ("registry.example.com:5000/knobless", "registry:5000/", "is no registry"),
        ("https://mlflow.example.com/", "mlflow.example.com", "is no address of a model registry"),
        ("https://mlflow.example.com/", "ftp://mlflow", "is no address of a model registry"),
        ("https://mlflow.example.com/", "http://mlflow:99999", "is no address of a model registry"),
        ("https://mlflow.example.com/", "http://m\nprometheus: prometheus:9090", "is no address of a Prometheus"),
        ("https://mlflow.example.com/", "http://m\nprometheus: http://a:b@prometheus", "does not belong into Git"),
        ("https://mlflow.example.com/", "https://user:secret@mlflow", "does not belong into Git"),
        ("https://mlflow.example.com/", "https://mlflow?token=x", "has no ?"),
    ],
)
def test_an_address_that_can_not_be_used_is_refused(old: str, new: str, words: str) -> None:
    (problem,) = told(FOREIGN.replace(old, new))
    assert words in problem


def test_a_secret_in_an_address_is_not_repeated() -> None:
    (problem,) = told(FOREIGN.replace("https://mlflow", "https://user:secret@mlflow"))
    assert "secret" not in problem


def test_the_environment_is_named_as_its_folder() -> None:
    (problem,) = told("environment: prod\n")
    assert problem.startswith("1:14: environment: 'prod' differs from the folder's name 'local'")


def test_two_windows_in_the_wrong_order_are_told_beside_another_problem() -> None:
    problems = told(MINIMAL + "autoscaler: {fast_window_s: 30, growth: 0}\n")
    assert [text.split(": ")[1] for text in problems] == ["autoscaler.up_window_s", "autoscaler.growth"]
