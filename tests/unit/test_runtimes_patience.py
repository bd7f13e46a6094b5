"""How long a request is waited for, and who may end the wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from runtimes.interface.engine import Message
from runtimes.interface.errors import RefusedError
from runtimes.interface.patience import ClientLeftError, Patience, Young


class Connection:
    """One whose client may leave."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.asked = asyncio.Event()

    async def receive(self) -> Message:
        self.asked.set()
        await self.left.wait()
        return {"type": "http.disconnect"}


def patience(seconds: float, connection: Connection | None = None) -> Patience:
    return Patience(time.perf_counter() + seconds, (connection or Connection()).receive, "too late", Young())


async def test_a_deadline_is_a_504_with_the_words_of_the_moment() -> None:
    with pytest.raises(RefusedError, match="much too late") as caught, patience(0.02) as waits:
        waits.late = "much too late"
        await asyncio.Event().wait()
    assert caught.value.status == 504
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_a_deadline_that_is_moved_is_the_one_that_counts() -> None:
    with patience(0.02) as waits:
        waits.due_at += 60
        await asyncio.sleep(0.05)


async def test_what_is_done_in_time_is_never_cancelled_later() -> None:
    with patience(0.01):
        pass
    await asyncio.sleep(0.03)


async def test_a_client_is_watched_only_once_nothing_else_reads_from_it() -> None:
    connection = Connection()
    with pytest.raises(ClientLeftError), patience(60, connection) as waits:
        await asyncio.sleep(0.15)
        assert not connection.asked.is_set()
        waits.watch()
        connection.left.set()
        await asyncio.Event().wait()


async def test_a_slow_request_is_looked_at_whatever_others_came_and_went_beside_it() -> None:
    young, left = Young(), Connection()
    left.left.set()

    async def request(seconds: float, connection: Connection) -> None:
        with Patience(time.perf_counter() + 60, connection.receive, "", young) as waits:
            waits.watch()
            await asyncio.sleep(seconds)

    outcomes = await asyncio.gather(
        request(0.001, left), request(60, left), request(0.2, Connection()), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), ClientLeftError, type(None)]


async def test_a_connection_that_breaks_counts_as_left() -> None:
    async def broken() -> Message:
        raise ConnectionResetError

    with pytest.raises(ClientLeftError), Patience(time.perf_counter() + 60, broken, "", Young()) as waits:
        waits.watch()
        await asyncio.Event().wait()


@pytest.mark.parametrize("late", [True, False])
async def test_whoever_else_cancels_the_request_is_obeyed_even_where_it_is_late_too(late: bool) -> None:
    waits, began = patience(60), asyncio.Event()

    async def request() -> None:
        with waits:
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await began.wait()
    if late:
        waits.due_at = 0
        waits.look()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
