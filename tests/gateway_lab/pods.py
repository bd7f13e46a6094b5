"""Pods that answer HTTP/1.1 and know how many requests they hold at every instant."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Work = Callable[["Request"], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Pod:
    """`work` is awaited while a request is in flight. `peak` is the most that ever were.

    With `parts` the answer is a stream: each part after its pause in seconds; None breaks off.
    """

    name: str
    work: Work
    port: int = 0
    status: int = 200
    in_flight: int = 0
    peak: int = 0
    served: int = 0
    aborted: int = 0
    connections: int = 0
    peak_connections: int = 0
    parts: tuple[tuple[float, bytes | None], ...] = ()
    die_after_head: bool = False
    seen: list[Request] = field(default_factory=list)
    ids: Counter[str] = field(default_factory=Counter)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> Pod:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """No listener and no connection is left: the next one is refused."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            self._server = None

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.peak_connections = max(self.peak_connections, self.connections)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._request(reader, writer):
                    pass
        finally:
            self.connections -= 1
            self._writers.discard(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read(reader)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.ids[request.headers.get("x-request-id", "")] += 1
        self.seen = [*self.seen[-99:], request]
        try:
            if self.die_after_head:
                return False
            if not await self._work(request, reader):
                self.aborted += 1
                return False
            if self.parts:
                return await self._stream(writer)
            self.served += 1
        finally:
            self.in_flight -= 1
        text = f'{{"pod":"{self.name}"}}'
        head = f"HTTP/1.1 {self.status} X\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        return True

    async def _stream(self, writer: asyncio.StreamWriter) -> bool:
        head = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for pause_s, part in self.parts:
            await asyncio.sleep(pause_s)
            if part is None:
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        self.served += 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _work(self, request: Request, reader: asyncio.StreamReader) -> bool:
        """False where the other side left first."""
        working = asyncio.ensure_future(self.work(request))
        left = asyncio.ensure_future(_gone(reader))
        try:
            await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
            return working.done()
        finally:
            working.cancel()
            left.cancel()
            await asyncio.gather(working, left, return_exceptions=True)


async def _gone(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof() and reader.exception() is None:  # noqa: ASYNC110 - a reader has no event for it
        await asyncio.sleep(0.005)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


def takes(seconds: float) -> Work:
    async def work(_: Request) -> None:
        await asyncio.sleep(seconds)

    return work


class Gate:
    """Work that waits until `open` or until one of `let` passes is taken."""

    def __init__(self) -> None:
        self._passes = asyncio.Semaphore(0)
        self._opened = asyncio.Event()

    async def __call__(self, _: Request) -> None:
        tasks = [asyncio.ensure_future(self._opened.wait()), asyncio.ensure_future(self._passes.acquire())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self._passes.release()

    def open(self) -> None:
        self._opened.set()
