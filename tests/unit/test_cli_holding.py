"""A person's hold, as the command line writes it: one annotation, one manager, the API server's clock."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from controllers.autoscaler.control import Control, Mode, parse_control
from controllers.autoscaler.record import line_of
from controllers.kube import Gvr, Object
from controllers.kube.fields import timestamp
from spec import names
from stacks.cli import holding, main
from stacks.cli.errors import ExitCode
from tests.unit.test_autoscaler_cycle import EVERY_KIND

NOW_S = 1_767_225_600.0


class Server:
    """Takes applies and says when it wrote, by its own clock."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s
        self.applied: list[tuple[str, str, dict[str, Any]]] = []

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        self.applied.append((f"{namespace}/{name}", manager, body["metadata"]))
        entry = {"manager": manager, "time": timestamp(NOW_S + self.ahead_s)}
        return {"metadata": {"managedFields": [{"manager": "pulumi", "time": timestamp(0.0)}, entry]}}


def endpoint(**annotations: str) -> Object:
    metadata = {"namespace": "team-alpha", "name": "wine", "uid": "u1", "annotations": annotations}
    status = {"autoscaler": {"targetConcurrency": 8.0}}
    return {"metadata": metadata, "spec": {"concurrency": {"min": 16, "max": 80}}, "status": status}


def held(metadata: dict[str, Any]) -> Control:
    return parse_control(metadata["annotations"][names.ANNOTATION_CONTROL])


async def test_a_hold_is_one_annotation_of_one_manager_on_this_very_object() -> None:
    server = Server()
    control = await holding.write(server, endpoint(), Mode.SCALE, 5, 1800.0, lambda: NOW_S)
    ((where, manager, metadata),) = server.applied
    assert (where, manager, metadata["uid"], set(metadata)) == (
        "team-alpha/wine",
        names.MANAGER_CONTROL,
        "u1",
        {"uid", "annotations"},
    )
    assert held(metadata) == control == Control(Mode.SCALE, 5, NOW_S + 1800.0)


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
async def test_a_hold_ends_by_the_servers_clock_whatever_this_machines_says(ahead_s: float) -> None:
    server = Server(ahead_s)
    await holding.write(server, endpoint(), Mode.SCALE, 5, 1800.0, lambda: NOW_S)
    assert held(server.applied[-1][2]).until_s == NOW_S + ahead_s + 1800.0


async def test_a_hold_without_an_end_is_written_once() -> None:
    server = Server(3600.0)
    assert await holding.write(server, endpoint(), Mode.PAUSE, None, None, lambda: NOW_S) == Control(Mode.PAUSE)
    assert len(server.applied) == 1


async def test_a_release_takes_over_what_another_hand_wrote_and_leaves_nothing() -> None:
    server = Server()
    await holding.release(server, endpoint(**{names.ANNOTATION_CONTROL: "stop!"}))
    assert [metadata["annotations"] for _, _, metadata in server.applied] == [{names.ANNOTATION_CONTROL: "stop!"}, {}]


@pytest.mark.parametrize(
    ("text", "length_s"), [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("1d", 86_400.0), ("30d", 2_592_000.0)]
)
def test_lengths_of_time_are_read(text: str, length_s: float) -> None:
    assert holding.seconds_of(text) == length_s


@pytest.mark.parametrize("text", ["", "30", "m", "1.5h", "-1h", "9s", "31d", "1w", "30 m"])
def test_what_is_no_length_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        holding.seconds_of(text)


@pytest.mark.parametrize(("replicas", "told"), [(1, True), (2, False), (10, False), (11, True)])
def test_a_number_that_the_range_bounds_is_told(replicas: int, told: bool) -> None:
    said = holding.bounded(endpoint(), replicas)
    assert said == ("its range of 16 to 80 requests allows 2 to 10 replicas at 8 each" if told else None)


def test_the_range_is_counted_by_the_declared_target_and_not_by_a_large_pools_own() -> None:
    large = endpoint()
    large["status"] = {
        "trafficRevision": "wine-1",
        "autoscaler": {"targetConcurrency": 9.0, "revisions": {"wine-1": {"declared": 8.0}}},
    }
    assert holding.bounded(large, 10) is None
    assert holding.bounded(large, 11) == "its range of 16 to 80 requests allows 2 to 10 replicas at 8 each"


def test_what_was_done_is_said_with_its_end() -> None:
    assert holding.said("wine", Control(Mode.SCALE, 5, 0.0 + 1800.0), 1800.0) == (
        "wine gets 5 replicas until 1970-01-01T00:30:00Z (30 min 00 s)"
    )
    assert holding.said("wine", Control(Mode.PAUSE), None) == "wine keeps its replicas until `knobless resume wine`"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.cli, arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("scale", "wine", "--replicas", "0", "--for", "30m"), "0 is not in the range x>=1"),
        (("scale", "wine", "--replicas", "3"), "Missing option '--for'"),
        (("scale", "wine", "--replicas", "3", "--for", "soon"), "'soon' is no length of time: 90s, 30m, 2h, 1d"),
        (("pause", "wine", "--for", "1s"), "1s is not from 10s to 30d"),
        (("replay", "none.jsonl"), "'none.jsonl' does not exist"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in result.output


def test_a_replay_ends_with_0_where_all_is_the_same_and_with_1_where_not(tmp_path: Path) -> None:
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_text(line_of(EVERY_KIND[0]) + "\n")
    plain = json.loads(line_of(EVERY_KIND[0]))
    plain["turn"]["verdict"]["unknown_s"] = 1.0
    other.write_text(json.dumps(plain) + "\n")
    assert (run("replay", str(same)).exit_code, run("replay", str(same)).output) == (0, "1 records decide the same\n")
    told = run("replay", str(other))
    assert (told.exit_code, told.output.splitlines()[0]) == (
        1,
        "line 1, team-alpha/iris: verdict.unknown_s: 0.0, was 1.0",
    )
