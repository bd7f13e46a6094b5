"""`knobless simulate` as a person and a program see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simulator.policies import POLICIES
from stacks.cli import main
from stacks.cli.errors import ExitCode

SHORT = ("constant:rps=20", "--duration", "90", "--warm-up", "30", "--start-up", "5")
OWN = """
from simulator.policy import Plain

class Ten(Plain):
    name = "ten"

    def decide(self, seen):
        return 10
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.cli, ["simulate", *arguments])


def told(*arguments: str) -> dict[str, object]:
    result = run(*arguments, "--json")
    assert result.exit_code == ExitCode.OK, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_each_policy_has_a_row_and_none_a_plot_where_nobody_looks() -> None:
    result = run(*SHORT, "--policy", ",".join(POLICIES))
    assert result.exit_code == ExitCode.OK, result.output
    rows = [row.split()[0] for row in result.stdout.splitlines()[4:]]
    assert rows == list(POLICIES)


def test_a_plot_is_drawn_when_asked_for_and_has_no_colour_in_a_file() -> None:
    result = run(*SHORT, "--policy", "ours,hpa", "--plot")
    assert "replicas issued" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_seed_makes_it_exact_and_another_differs() -> None:
    one, same, other = (told(*SHORT, "--seed", seed) for seed in ("4", "4", "5"))
    assert one == same
    assert one["policies"] != other["policies"]


def test_runs_are_added_up() -> None:
    found = told(*SHORT, "--policy", "static=3", "--runs", "3")
    singles = [told(*SHORT, "--policy", "static=3", "--seed", str(seed)) for seed in range(3)]
    assert found["seeds"] == [0, 1, 2]
    assert found["policies"][0]["requests"] == sum(s["policies"][0]["requests"] for s in singles)  # type: ignore[index]


def test_seconds_are_told_to_programs_that_want_them() -> None:
    found = told(*SHORT, "--policy", "static=3", "--series")
    series = found["policies"][0]["series"]  # type: ignore[index]
    assert {len(values) for values in series.values()} == {90}
    assert series["issued"][-1] == 3


def test_a_policy_of_ones_own_is_ten_lines_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    found = told(*SHORT, "--policy", f"{tmp_path}/mine.py:Ten,ours")
    assert found["policies"][0]["peak"] == 10  # type: ignore[index]


def test_a_trace_is_scaled_and_a_log_brings_its_service_time(tmp_path: Path) -> None:
    trace = tmp_path / "day.csv"
    trace.write_text("at_s,rate_rps\n0,10\n60,20\n120,10\n")
    found = told(str(trace), "--scale", "3", "--warm-up", "0", "--policy", "static=20")
    assert found["duration_s"] == 180
    assert found["policies"][0]["requests"] == pytest.approx(7200, rel=0.06)  # type: ignore[index]
    log = tmp_path / "gateway.log"
    entry = {"message": "request", "endpoint": "wine", "status": 200, "total_ms": 40, "answer_ms": 40}
    log.write_text("\n".join(json.dumps(entry | {"time": f"2026-01-01T00:00:{s:02d}Z"}) for s in range(60)))
    assert told(str(log), "--warm-up", "0")["service_s"] == pytest.approx(0.04)


def test_what_goes_wrong_is_simulated_when_asked_for() -> None:
    calm = told(*SHORT, "--policy", "static=1")["policies"][0]  # type: ignore[index]
    slow = told(*SHORT, "--policy", "static=1", "--slow", "40", "60", "6")["policies"][0]  # type: ignore[index]
    rolled = told(*SHORT, "--policy", "static=1", "--rollout", "50", "--restart", "60")["policies"][0]  # type: ignore[index]
    assert slow["late"] > calm["late"] + 100
    assert rolled["replica_seconds"] > calm["replica_seconds"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such.csv",), "'no-such.csv' is no file, and no shape either"),
        (("step:form=3",), "LOAD: column 6: step has no 'form'"),
        ((*SHORT, "--policy", "hpaa"), "no policy 'hpaa'; there are ours, hpa,"),
        ((*SHORT, "--policy", "hpa=lots"), "hpa=lots: 'lots' is no number"),
        ((*SHORT, "--policy", "hpa=1.5"), "hpa=1.5: utilization is above 0 and at most 1"),
        ((*SHORT, "--policy", "mine.py:Ten"), "mine.py is no file"),
        ((*SHORT, "--min", "9", "--max", "3"), "--min 9 is above --max 3"),
        (("constant", "--duration", "60"), "--warm-up 120 leaves nothing of 60 s"),
        ((*SHORT, "--start-up", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_what_can_not_be_meant_is_one_message_and_wrong_usage(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, said in result.output) == (ExitCode.USAGE, True), result.output
    assert "Traceback" not in result.output


def test_a_file_with_problems_names_them_with_line_and_column(tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("at_s,rate_rps\n0,1\n60,x\n")
    result = run(str(bad))
    assert result.exit_code == ExitCode.USAGE
    assert f"{bad}:3:4: 'x' is no number" in result.output


def test_a_policy_file_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nothing_of_that_name\n")
    result = run(*SHORT, "--policy", f"{tmp_path}/mine.py:Ten")
    assert (result.exit_code, "ModuleNotFoundError" in result.output) == (ExitCode.USAGE, True)


def test_the_policy_in_the_documentation_runs(tmp_path: Path) -> None:
    page = Path("docs/simulator.md").read_text()
    (tmp_path / "mine.py").write_text(page.split("```python\n")[1].split("```")[0])
    found = told(*SHORT, "--policy", f"{tmp_path}/mine.py:Mine")
    assert found["policies"][0]["requests"] > 1000  # type: ignore[index]


def test_every_shape_and_command_in_the_documentation_can_be_meant() -> None:
    page = Path("docs/simulator.md").read_text()
    commands = [
        line.split("#")[0].split()[3:] for line in page.splitlines() if line.startswith("$ ./knobless simulate")
    ]
    assert len(commands) == 4
    for arguments in commands:
        shapes = [argument for argument in arguments if argument.endswith((".csv", ".log"))]
        assert shapes or run(*arguments, "--duration", "200").exit_code == ExitCode.OK
