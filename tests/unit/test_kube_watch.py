"""The endless watch: state once, then changes; what breaks, expires or falls silent is its own affair."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controllers.kube import PODS, Event, Gone, NotFound, Object, Unreachable, watch
from controllers.kube.store import Store
from controllers.kube.watch import follow


def pod(name: str, version: int, uid: str = "u") -> Object:
    metadata = {
        "namespace": "ns",
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"app": name[0]},
    }
    return {"metadata": metadata}


def line(kind: str, obj: Object) -> str:
    return json.dumps({"type": kind, "object": obj})


class Script:
    """An API server that plays connections from a list; each is lines, an error, or lines and then an error."""

    def __init__(self, lists: list[list[Object] | Exception], connections: list[list[str | Exception]]) -> None:
        self.lists, self.connections = iter(lists), iter(connections)
        self.asked: list[str] = []

    async def list_with_version(
        self, gvr: object, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> tuple[list[Object], str]:
        found = next(self.lists)
        if isinstance(found, Exception):
            raise found
        return found, "10"

    @asynccontextmanager
    async def stream(
        self, path: str, params: dict[str, str], read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[str]]:
        assert read_timeout_s > float(params["timeoutSeconds"]), "the server ends a watch before its silence is death"
        self.asked.append(params["resourceVersion"])
        yield self._lines(next(self.connections))

    async def _lines(self, script: list[str | Exception]) -> AsyncIterator[str]:
        for item in script:
            if isinstance(item, Exception):
                raise item
            yield item


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The watch's pauses, taken in no time."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(watch.asyncio, "sleep", sleep)
    return taken


async def events(script: Script, count: int) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    stream = follow(script, PODS, "ns", None)
    async for event in stream:
        found.append((event.type, [obj["metadata"]["name"] for obj in event.objects]))
        if len(found) == count:
            break
    return found


async def test_the_whole_state_comes_first_and_then_each_change() -> None:
    script = Script([[pod("a", 1)]], [[line("ADDED", pod("b", 11)), line("DELETED", pod("a", 12))]])
    assert await events(script, 3) == [("SYNC", ["a"]), ("ADDED", ["b"]), ("DELETED", ["a"])]


async def test_a_broken_connection_goes_on_where_it_stopped_without_a_new_state() -> None:
    broken: list[str | Exception] = [line("ADDED", pod("b", 11)), Unreachable("reset")]
    script = Script([[]], [broken, [line("MODIFIED", pod("b", 12))]])
    assert await events(script, 3) == [("SYNC", []), ("ADDED", ["b"]), ("MODIFIED", ["b"])]
    assert script.asked == ["10", "11"]


async def test_a_bookmark_moves_the_version_on_and_says_nothing() -> None:
    bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "50"}})
    script = Script([[]], [[bookmark, Unreachable("cut")], [line("ADDED", pod("b", 51))]])
    assert await events(script, 2) == [("SYNC", []), ("ADDED", ["b"])]
    assert script.asked == ["10", "50"]


@pytest.mark.parametrize(
    "expired",
    [Gone(410, "Expired", "too old"), line("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})],
)
async def test_an_expired_version_gives_a_new_state(expired: str | Exception) -> None:
    script = Script([[pod("a", 1)], [pod("c", 20)]], [[expired], [line("ADDED", pod("d", 21))]])
    assert await events(script, 3) == [("SYNC", ["a"]), ("SYNC", ["c"]), ("ADDED", ["d"])]


async def test_an_outage_yields_nothing_and_is_waited_out_with_growing_pauses(pauses: list[float]) -> None:
    away = [Unreachable("refused")] * 6
    script = Script([*away, [pod("a", 1)]], [])
    assert await events(script, 1) == [("SYNC", ["a"])]
    assert len(pauses) == 6
    assert pauses[0] <= 0.25
    assert 2.5 <= pauses[-1] <= 5.0


@pytest.mark.case("autoscaler-A12")
async def test_a_watch_begun_in_an_outage_converges_once_the_server_is_back() -> None:
    script = Script([Unreachable("refused"), [pod("a", 1)]], [[line("ADDED", pod("b", 11))]])
    assert await events(script, 2) == [("SYNC", ["a"]), ("ADDED", ["b"])]


async def test_a_kind_that_the_cluster_may_lack_is_absent_until_it_is_there_and_asked_for_slowly(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    none = NotFound(404, "NotFound", "no such kind")
    script = Script([none, none, [pod("a", 1)], none], [[line("ADDED", pod("b", 11)), none]])
    store, seen = Store(PODS), []
    async for event in follow(script, PODS, "ns", None, optional=True):
        store.take(event)
        seen.append((event.type, store.absent, store.synced.is_set(), len(store.objects)))
        if len(seen) == 5:
            break
    assert seen == [
        ("ABSENT", True, True, 0),
        ("ABSENT", True, True, 0),
        ("SYNC", False, True, 1),
        ("ADDED", False, True, 2),
        ("ABSENT", True, True, 0),
    ]
    assert pauses == [10.0, 10.0]
    assert caplog.records == []


async def test_a_kind_that_every_cluster_has_is_never_absent() -> None:
    script = Script([NotFound(404, "NotFound", "no such kind"), [pod("a", 1)]], [])
    assert await events(script, 1) == [("SYNC", ["a"])]


async def test_a_torn_line_is_a_broken_connection_not_the_end() -> None:
    script = Script([[]], [['{"type": "ADD'], [line("ADDED", pod("b", 11))]])
    assert await events(script, 2) == [("SYNC", []), ("ADDED", ["b"])]


def test_a_store_never_goes_back_to_an_older_version() -> None:
    store = Store(PODS)
    store.put(pod("a", 12))
    store.put(pod("a", 11))
    assert store.objects[("ns", "a")]["metadata"]["resourceVersion"] == "12"


def test_a_new_object_of_the_same_name_replaces_the_old_one_whatever_its_version() -> None:
    store = Store(PODS)
    store.put(pod("a", 12, uid="old"))
    store.put(pod("a", 11, uid="new"))
    assert store.objects[("ns", "a")]["metadata"]["uid"] == "new"


def test_news_of_an_old_objects_end_leave_its_successor_alone() -> None:
    store = Store(PODS)
    store.put(pod("a", 12, uid="new"))
    store.take(Event("DELETED", (pod("a", 13, uid="old"),)))
    assert ("ns", "a") in store.objects


def test_a_new_state_replaces_everything_and_tells_of_what_is_gone() -> None:
    told: list[str] = []
    store = Store(PODS, lambda gvr, obj: told.append(obj["metadata"]["name"]))
    store.take(Event("SYNC", (pod("a", 1), pod("b", 2))))
    told.clear()
    store.take(Event("SYNC", (pod("b", 2), pod("c", 3))))
    assert set(store.objects) == {("ns", "b"), ("ns", "c")}
    assert sorted(told) == ["a", "b", "c"]
    assert store.synced.is_set()


def test_objects_are_found_by_label_and_no_longer_once_they_are_gone() -> None:
    store = Store(PODS, index="app")
    store.take(Event("SYNC", (pod("a1", 1, "1"), pod("a2", 2, "2"), pod("b1", 3, "3"))))
    assert {obj["metadata"]["name"] for obj in store.labelled("ns", "a")} == {"a1", "a2"}
    store.take(Event("DELETED", (pod("a1", 4, "1"),)))
    assert [obj["metadata"]["name"] for obj in store.labelled("ns", "a")] == ["a2"]
    assert store.labelled("other", "a") == []


def test_a_stamp_changes_with_the_objects_of_its_label_and_with_no_others() -> None:
    store = Store(PODS, index="app")
    store.take(Event("SYNC", (pod("a1", 1, "1"), pod("b1", 2, "2"))))
    stamps = [store.stamp("ns", "a")]
    store.put(pod("b1", 3, "2"))
    assert store.stamp("ns", "a") == stamps[0]
    for event in (Event("ADDED", (pod("a2", 4, "3"),)), Event("DELETED", (pod("a2", 5, "3"),))):
        store.take(event)
        stamps.append(store.stamp("ns", "a"))
    assert len(set(stamps)) == 3
    store.take(Event("SYNC", ()))
    assert store.stamp("ns", "a") == 0


def test_a_new_state_leaves_what_did_not_change_as_it_is() -> None:
    store = Store(PODS, index="app")
    store.take(Event("SYNC", (pod("a1", 1, "1"), pod("b1", 2, "2"))))
    held, stamps = store.objects["ns", "a1"], [store.stamp("ns", app) for app in "ab"]
    store.take(Event("SYNC", (pod("a1", 1, "1"), pod("b1", 3, "2"))))
    assert store.objects["ns", "a1"] is held
    assert store.stamp("ns", "a") == stamps[0]
    assert store.stamp("ns", "b") != stamps[1]
    store.take(Event("SYNC", (pod("a1", 1, "another"),)))
    assert store.objects["ns", "a1"]["metadata"]["uid"] == "another"
