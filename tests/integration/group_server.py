"""A server over several pods as LeaderWorkerSet starts them, of the standard library alone; a stub, and of no engine.

Every pod of a group runs it. The workers connect to their leader, which is ready once all have. Who loses a member of
the group ends, as an engine that has its model in several places does; but a leader that was told to end finishes its
requests and says goodbye, and until then no worker goes. Only the leader takes requests: `/invocations` waits for as
many seconds as the body's first row says and tells which pod it was.
"""

import asyncio
import json
import os
import signal
import socket

SIZE, INDEX = int(os.environ["LWS_GROUP_SIZE"]), int(os.environ["LWS_WORKER_INDEX"])
LEADER = os.environ["LWS_LEADER_ADDRESS"]
assert int(os.environ["NODES"]) == SIZE, "the group is not of the size that it was started for"
PORT, MEETING_PORT = 8080, 8081
members = 1
running = 0
ending = asyncio.Event()
workers: list[asyncio.StreamWriter] = []


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global running
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            lengths = [line.partition(":")[2] for line in head if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0]) if lengths else 0)
            running += 1
            try:
                status, said = await answer(head[0].split()[1], body)
            finally:
                running -= 1
            text = json.dumps(said).encode()
            lines = (f"HTTP/1.1 {status} X", "content-type: application/json", f"content-length: {len(text)}")
            writer.write("\r\n".join((*lines, "", "")).encode() + text)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        writer.close()


async def answer(path: str, body: bytes) -> tuple[int, object]:
    if path == "/ping":
        return (200 if INDEX or members == SIZE else 503), {"members": members}
    if path != "/invocations":
        return 404, {"error": path}
    if INDEX:
        return 500, {"error": "a worker was asked"}
    await asyncio.sleep(json.loads(body)["dataframe_split"]["data"][0][0])
    return 200, {"predictions": [socket.gethostname(), os.environ["VERSION"]]}


async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    global members
    members += 1
    workers.append(writer)
    await reader.read()
    os._exit(3)  # a worker is gone, and part of the model with it


async def work() -> None:
    """Until the leader has said goodbye, and this pod was told to end too."""
    while True:
        try:
            reader, _ = await asyncio.open_connection(LEADER, MEETING_PORT)
            break
        except OSError:
            await asyncio.sleep(0.2)
    if not await reader.read():
        os._exit(4)  # the leader is gone
    await ending.wait()


async def lead() -> None:
    await asyncio.start_server(meet, "0.0.0.0", MEETING_PORT)
    await ending.wait()
    while running:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for worker in workers:
        worker.write(b"goodbye")
        await worker.drain()


async def main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    await asyncio.start_server(serve, "0.0.0.0", PORT)
    await (work() if INDEX else lead())
    os._exit(0)


asyncio.run(main())
