"""What affinity is worth: conversations with shared system prompts, some asked for more, at real vLLM servers.

One server's cache holds three eighths of the prompts, so those of three servers together hold all. Each turn has
prompts that no turn had before, so it begins with none of them cached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controllers.gateway.settings import Settings
from tests.bench.prefix_affinity.balancer import WAYS, balancer, cpu_s, endpoint, family, text
from tests.gateway_lab.client import Client
from tests.gateway_lab.gateway import KEY
from tests.integration.runtime_process import JSON, Runtime
from tests.runtime_lab import environments, processes

# A token is a byte, so a prompt of 4,000 has 4,000.
PROMPTS, ZIPF, PROMPT_BYTES, SAID_BYTES, TURNS, ANSWER_TOKENS = 24, 0.5, 4_000, 100, 4, 4
CONVERSATIONS, CLIENTS, CONTEXT = 100, 18, 8_192
BLOCK, CACHED_PROMPTS = 32, 9  # a server's, with what is said to them
READY_S: Final = processes.VLLM_START_S


@dataclass(frozen=True)
class Turn:
    """`busiest`: requests of the server that had most, over an equal share."""

    way: str
    requests: int
    hit_ratio: float
    cpu_ms: float  # of the servers, a request
    p50_ms: float
    p99_ms: float
    busiest: float


def conversation(chance: random.Random, system: str) -> Iterator[bytes]:
    """The requests of one; what the model says is no surprise, so that both ways ask the same."""
    messages = [{"role": "system", "content": system}]
    for _ in range(TURNS):
        messages.append({"role": "user", "content": text(chance, SAID_BYTES)})
        document = {"model": "test", "temperature": 0, "max_tokens": ANSWER_TOKENS, "messages": messages}
        yield json.dumps(document).encode()
        messages.append({"role": "assistant", "content": text(chance, SAID_BYTES)})


async def talk(port: int, name: str, chance: random.Random) -> list[float]:
    """So many conversations, a few at a time; latencies in seconds."""
    systems = [text(chance, PROMPT_BYTES) for _ in range(PROMPTS)]
    zipf = [rank**-ZIPF for rank in range(1, PROMPTS + 1)]
    waiting = [list(conversation(chance, system)) for system in chance.choices(systems, zipf, k=CONVERSATIONS)]
    seconds: list[float] = []

    async def client() -> None:
        connection = Client(port, KEY)
        while waiting:
            for body in waiting.pop():
                reply = await connection.call(name, "v1/chat/completions", body=body, headers=JSON)
                if reply.status != 200:
                    raise RuntimeError(reply.body.decode())
                seconds.append(reply.seconds)
        await connection.leave()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return seconds


def count(runtime: Runtime) -> tuple[float, ...]:
    names = ("prefix_cache_hits_total", "prefix_cache_queries_total", "request_success_total")
    return tuple(runtime.metric(f"vllm:{name}") for name in names)


def turn(way: str, settings: Settings, servers: Sequence[Runtime], chance: random.Random) -> Turn:
    pids = [pid for server in servers for pid in family(server.process.pid)]
    before, spent_s = [count(server) for server in servers], cpu_s(pids)
    seconds = sorted(asyncio.run(talk(settings.https_port, endpoint(way), chance)))
    spent_s = cpu_s(pids) - spent_s
    rows = [[now - then for now, then in zip(count(s), b, strict=True)] for s, b in zip(servers, before, strict=True)]
    hits, queries, served = (sum(column) for column in zip(*rows, strict=True))
    return Turn(
        way=way,
        requests=len(seconds),
        hit_ratio=hits / queries,
        cpu_ms=1000 * spent_s / len(seconds),
        p50_ms=1000 * seconds[len(seconds) // 2],
        p99_ms=1000 * seconds[int(0.99 * len(seconds))],
        busiest=max(row[2] for row in rows) / (served / len(servers)),
    )


def worth(turns: int, count: int) -> list[Turn]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        environments.run(environments.vllm_python(), "tiny_llm.py", folder / "made", "7", str(CONTEXT))
        tokens = CACHED_PROMPTS * (PROMPT_BYTES + 2 * TURNS * (SAID_BYTES + 16))
        flags = ["--", "--block-size", str(BLOCK), "--num-gpu-blocks-override", str(tokens // BLOCK)]
        model = str(folder / "made" / "model")
        servers = [
            stack.enter_context(processes.vllm(folder / f"server-{number}", *flags, model=model))
            for number in range(count)
        ]
        for server in servers:
            ready(server)
        settings, _ = stack.enter_context(balancer(folder, [server.port for server in servers]))
        turn("prefix", settings, servers, random.Random(0))  # warms up
        found = []
        for number in range(turns):
            for way in sorted(WAYS, reverse=number % 2 == 1):
                found.append(turn(way, settings, servers, random.Random(f"{number} {way}")))
                print(f"  {found[-1]}", flush=True)
    return found


def ready(server: Runtime) -> None:
    until_s = time.monotonic() + READY_S
    while server.process.poll() is None and time.monotonic() < until_s:
        with contextlib.suppress(OSError):  # it ends
            if server.ask("GET", "/health").status == 200:
                return
        time.sleep(0.5)
    raise RuntimeError((server.folder / "log").read_text()[-4000:])


def table(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Of each way the medians of its turns."""
    names = ("hit_ratio", "cpu_ms", "p50_ms", "p99_ms", "busiest")
    rows = {way: [each for each in turns if each.way == way] for way in WAYS}
    return [
        {"way": way} | {name: statistics.median(getattr(each, name) for each in found) for name in names}
        for way, found in rows.items()
    ]
