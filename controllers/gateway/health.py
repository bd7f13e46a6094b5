"""/healthz and /metrics of the control plane, on a port of their own.

Healthy means: the loop still passes. Whether the API server or HAProxy answer is in the metrics; neither is mended
by a restart of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

_REQUEST_S = 5.0
_HEAD_BYTES = 8192


async def listen(address: str, port: int, registry: CollectorRegistry, healthy: Callable[[], bool]) -> asyncio.Server:
    """A server that answers GET one connection a request."""

    def answer(path: str) -> tuple[str, str, bytes]:
        if path == "/metrics":
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        if path == "/healthz":
            alive = healthy()
            return (
                ("200 OK" if alive else "503 Service Unavailable"),
                "text/plain",
                b"ok" if alive else b"stuck",
            )
        return "404 Not Found", "text/plain", b"not found"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
                status, kind, body = answer(path)
                lines = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
                writer.write(f"{lines}connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, OSError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, address or None, port, limit=_HEAD_BYTES)
