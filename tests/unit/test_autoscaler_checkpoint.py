"""Checkpoints: what they hold, who gets one back, how many objects they take, and that a bad one does no harm."""

import copy
import json
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from typing import Any, get_args, get_type_hints

import pytest

from controllers.autoscaler.checkpoint import (
    ENTRY_BYTES_MAX,
    REFRESH_S,
    SHARD_BYTES_MAX,
    TTL_S,
    Checkpoint,
    Name,
    alive,
    data_key,
    entry_of,
    fitted,
    is_news,
    name_of,
    parse_entry,
    shard_count,
    shard_of,
    shards_holding,
)
from controllers.autoscaler.checkpoints import Checkpoints
from controllers.autoscaler.circuit import Circuit, Phase
from controllers.autoscaler.core import State
from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.gap import BRIDGE_MAX_S, bridged, mean_rps
from controllers.autoscaler.moment import MOMENT
from controllers.autoscaler.plain import Unreadable
from controllers.autoscaler.recent import Recent
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Demands
from controllers.kube import Conflict, Gvr, Object, Unreachable
from controllers.lease import FencedWriter, NotLeader
from spec import names

WALL_S = 1_700_000_000.0
SETTINGS = Settings()
IRIS: Name = ("team-alpha", "iris")


def remembered(demand: float = 40.0, at_s: float = 500.0, known_at_s: float = 510.0) -> Remembered:
    demands = Demands(((at_s, demand),), known_since_s=100.0, known_at_s=known_at_s)
    circuit = Circuit(Phase.OPEN, 505.0, 30.0, 1, 2, 3)
    return Remembered(State(demands, known_at_s), {"iris-a": circuit}, 0.2, 12.0)


def checkpoint(written_s: float = WALL_S, uid: str = "u1", **changes: float) -> Checkpoint:
    return Checkpoint(uid, written_s, remembered(**changes), {"g1": {"iris-a": 1000}})


def test_times_are_the_walls_in_the_file_and_the_own_clocks_when_read() -> None:
    text = entry_of(checkpoint(), offset_s=WALL_S - 510.0)
    assert json.loads(text)["remembered"]["state"]["known_at_s"] == WALL_S
    after_a_restart = parse_entry(text, offset_s=WALL_S - 7.0)
    assert after_a_restart.remembered.state.known_at_s == 7.0
    assert after_a_restart.remembered.circuits["iris-a"].since_s == 2.0
    assert after_a_restart.arrivals == {"g1": {"iris-a": 1000}}


def fields_of(kind: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a tree of dataclasses, by its path."""
    for argument in get_args(kind):
        yield from fields_of(argument)
    if is_dataclass(kind):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            yield f"{kind.__name__}.{name}", hint  # type: ignore[union-attr]
            yield from fields_of(hint)


def test_whatever_is_remembered_as_a_time_is_marked_as_one() -> None:
    """Else a checkpoint would give another process a time of this one's clock."""
    told = dict(fields_of(Remembered))
    times = {path for path in told if path.endswith(("_at_s", "since_s", "until_s"))}
    assert times
    assert {path for path in times if MOMENT not in repr(told[path])} == set()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "uid": 3}'],
)
@pytest.mark.case("autoscaler-G7")
def test_a_broken_or_newer_entry_is_no_checkpoint(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_entry(text, 0.0)


def test_an_unknown_field_is_passed_over() -> None:
    plain = json.loads(entry_of(checkpoint(), 0.0))
    plain["remembered"]["of_tomorrow"] = 1
    assert parse_entry(json.dumps(plain), 0.0) == checkpoint()


def test_news_is_what_changed_beyond_its_times_or_grew_old_or_is_anothers() -> None:
    kept = checkpoint()
    assert is_news(None, kept)
    assert not is_news(kept, checkpoint(WALL_S + 60.0, at_s=560.0, known_at_s=570.0))
    assert is_news(kept, checkpoint(WALL_S + 60.0, demand=41.0))
    assert is_news(kept, checkpoint(WALL_S + 60.0, uid="u2"))
    assert is_news(kept, checkpoint(WALL_S + REFRESH_S))


def test_more_silence_is_no_news_and_a_circuit_or_w_is() -> None:
    def silent(spans: int, **others: object) -> Checkpoint:
        recent = Recent(tuple((10.0 * span, 0.0) for span in range(spans)), 8)
        state = State(Demands(((10.0 * spans, 0.0),), 0.0, 10.0 * spans), recent=recent)
        return replace(checkpoint(WALL_S), remembered=Remembered(state, **others))  # type: ignore[arg-type]

    kept = silent(5, service_time_s=0.2)
    assert not is_news(kept, silent(9, service_time_s=0.2))
    assert is_news(kept, silent(9, service_time_s=0.3))
    assert is_news(kept, silent(9, service_time_s=0.2, circuits={"iris-a": Circuit(Phase.OPEN)}))
    assert is_news(kept, checkpoint(WALL_S + 60.0))
    assert is_news(checkpoint(WALL_S), replace(kept, written_s=WALL_S))


@pytest.mark.case("autoscaler-G8")
def test_an_endpoint_that_is_gone_keeps_its_checkpoint_for_30_days() -> None:
    kept = {IRIS: checkpoint()}
    assert alive(kept, {}, WALL_S + TTL_S - 1.0) == kept
    assert alive(kept, {}, WALL_S + TTL_S) == {}
    assert alive(kept, {IRIS: None}, WALL_S + TTL_S) == kept


@pytest.mark.parametrize(
    ("endpoints", "shards"), [(0, 1), (200, 1), (201, 2), (401, 4), (10_000, 64), (10**6, names.CHECKPOINTS_MAX)]
)
def test_one_object_holds_some_200_endpoints(endpoints: int, shards: int) -> None:
    assert shard_count(endpoints) == shards


def test_the_count_of_shards_is_found_again_from_the_highest() -> None:
    assert [shards_holding(numbers) for numbers in ((), (0,), (1,), (0, 2), (3,), (63,))] == [1, 1, 2, 4, 4, 64]


def test_shards_share_the_load() -> None:
    sizes = [0] * 64
    for number in range(10_000):
        sizes[shard_of(("team-alpha", f"endpoint-{number}"), 64)] += 1
    assert max(sizes) < 300


def test_a_name_is_read_back_from_its_key() -> None:
    assert name_of(data_key(IRIS)) == IRIS
    assert name_of("iris") is None


@pytest.mark.parametrize(("size", "kept"), [(1_000, 500), (10_000, 69), (ENTRY_BYTES_MAX + 1, 0)])
def test_an_object_is_bounded_and_the_newest_entries_stay(size: int, kept: int) -> None:
    data, left_out = fitted({("t", f"e{n}"): (float(n), "x" * size) for n in range(500)})
    assert (len(data), left_out) == (kept, 500 - kept)
    assert sum(map(len, data.values())) <= SHARD_BYTES_MAX
    assert not data or "t.e499" in data


# The gap between two processes


@pytest.mark.parametrize(
    ("before", "now", "elapsed_s", "rps"),
    [
        ({"g1": {"a": 100}}, {"g1": {"a": 700}}, 60.0, 10.0),
        ({"g1": {"a": 100}}, {"g1": {"a": 400, "b": 300}}, 60.0, 10.0),
        ({"g1": {"a": 100}, "g2": {"a": 0}}, {"g1": {"a": 400}, "g2": {"a": 300}}, 60.0, 10.0),
        ({"g1": {"a": 100}}, {"g1": {"a": 99}}, 60.0, None),
        ({"g1": {"a": 100}}, {"g1": {"b": 700}}, 60.0, None),
        ({"g1": {"a": 100}}, {"g2": {"a": 700}}, 60.0, None),
        ({"g1": {"a": 100}}, {}, 60.0, None),
        ({}, {}, 60.0, None),
        ({"g1": {"a": 100}}, {"g1": {"a": 700}}, BRIDGE_MAX_S + 1, None),
        ({"g1": {"a": 100}}, {"g1": {"a": 700}}, -5.0, None),
    ],
)
def test_counters_that_went_on_give_the_mean_over_the_gap_and_others_nothing(
    before: dict[str, dict[str, int]], now: dict[str, dict[str, int]], elapsed_s: float, rps: float | None
) -> None:
    assert mean_rps(before, now, elapsed_s) == rps


@pytest.mark.parametrize(
    ("rps", "peaks"),
    [
        (300.0, ((570.0, 60.0),)),  # it rose: to the mean at least
        (100.0, ((540.0, 40.0), (570.0, 20.0))),  # it fell: half of the time it can have been as before
        (0.0, ((510.0, 40.0), (570.0, 0.0))),
    ],
)
def test_a_bridged_gap_is_known_and_was_as_before_for_as_long_as_the_mean_allows(
    rps: float, peaks: tuple[tuple[float, float], ...]
) -> None:
    found = bridged(remembered(), rps, SETTINGS, 570.0).state
    assert found.demands.covers(570.0, SETTINGS.down_window_s, SETTINGS.gap_s)
    assert [(pytest.approx(at_s), pytest.approx(d)) for at_s, d in found.demands.peaks] == list(peaks)


@pytest.mark.parametrize("rps", [None, 300.0])
def test_a_gap_without_a_mean_or_without_a_service_time_stays_a_hole(rps: float | None) -> None:
    before = remembered() if rps is None else replace(remembered(), service_time_s=None)
    assert bridged(before, rps, SETTINGS, 570.0) == before


# The objects


class Server:
    """ConfigMaps; `down` for an outage."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[str] = []
        self.down = False
        self.refuse: set[str] = set()

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> list[Object]:
        if self.down:
            raise Unreachable("away")
        return copy.deepcopy([*self.objects.values()])

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        if self.down:
            raise Unreachable("away")
        if name in self.refuse:
            raise Conflict(409, "Conflict", name)
        self.writes.append(name)
        self.objects[name] = copy.deepcopy(body) | {"metadata": {"name": name}}
        return body


class Lease:
    mine = True

    def held(self) -> bool:
        return self.mine

    def check(self) -> None:
        if not self.mine:
            raise NotLeader("not ours")


class Place:
    """One process with its checkpoints; `booted_s` is where its monotonic clock began."""

    def __init__(self, server: Server, wall_s: float = WALL_S, booted_s: float = WALL_S - 1000.0) -> None:
        self.server, self.wall_s, self.lease = server, wall_s, Lease()
        self.present: dict[Name, Checkpoint] = {}
        self.checkpoints = Checkpoints(
            server,
            FencedWriter(server, self.lease),
            self.lease,
            "sys",
            lambda: self.wall_s - booted_s,
            lambda: self.wall_s,
        )
        self.checkpoints.now = lambda: self.present

    async def later(self, seconds: float = 60.0, **present: Checkpoint) -> list[str]:
        """The names written in the turn after so many seconds."""
        before = len(self.server.writes)
        self.wall_s += seconds
        self.present = {("team-alpha", name): each for name, each in present.items()}
        await self.checkpoints.turn()
        return self.server.writes[before:]


@pytest.mark.case("autoscaler-G6")
async def test_what_one_process_kept_the_next_finds() -> None:
    server = Server()
    await Place(server).later(iris=checkpoint())
    after = Place(server)
    assert await after.checkpoints.read()
    assert after.checkpoints.find(IRIS, "u1") == checkpoint()


async def test_what_was_written_under_a_clock_that_is_ahead_counts_back_from_when_it_was_written() -> None:
    server = Server()
    await Place(server).later(iris=checkpoint(WALL_S + 3600.0, at_s=4500.0, known_at_s=4560.0))
    after = Place(server)
    after.wall_s = WALL_S + 60.0
    await after.checkpoints.read()
    found = after.checkpoints.find(IRIS, "u1")
    assert found is not None
    assert found.written_s == after.wall_s
    state = found.remembered.state
    assert (state.demands.peaks[0][0], state.known_at_s) == (4500.0 - 3540.0, 4560.0 - 3540.0)
    assert found.arrivals == {}, "the length of the gap is not known"


@pytest.mark.case("autoscaler-A17")
async def test_an_object_of_the_same_name_that_is_another_gets_nothing() -> None:
    server = Server()
    await Place(server).later(iris=checkpoint())
    after = Place(server)
    await after.checkpoints.read()
    assert after.checkpoints.find(IRIS, "u2") is None
    assert after.checkpoints.find(("team-beta", "iris"), "u1") is None


@pytest.mark.case("autoscaler-G3")
async def test_what_did_not_change_is_not_written() -> None:
    place = Place(Server())
    assert await place.later(iris=checkpoint()) == ["autoscaler-checkpoint-0"]
    assert await place.later(iris=checkpoint(WALL_S + 60.0, at_s=560.0, known_at_s=570.0)) == []
    assert await place.later(iris=checkpoint(WALL_S + 120.0, demand=50.0)) == ["autoscaler-checkpoint-0"]


@pytest.mark.case("autoscaler-G4")
async def test_who_stands_by_writes_nothing_and_reads_anew_before_it_writes() -> None:
    server = Server()
    stands_by = Place(server)
    stands_by.lease.mine = False
    assert await stands_by.checkpoints.read()
    assert await stands_by.later(iris=checkpoint()) == []
    await Place(server).later(rose=checkpoint())
    stands_by.lease.mine = True
    await stands_by.later(iris=checkpoint())
    assert set(server.objects["autoscaler-checkpoint-0"]["data"]) == {"team-alpha.iris", "team-alpha.rose"}


@pytest.mark.case("autoscaler-G8")
async def test_an_endpoint_that_is_briefly_gone_finds_its_checkpoint_again() -> None:
    place = Place(Server())
    await place.later(iris=checkpoint())
    await place.later()
    assert place.checkpoints.find(IRIS, "u1") == checkpoint()
    assert "team-alpha.iris" in place.server.objects["autoscaler-checkpoint-0"]["data"]


async def test_what_was_not_read_is_not_written_over(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    await Place(server).later(rose=checkpoint())
    server.down = True
    after = Place(server)
    assert not await after.checkpoints.read()
    assert await after.later(iris=checkpoint()) == []
    server.down = False
    await after.later(iris=checkpoint())
    assert set(server.objects["autoscaler-checkpoint-0"]["data"]) == {"team-alpha.iris", "team-alpha.rose"}
    assert "checkpoints not read" in caplog.text


async def test_a_broken_entry_is_told_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    await Place(server).later(iris=checkpoint(), rose=checkpoint())
    server.objects["autoscaler-checkpoint-0"]["data"]["team-alpha.iris"] = "{"
    after = Place(server)
    await after.checkpoints.read()
    assert after.checkpoints.find(IRIS, "u1") is None
    assert after.checkpoints.find(("team-alpha", "rose"), "u1") == checkpoint()
    assert "checkpoint not readable" in caplog.text


async def test_a_write_that_fails_is_made_again() -> None:
    place = Place(Server())
    place.server.refuse = {"autoscaler-checkpoint-0"}
    assert await place.later(iris=checkpoint()) == []
    place.server.refuse = set()
    assert await place.later(iris=checkpoint()) == ["autoscaler-checkpoint-0"]


def many(count: int) -> dict[str, Checkpoint]:
    return {f"e{number}": checkpoint() for number in range(count)}


async def test_growth_spreads_over_more_objects_and_loses_nothing() -> None:
    server = Server()
    place = Place(server)
    await place.later(**many(150))
    await place.later(**many(700))
    assert set(server.objects) == {f"autoscaler-checkpoint-{number}" for number in range(4)}
    kept = [key for obj in server.objects.values() for key in obj["data"]]
    assert sorted(kept) == sorted(f"team-alpha.e{number}" for number in range(700))
    after = Place(server)
    await after.checkpoints.read()
    assert await after.later() == [], "the same shards are found again"


async def test_while_new_objects_cannot_be_written_the_old_ones_keep_what_moves() -> None:
    server = Server()
    place = Place(server)
    await place.later(**many(150))
    server.refuse = {"autoscaler-checkpoint-1"}
    for _ in range(2):
        await place.later(**many(300))
        assert len(server.objects["autoscaler-checkpoint-0"]["data"]) == 150
