"""The log of decisions on a real disk: bounded in memory and in size, its losses counted; and its replay."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from controllers.autoscaler import replay
from controllers.autoscaler.journal import FILE, FILES, Journal, lines_of
from controllers.autoscaler.record import line_of
from tests.unit.test_autoscaler_cycle import EVERY_KIND

LINE = '{"at_s":1.0,"namespace":"team-alpha","endpoint":"iris","x":%d}'


def lines(folder: Path, endpoint: str = "iris") -> list[str]:
    return list(lines_of(folder, "team-alpha", endpoint))


async def test_lines_are_written_in_their_order_and_read_by_endpoint(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "made")
    for number in range(3):
        journal.put(LINE % number)
        journal.put((LINE % number).replace("iris", "iris-2"))
    await journal.flush()
    assert lines(tmp_path / "made") == [LINE % number for number in range(3)]
    assert lines(tmp_path / "made", "none") == []


class Telling(Journal):
    """Says when it has written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written = asyncio.Event()

    async def flush(self) -> None:
        await super().flush()
        self.written.set()


async def test_a_line_that_waits_is_written_by_the_task(tmp_path: Path) -> None:
    journal = Telling(tmp_path)
    running = asyncio.create_task(journal.run())
    journal.put(LINE % 1)
    await asyncio.wait_for(journal.written.wait(), 5)
    assert lines(tmp_path) == [LINE % 1]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


async def test_the_files_are_bounded_and_the_newest_stay(tmp_path: Path) -> None:
    journal = Journal(tmp_path, bytes_max=10 * len(LINE))
    for number in range(1000):
        journal.put(LINE % number)
        if number % 7 == 0:
            await journal.flush()
    await journal.flush()
    assert list(sizes(tmp_path)) == [FILE, *(f"{FILE}.{number}" for number in range(1, FILES))]
    assert max(sizes(tmp_path).values()) <= 10 * len(LINE)
    kept = [json.loads(line)["x"] for line in lines(tmp_path)]
    assert kept == list(range(kept[0], 1000))


async def test_what_finds_no_room_in_the_queue_is_dropped_and_counted(tmp_path: Path) -> None:
    dropped: list[int] = []
    journal = Journal(tmp_path, dropped.append, queue_max=5)
    for number in range(8):
        journal.put(LINE % number)
    await journal.flush()
    assert (sum(dropped), len(lines(tmp_path))) == (3, 5)


async def test_a_disk_that_takes_nothing_loses_lines_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dropped: list[int] = []
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file", dropped.append)
    for _ in range(3):
        journal.put(LINE % 1)
        await journal.flush()
    assert sum(dropped) == 3
    assert len(caplog.records) == 1, "said once"


def test_a_half_written_last_line_is_not_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f"{LINE % 1}\n{LINE % 2}")
    assert lines(tmp_path) == [LINE % 1]


def run_replay(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = replay.main([str(path)])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_log_replays_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log"
    path.write_text("".join(line_of(record) + "\n" for record in EVERY_KIND) + "\n")
    assert run_replay(path, capsys) == (0, f"{len(EVERY_KIND)} records decide the same\n")


def test_a_replay_names_the_first_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(line_of(EVERY_KIND[0]))
    plain["turn"]["verdict"]["demand"]["requests"] = 1.5
    path = tmp_path / "log"
    path.write_text(f"{line_of(EVERY_KIND[1])}\n{json.dumps(plain)}\nno record\n")
    code, said = run_replay(path, capsys)
    assert code == 1
    requests = EVERY_KIND[0].turn.verdict.demand.requests
    assert said == (
        f"line 2, team-alpha/iris: verdict.demand.requests: {requests}, was 1.5\n"
        "1 of 2 records decide otherwise, 1 lines are no record\n"
    )


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_replay(tmp_path / "none", capsys) == (2, f"{tmp_path / 'none'}: No such file or directory\n")
