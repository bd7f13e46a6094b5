"""HAProxy as the gateway has it, with one endpoint for each way of choosing a server, and what processes use."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from controllers.gateway import first
from controllers.gateway.observation import Observation
from controllers.gateway.settings import Settings
from tests.gateway_lab.cluster import endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import HAPROXY, KEY, settings_in
from tests.gateway_lab.pods import Pod, takes

WAYS: Final = {"least busy": None, "prefix": "prefix"}
LIMIT: Final = 64


def endpoint(way: str) -> str:
    return way.replace(" ", "-")


@contextlib.contextmanager
def balancer(folder: Path, ports: Sequence[int]) -> Iterator[tuple[Settings, int]]:
    """HAProxy with an endpoint for each way, both of the same servers; and its pid."""
    settings = settings_in(folder / "gateway")
    seen, objects, pods = Observation(), [], []
    for way, affinity in WAYS.items():
        name = endpoint(way)
        objects.append(endpoint_object(name, limit=LIMIT, maximum=100_000, affinity=affinity, deadline_ms=60_000))
        named = [Pod(f"{revision(name)}-{number}", takes(0), port=port) for number, port in enumerate(ports)]
        pods += slices(name, revision(name), named)
    seen.load(objects, pods, [keys_object({KEY: "alpha"})])
    first.write(seen, settings)
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([str(HAPROXY), "-db", "-f", str(settings.config)], stdout=log, stderr=log)
    try:
        time.sleep(1)
        yield settings, process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_s(pids: Sequence[int]) -> float:
    """What these processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in family(int(child)))]


def text(chance: random.Random, length: int) -> str:
    return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=length))
