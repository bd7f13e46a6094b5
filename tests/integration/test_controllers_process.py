"""The controllers' process on a real API server: its lease, its end, its health, and a network that breaks or falls
silent between the two."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from controllers.kube import CONFIG_MAPS, LEASES, KubeClient, NotFound, Unreachable, watch
from controllers.kube.credentials import Credentials, from_kubeconfig
from controllers.kube.fields import at
from spec import names
from tests.scenarios.lab.patience import until

pytest_plugins = ["tests.scenarios.lab.real"]
pytestmark = pytest.mark.cluster


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Controllers:
    """One `python -m controllers run`."""

    def __init__(self, kube: KubeClient, kubeconfig: Path, namespace: str, name: str) -> None:
        self.kube, self.kubeconfig, self.namespace, self.name = kube, kubeconfig, namespace, name
        self.port = free_port()
        self.process: asyncio.subprocess.Process

    async def start(self) -> "Controllers":
        arguments = ["-m", "controllers", "run", "--only", self.namespace, "--port", str(self.port)]
        env = os.environ | {"KUBECONFIG": str(self.kubeconfig), "POD_NAME": self.name, "POD_NAMESPACE": self.namespace}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=env, stderr=asyncio.subprocess.DEVNULL
        )
        return self

    async def holds(self) -> bool:
        try:
            lease = await self.kube.get(LEASES, self.namespace, names.LEASE_CONTROLLERS)
        except NotFound:
            return False
        return str(at(lease, "spec", "holderIdentity")).startswith(f"{self.name}_")

    async def page(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        return text

    async def leads(self) -> bool:
        with contextlib.suppress(OSError):
            return "knobless_controllers_leader 1.0" in await self.page("/metrics")
        return False


@pytest.mark.case("autoscaler-G4")
async def test_a_terminated_process_hands_over_within_2_seconds_and_ends_with_0(
    kube: KubeClient, kubeconfig: Path, namespace: str
) -> None:
    first = await Controllers(kube, kubeconfig, namespace, "first").start()
    await until(first.leads, 20)
    second = await Controllers(kube, kubeconfig, namespace, "second").start()
    try:
        assert "200 OK" in await first.page("/healthz")

        async def up() -> bool:
            with contextlib.suppress(OSError):
                return "200 OK" in await second.page("/healthz")
            return False

        await until(up, 20)
        assert not await second.leads()
        first.process.send_signal(signal.SIGTERM)
        took_s = await until(second.holds, 10)
        print(f"taken over {took_s:.2f} s after SIGTERM")
        assert took_s <= 2.0
        assert await asyncio.wait_for(first.process.wait(), 5) == 0
    finally:
        second.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(second.process.wait(), 10) == 0


async def test_a_killed_process_is_followed_within_20_seconds(
    kube: KubeClient, kubeconfig: Path, namespace: str
) -> None:
    first = await Controllers(kube, kubeconfig, namespace, "first").start()
    await until(first.leads, 20)
    second = await Controllers(kube, kubeconfig, namespace, "second").start()
    try:
        await asyncio.sleep(4)
        first.process.kill()
        await first.process.wait()
        took_s = await until(second.holds, 30)
        print(f"taken over {took_s:.2f} s after SIGKILL")
        assert took_s <= 20.0
    finally:
        second.process.send_signal(signal.SIGTERM)
        await second.process.wait()


class Wire:
    """A TCP relay to the API server that can be cut, or keep silent as a lost network does."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.cut = self.silent = False
        self._writers: list[asyncio.StreamWriter] = []

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, back]
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        writer.close()

    def break_all(self) -> None:
        self.cut = True
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()


@pytest.fixture
async def wire(kubeconfig: Path) -> AsyncIterator[tuple[Wire, KubeClient]]:
    """The relay, and a client whose way leads through it."""
    real = from_kubeconfig(kubeconfig)
    address = urlsplit(real.server)
    relay = Wire(str(address.hostname), address.port or 443)
    server = await asyncio.start_server(relay.relay, "127.0.0.1", 0)
    assert real.tls is not None
    real.tls.check_hostname = False
    port = server.sockets[0].getsockname()[1]
    async with KubeClient(Credentials(f"https://127.0.0.1:{port}", real.tls, real.token)) as client:
        yield relay, client
    server.close()


async def test_a_watch_outlives_a_cut_and_misses_nothing_and_repeats_no_state(
    kube: KubeClient, namespace: str, wire: tuple[Wire, KubeClient]
) -> None:
    relay, through = wire
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(40):
        async for event in through.watch(CONFIG_MAPS, namespace, "t=x"):
            seen += [(event.type, obj["metadata"]["name"]) for obj in event.objects] or [(event.type, "")]
            if len(seen) == 1:
                await make(kube, namespace, "before")
            elif len(seen) == 2:
                relay.break_all()
                with pytest.raises(Unreachable):
                    await through.get(CONFIG_MAPS, namespace, "before")
                await make(kube, namespace, "meanwhile")
                asyncio.get_running_loop().call_later(2.0, setattr, relay, "cut", False)
            elif len(seen) == 3:
                break
    assert seen == [("SYNC", ""), ("ADDED", "before"), ("ADDED", "meanwhile")]


async def test_a_watch_notices_a_connection_that_fell_silent(
    kube: KubeClient, namespace: str, wire: tuple[Wire, KubeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_READ_TIMEOUT_S", 2.0)
    relay, through = wire
    seen: list[str] = []
    async with asyncio.timeout(60):
        async for event in through.watch(CONFIG_MAPS, namespace, "t=x"):
            seen.append(event.type)
            if len(seen) == 1:
                await asyncio.sleep(0.5)
                relay.silent = True
                await make(kube, namespace, "unheard")
                asyncio.get_running_loop().call_later(4.0, setattr, relay, "silent", False)
            else:
                break
    assert seen == ["SYNC", "ADDED"]


async def make(kube: KubeClient, namespace: str, name: str) -> None:
    await kube.create(CONFIG_MAPS, namespace, {"metadata": {"name": name, "labels": {"t": "x"}}})
