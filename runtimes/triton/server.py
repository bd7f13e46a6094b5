"""One running Triton with one model, and what may be asked of it.

Owns its ports, its process and the two connections to it; leaves what the answers mean to engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from runtimes.interface.engine import Api, Call, Forwarded, Header
from runtimes.interface.errors import RefusedError
from runtimes.interface.loopback import Loopback
from runtimes.triton import process
from runtimes.triton.infer import LENGTH
from runtimes.triton.process import HOST, Process

ASK_S = 5.0
_LOOK_S = 0.2


class Server:
    """A Triton; it may still be starting."""

    def __init__(self, name: str, most_bytes: int) -> None:
        self._path = f"/v2/models/{name}"
        self._infer = f"{self._path}/infer"
        self._http_port, self._metrics_port = process.free_port(), process.free_port()
        self._http = Loopback(HOST, self._http_port, most_bytes)
        self._metrics = Loopback(HOST, self._metrics_port, most_bytes)
        self._process = Process()

    async def start(self, triton: Path, repository: Path, own: Mapping[str, str]) -> None:
        """Start it and wait until the model is loaded; RuntimeError with the reason where it ends instead."""
        await self._process.start(process.command(triton, repository, self._http_port, self._metrics_port), own)
        ended = asyncio.create_task(self._process.ended())
        loaded = asyncio.create_task(self._until_loaded())
        try:
            await asyncio.wait((ended, loaded), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise RuntimeError(ended.result())
            loaded.result()
        finally:
            ended.cancel()
            loaded.cancel()

    async def ended(self) -> str:
        """Wait until it has ended, and say why."""
        return await self._process.ended()

    async def stop(self) -> None:
        """End it; it waits for connections that are open."""
        self._http.close()
        self._metrics.close()
        await self._process.stop()

    async def infer(self, body: bytes, json_bytes: int, request_id: str, over: Callable[[], None]) -> Forwarded:
        """Ask the model; ``over`` is called once Triton is done with it, whoever still waits."""
        headers = ((LENGTH, b"%d" % json_bytes), (b"content-type", b"application/octet-stream"))
        return await self._http.forward_to_the_end(_call("POST", self._infer, body, headers, request_id), over)

    async def loaded(self) -> bool:
        """Whether the model takes requests, by Triton's own word; also whether Triton answers at all."""
        try:
            async with asyncio.timeout(ASK_S):
                return (await self._http.forward(_call("GET", f"{self._path}/ready"))).status == 200
        except (RefusedError, TimeoutError):
            return False

    async def metrics(self) -> bytes:
        """Its metrics as text; RefusedError where it has none now."""
        return (await self._metrics.forward(_call("GET", "/metrics"))).body

    async def release(self) -> bytes:
        """Its own metadata."""
        return (await self._http.forward(_call("GET", "/v2"))).body

    async def _until_loaded(self) -> None:
        while True:
            if await self.loaded():
                return
            await asyncio.sleep(_LOOK_S)


def _call(
    method: str, path: str, body: bytes = b"", headers: tuple[Header, ...] = (), request_id: str = "self"
) -> Call:
    return Call(request_id, Api.V2, "json", body, time.perf_counter() + ASK_S, path, method=method, headers=headers)
