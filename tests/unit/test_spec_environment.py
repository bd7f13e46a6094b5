"""A whole environment: what no single file shows, all problems of all files at once."""

from __future__ import annotations

import pytest

from spec.environment import Environment, effective_rollout, load_environment
from spec.problems import SpecError

PLATFORM = "environment: local\nteams: {alpha: {}, beta: {}}\n"


def endpoint(name: str, extra: str = "") -> str:
    return f"endpoint: {name}\nmodel: models:/m/1\nconcurrency: {{min: 1, max: 64}}\n{extra}"


def load(platform: str | None = PLATFORM, **more: str) -> Environment:
    """Keyword `alpha__iris` is the file of endpoint iris of team alpha."""
    files = {f"stacks/local/endpoints/{name.replace('__', '/')}.yaml": text for name, text in more.items()}
    return load_environment("local", files if platform is None else files | {"stacks/local/platform.yaml": platform})


def told(files: dict[str, str | bytes]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_environment("local", files)
    return [str(problem) for problem in caught.value.problems]


def test_an_environment_is_its_platform_and_its_endpoints_by_name() -> None:
    environment = load(beta__iris=endpoint("iris"), alpha__wine=endpoint("wine", "access: {teams: [beta]}\n"))
    assert environment.platform.environment == "local"
    assert [(spec.endpoint, spec.team) for spec in environment.endpoints] == [("iris", "beta"), ("wine", "alpha")]
    assert environment.endpoint("wine") is environment.endpoints[1]
    assert environment.endpoint("none") is None


def test_an_environment_without_endpoints_is_one() -> None:
    assert load().endpoints == ()


def test_hidden_files_and_notes_are_passed_over() -> None:
    files = {
        "stacks/local/platform.yaml": PLATFORM,
        "stacks/local/README.md": "# x",
        "stacks/local/endpoints/.keep": "",
    }
    assert load_environment("local", files).endpoints == ()


def test_a_name_given_by_two_teams_is_a_problem_that_names_the_other_file() -> None:
    with pytest.raises(SpecError) as caught:
        load(alpha__iris=endpoint("iris"), beta__iris=endpoint("iris"))
    assert [str(problem) for problem in caught.value.problems] == [
        "stacks/local/endpoints/beta/iris.yaml:1:11: endpoint: 'iris' stands in "
        "stacks/local/endpoints/alpha/iris.yaml too: a name is given once in an environment"
    ]


def test_a_folder_of_no_declared_team_is_a_problem() -> None:
    with pytest.raises(SpecError, match=r"gamma/iris.yaml:1:1: the folder names team 'gamma'.*allowed: alpha, beta"):
        load(gamma__iris=endpoint("iris"))


def test_access_for_no_declared_team_is_a_problem_at_the_list_entry() -> None:
    with pytest.raises(SpecError, match=r"iris.yaml:4:24: access.teams\[1\]: 'gamma' is no team"):
        load(alpha__iris=endpoint("iris", "access: {teams: [beta, gamma]}\n"))


def test_teams_are_checked_even_where_the_platform_has_another_problem() -> None:
    with pytest.raises(SpecError) as caught:
        load(PLATFORM + "cluster: x\n", gamma__iris=endpoint("iris"))
    assert len(caught.value.problems) == 2


def test_teams_that_can_not_be_read_are_not_held_against_the_endpoints() -> None:
    with pytest.raises(SpecError) as caught:
        load("environment: local\nteams: *x\n", gamma__iris=endpoint("iris"))
    assert len(caught.value.problems) == 1


def alpha_with(quota: str, more: str = "") -> str:
    return f"environment: local\nteams: {{alpha: {{quota: {{{quota}}}}}}}\n{more}"


def test_a_quota_without_room_for_the_floors_and_one_successor_is_a_problem_of_each_field() -> None:
    """Floors at a target of 51.2: min 100 -> 2 replicas, min 1 -> 1. The largest needs its floor twice."""
    large = endpoint("iris", "resources: {cpu: '1', memory: 2Gi}\n").replace("min: 1, max: 64", "min: 100, max: 200")
    with pytest.raises(SpecError) as caught:
        load(alpha_with("cpu: 850m, memory: 8Gi, pods: 4"), alpha__iris=large, alpha__wine=endpoint("wine"))
    assert [str(problem).split(": ", 1)[1] for problem in caught.value.problems] == [
        "teams.alpha.quota.cpu: the floors need 500m (iris 2 x 200m, wine 1 x 100m) and a successor of iris needs "
        "400m beside them: 900m is more than 850m",
        "teams.alpha.quota.memory: the floors need 5Gi (iris 2 x 2Gi, wine 1 x 1Gi) and a successor of iris needs "
        "4Gi beside them: 9Gi is more than 8Gi",
        "teams.alpha.quota.pods: the floors need 3 (iris 2 x 1, wine 1 x 1) and a successor of iris needs "
        "2 beside them: 5 is more than 4",
    ]
    assert str(caught.value.problems[0]).startswith("stacks/local/platform.yaml:2:")


@pytest.mark.parametrize(
    ("minimum", "quota", "fits"),
    [
        (1, "pods: 2", True),  # the floor and its successor
        (1, "pods: 1", False),
        (51, "pods: 2", True),  # 51 / 51.2 -> 1
        (52, "pods: 2", False),  # 52 / 51.2 -> 2, so 4 during a rollout
        (52, "pods: 4", True),
        (1, "memory: 2Gi", True),
        (1, "memory: 2047Mi", False),
        (1, "cpu: 200m", True),  # requested: a fifth of 500m
        (1, "cpu: 199m", False),
    ],
)
def test_a_quota_holds_the_floor_and_a_successor_beside_it(minimum: int, quota: str, fits: bool) -> None:
    iris = endpoint("iris").replace("min: 1", f"min: {minimum}")
    if fits:
        assert len(load(alpha_with(quota), alpha__iris=iris).endpoints) == 1
    else:
        with pytest.raises(SpecError, match=f"quota.{quota.split(':')[0]}: the floors need"):
            load(alpha_with(quota), alpha__iris=iris)


@pytest.mark.parametrize(
    ("quota", "fits"),
    [
        ("pods: 6", True),  # a floor of one replica, and its successor
        ("pods: 5", False),
        ("memory: 12Gi", True),
        ("memory: 12287Mi", False),
        ("cpu: 1200m", True),  # requested: a fifth of 1, three times, twice
        ("cpu: 1199m", False),
    ],
)
def test_a_quota_counts_every_pod_of_a_replica_over_several_nodes(quota: str, fits: bool) -> None:
    wide = endpoint("iris", "resources: {cpu: '1', memory: 2Gi, nodes: 3}\n")
    if fits:
        assert load(alpha_with(quota), alpha__iris=wide).endpoints
    else:
        with pytest.raises(SpecError, match=f"quota.{quota.split(':')[0]}: the floors need"):
            load(alpha_with(quota), alpha__iris=wide)


def test_the_floor_follows_the_platforms_utilization() -> None:
    iris = endpoint("iris").replace("min: 1", "min: 52")
    platform = alpha_with("pods: 2", "autoscaler: {utilization: 0.9}\n")  # 52 / 57.6 -> 1
    assert load(platform, alpha__iris=iris).endpoints


def test_of_many_endpoints_the_three_largest_are_named() -> None:
    many = {f"alpha__e{number}": endpoint(f"e{number}") for number in range(9)}
    with pytest.raises(SpecError, match=r"need 9 \(e0 1 x 1, e1 1 x 1, e2 1 x 1, 6 more\).*10 is more than 9"):
        load(alpha_with("pods: 9"), **many)


def test_a_quota_of_a_team_without_endpoints_is_no_problem() -> None:
    assert load(alpha_with("pods: 1")).endpoints == ()


@pytest.mark.parametrize(
    "path,words",
    [
        ("stacks/local/endpoints/alpha/iris.yml", "rename it to end in .yaml"),
        ("stacks/local/platform.yml", "rename it to end in .yaml"),
        ("stacks/local/endpoints/iris.yaml", "declares no stack"),
        ("stacks/local/alpha/iris.yaml", "declares no stack"),
        ("stacks/local/endpoints/alpha/old/iris.yaml", "declares no stack"),
        ("stacks/local/endpoints/alpha/iris.yaml.bak", "declares no stack"),
        ("stacks/local/endpoints/Alpha/iris.yaml", "is no name for the team"),
        ("stacks/local/endpoints/alpha/iris_2.yaml", "is no name for the endpoint"),
        ("stacks/prod/endpoints/alpha/iris.yaml", "lies outside of stacks/local"),
        ("stacks/prod/platform.yaml", "lies outside of stacks/local"),
        ("elsewhere/iris.yaml", "lies outside of stacks/local"),
    ],
)
def test_a_file_that_declares_nothing_is_a_problem(path: str, words: str) -> None:
    (problem,) = told({"stacks/local/platform.yaml": PLATFORM, path: endpoint("iris")})
    assert problem.startswith(f"{path}: ")
    assert words in problem


def test_a_missing_platform_file_is_a_problem_beside_the_others() -> None:
    problems = told({"stacks/local/endpoints/alpha/iris.yaml": "endpoint: iri\n"})
    assert "stacks/local/platform.yaml: the file is missing: it declares the environment" in problems
    assert len(problems) == 4


def test_all_problems_of_all_files_are_told_in_the_order_of_the_files() -> None:
    problems = told(
        {
            "stacks/local/platform.yaml": "environment: prod\nteams: {alpha: {}}\n",
            "stacks/local/endpoints/alpha/b.yaml": "endpoint: b\nmodel: models:/b/1\nconcurrency: {min: 2, max: 1}\n",
            "stacks/local/endpoints/beta/a.yaml": b"endpoint: \xff\n",
        }
    )
    assert [problem.split(":")[0].removeprefix("stacks/local/") for problem in problems] == [
        "endpoints/alpha/b.yaml",
        "endpoints/beta/a.yaml",
        "endpoints/beta/a.yaml",
        "platform.yaml",
    ]


def test_an_endpoints_rollout_settings_win_over_the_platforms() -> None:
    environment = load(
        PLATFORM + "rollout: {hold_s: 60}\n", alpha__iris=endpoint("iris", "rollout: {start_timeout_s: 30}\n")
    )
    rollout = effective_rollout(environment.endpoints[0], environment.platform)
    assert (rollout.hold_s, rollout.start_timeout_s) == (60, 30)
