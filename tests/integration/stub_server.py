"""A server as somebody else might have written it, for the proxy to be in front of; a stub, and of nobody's product.

python stub_server.py PORT
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from typing import Any

import uvicorn

RUNNING: set[str] = set()
STARTED = time.monotonic()


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    path = scope["path"]
    if path == "/health":
        await answer(send, 200 if time.monotonic() - STARTED > 0.5 else 503, {})
    elif path == "/running":
        await answer(send, 200, sorted(RUNNING))
    elif path == "/v1/models":
        await stream(send, {"events": 2})  # which nobody expects there
    elif path == "/admin":
        await answer(send, 200, "never to be reached through the proxy")
    else:
        await act(scope, json.loads(body), receive, send)


async def act(scope: Any, order: Any, receive: Any, send: Any) -> None:
    name = order.get("name", "")
    RUNNING.add(name)
    left = asyncio.ensure_future(receive())
    doing = asyncio.ensure_future(do(scope, order, send))
    try:
        await asyncio.wait((left, doing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        RUNNING.discard(name)
        left.cancel()
        doing.cancel()


async def do(scope: Any, order: Any, send: Any) -> None:
    await asyncio.sleep(order.get("sleep", 0))
    if order.get("die"):
        os._exit(9)
    if order.get("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if order.get("fail"):
        await answer(send, 500, {"error": "ValueError: token 4711"})
    elif "refuse" in order:
        await answer(send, 400, {"error": {"message": f"`x` is {order['refuse']}", "param": "x"}})
    elif "events" in order:
        await stream(send, order)
    elif order.get("odd"):
        await answer(send, 200, [float("nan"), float("inf"), 1.0])
    else:
        order.pop("pad", None)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        await answer(send, 200, {"got": order, "headers": headers, "method": scope["method"]})


async def stream(send: Any, order: Any) -> None:
    head = [(b"content-type", b"text/event-stream; charset=utf-8")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    for number in range(order["events"]):
        piece = f"data: {json.dumps({'n': number})}\n\n".encode()
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(order.get("pause", 0))
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def answer(send: Any, status: int, document: Any) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"x-own", b"1"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", timeout_keep_alive=5)
