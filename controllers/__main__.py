"""`python -m controllers run [--settings FILE]`: rollout and autoscaler, one process, one lease.

Owns the wiring and the process's end: on SIGTERM the loops stop, what is remembered is kept, the lease is given up, the
process leaves with 0.
A watch or a loop that dies of a fault of ours ends the process, so that the kubelet starts it anew: nothing runs on
half.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from controllers import logs, metrics
from controllers.autoscaler.act import Scaler
from controllers.autoscaler.checkpoints import Checkpoints
from controllers.autoscaler.journal import Journal
from controllers.autoscaler.loop import Autoscaler
from controllers.autoscaler.observe import Sampler
from controllers.autoscaler.prometheus import Ask, SignalReader, ask_prometheus
from controllers.autoscaler.settings import Settings, settings_from
from controllers.kube import (
    LEADER_WORKER_SETS,
    MODEL_ENDPOINTS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    Event,
    Gvr,
    KubeClient,
    Object,
)
from controllers.kube.fields import at
from controllers.kube.store import Store
from controllers.lease import FencedWriter, Lease
from controllers.rollout.loop import Rollout
from controllers.targets import targets_of
from controllers.workloads import KINDS
from spec import names

log = logging.getLogger("controllers")

_OURS = names.LABEL_REVISION
_GATEWAY = f"{names.LABEL_COMPONENT}={names.COMPONENT_GATEWAY}"
_PULSE_MAX_S = 60.0
# Who takes over waits for it: with a look every second at the lease, that is 2 s in all.
_SAVE_S = 0.8
_READ_ATTEMPTS = 3


class Process:
    """Everything of one run, wired. `run` ends when `stop` is set or a part of it fails."""

    def __init__(
        self,
        client: KubeClient,
        settings: Settings,
        namespace: str,
        identity: str,
        only: str | None = None,
        ask: Ask | None = None,
        records: Path | None = None,
    ) -> None:
        """`namespace` holds the lease and the gateways; `only` is the one that is watched, None for all.

        `ask` puts a question to Prometheus; None where there is none. `records` is the folder of the log of decisions.
        """
        self.metrics = metrics.Metrics()
        self.signals = SignalReader(ask, self.metrics)
        self.lease = Lease(client, namespace, names.LEASE_CONTROLLERS, identity)
        writer = FencedWriter(client, self.lease)
        self.stores: dict[Gvr, Store] = {}
        self.rollout = Rollout(self.stores, writer, self.lease, self.metrics)
        for gvr in (MODEL_ENDPOINTS, *KINDS, SERVICES, PODS):
            index = None if gvr == MODEL_ENDPOINTS else names.LABEL_ENDPOINT
            self.stores[gvr] = Store(gvr, self.rollout.touched, index)
        self.gateways = Store(PODS)
        scaler = Scaler(client, writer, self.stores, identity)
        self.quotas = Store(RESOURCE_QUOTAS)
        self.checkpoints = Checkpoints(client, writer, self.lease, namespace)
        self.journal = Journal(records, self.metrics.records_dropped.inc) if records is not None else None
        self.autoscaler = Autoscaler(
            self.stores,
            self.gateways,
            writer,
            self.lease,
            scaler,
            self.metrics,
            settings,
            Sampler(settings),
            self.checkpoints,
            self.journal,
            self.quotas,
            self.signals.of,
        )
        self._client, self._namespace, self._only = client, namespace, only

    async def run(self, stop: asyncio.Event, port: int) -> None:
        server = await metrics.serve(self.metrics.registry, self.healthy, port, self._targets)
        tasks = [asyncio.create_task(part, name=name) for name, part in self._parts().items()]
        ending = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                task.result()  # raises what it died of
        finally:
            for task in (ending, *tasks):
                task.cancel()
            await asyncio.gather(ending, *tasks, return_exceptions=True)
            await self._leave()
            server.close()

    async def _leave(self) -> None:
        """Keeps what is remembered while the lease is still ours, then gives it up."""
        if self.lease.held() and self.autoscaler.has_begun:
            try:
                async with asyncio.timeout(_SAVE_S):
                    await self.checkpoints.save()
            except TimeoutError:
                log.warning("checkpoints not written in time; those of the last minute stand")
        await self.lease.release()
        if self.journal is not None:
            await self.journal.flush()

    def _parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        watches: dict[str, Coroutine[Any, Any, None]] = {
            gvr.plural: store.follow(self._watch(gvr)) for gvr, store in self.stores.items()
        }
        gateways = self._client.watch(PODS, self._namespace, _GATEWAY)
        journal = {"journal": self.journal.run()} if self.journal is not None else {}
        return (
            watches
            | journal
            | {
                "gateways": self.gateways.follow(gateways),
                "quotas": self.quotas.follow(self._client.watch(RESOURCE_QUOTAS, self._only)),
                "lease": self.lease.run(),
                "pulse": self._pulse(),
                "signals": self.signals.run(),
                "rollout": self._when_synced("rollout", self.rollout.run()),
                "autoscaler": self._when_synced("autoscaler", self._autoscaler()),
            }
        )

    def _watch(self, gvr: Gvr) -> AsyncIterator[Event]:
        """Of the kinds, only that of groups is none that every cluster has."""
        labels = None if gvr == MODEL_ENDPOINTS else _OURS
        return self._client.watch(gvr, self._only, labels, optional=gvr == LEADER_WORKER_SETS)

    async def _autoscaler(self) -> None:
        """Begins where the process before it ended; without checkpoints it begins with nothing lowered."""
        for _ in range(_READ_ATTEMPTS):
            if await self.checkpoints.read():
                break
            await asyncio.sleep(1.0)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.checkpoints.run())
            group.create_task(self.autoscaler.run())

    async def _when_synced(self, name: str, loop: Coroutine[Any, Any, None]) -> None:
        """A loop that began on half the state would take the other half for deleted."""
        try:
            for store in (*self.stores.values(), self.gateways):
                await store.synced.wait()
        except asyncio.CancelledError:
            loop.close()
            raise
        collect_seldom()
        log.info("loop begins", extra={"loop": name, "endpoints": len(self.stores[MODEL_ENDPOINTS].objects)})
        await loop

    async def _pulse(self) -> None:
        while True:
            self.metrics.leader.set(self.lease.held())
            await asyncio.sleep(1.0)

    def _targets(self) -> list[dict[str, Any]]:
        return targets_of([*self.stores[PODS].objects.values(), *self.gateways.objects.values()])

    def healthy(self) -> bool:
        """Whether both loops still turn. Before the first sync nothing turns, and that is the API server's matter."""
        if not all(store.synced.is_set() for store in (*self.stores.values(), self.gateways)):
            return True
        now_s = time.monotonic()
        return all(now_s - loop.beat_at_s < _PULSE_MAX_S for loop in (self.rollout, self.autoscaler))


def collect_seldom() -> None:
    """What the cluster told and what is remembered of it lasts. To look through all of it for cycles, of which we make
    hardly any, stops everything for 1.7 s at 10,000 endpoints; now every ten minutes or so, not twice a minute."""
    gc.freeze()
    gc.set_threshold(700, 10, 1_000)


def load_settings(path: Path | None) -> tuple[Settings, str | None]:
    """The mounted settings file, without one the defaults; and the address of Prometheus, where there is one."""
    document: Object = json.loads(path.read_text()) if path is not None else {}
    return settings_from(document.get("autoscaler") or {}), at(document, "prometheus", "url")


async def run(settings: Settings, prometheus: str | None, port: int, only: str | None, records: Path | None) -> None:
    namespace = os.environ.get("POD_NAMESPACE", names.SYSTEM_NAMESPACE)
    identity = f"{os.environ.get('POD_NAME') or os.uname().nodename}_{uuid.uuid4().hex[:8]}"
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with KubeClient.from_environment() as client:
        log.info("starting", extra={"identity": identity, "namespace": namespace, "prometheus": prometheus})
        ask = ask_prometheus(prometheus) if prometheus else None
        await Process(client, settings, namespace, identity, only, ask, records).run(stop, port)
    log.info("stopped")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m controllers", description=__doc__)
    command = parser.add_subparsers(dest="command", required=True).add_parser("run", help="both loops, one lease")
    command.add_argument("--settings", type=Path, help="JSON with the blocks `autoscaler` and `rollout`")
    command.add_argument("--only", metavar="NAMESPACE", help="watch this namespace alone")
    command.add_argument("--port", type=int, default=metrics.PORT, help="for /metrics and /healthz")
    command.add_argument("--records", type=Path, metavar="FOLDER", help="for the log of decisions; without it none")
    arguments = parser.parse_args()
    logs.configure()
    asyncio.run(run(*load_settings(arguments.settings), arguments.port, arguments.only, arguments.records))


if __name__ == "__main__":
    main()
