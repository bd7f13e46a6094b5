"""A small HTTP/1.1 client: one keep-alive connection, every answer as a value, a way to leave in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Client:
    """Reconnects only where no byte of a request was sent."""

    def __init__(
        self, port: int, key: str | None = None, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self.host = host
        self.port = port
        self.key = key
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.connected = 0

    async def call(
        self,
        endpoint: str = "iris",
        part: str = "invocations",
        method: str = "POST",
        body: bytes = b"{}",
        headers: dict[str, str] | None = None,
        path: str | None = None,
    ) -> Reply:
        started = time.perf_counter()
        reader, writer = await self._connection()
        sent = {"host": "gateway", "content-length": str(len(body))}
        if self.key is not None:
            sent["authorization"] = f"Bearer {self.key}"
        sent |= headers or {}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        target = path or f"/serving-endpoints/{endpoint}/{part}"
        writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        status, found, content = await self._read(reader)
        if found.get("connection") == "close":
            await self.leave()
        return Reply(status, found, content, time.perf_counter() - started)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():
            await self.leave()
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port, ssl=self._tls)
            self.connected += 1
        return self._streams

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join([chunk async for chunk in _chunks(reader)])
        return status, headers, await reader.readexactly(int(headers.get("content-length", "0")))

    async def leave(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):  # the other side may be gone already
                await asyncio.wait_for(writer.wait_closed(), 2)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """To the last one, without trailers."""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
