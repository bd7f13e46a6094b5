"""What the autoscaler costs at 10,000 endpoints with two pods each, a tenth of them active, behind one HAProxy.

    python -m tests.bench.autoscaler_scale [--endpoints 10000] [--active 0.1] [--rate 1000] [--seconds 60]

Runs the production loop over stores as the watches would fill them, and a writer that decodes what an API server would
answer; HAProxy, its pods and the requests are processes of their own. First traffic alone, then with the loop reading.
A gateway of ours has at most 4,096 back ends (`gateway.spare_backends`); here one HAProxy has all of them, which is
the harder case. Writes bench-results/autoscaler_scale.json. `--profile FILE` keeps cProfile's numbers, and costs.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from controllers.__main__ import collect_seldom
from controllers.autoscaler.act import Scaler
from controllers.autoscaler.checkpoints import Checkpoints
from controllers.autoscaler.haproxy import Reader
from controllers.autoscaler.journal import Journal
from controllers.autoscaler.load import Counters
from controllers.autoscaler.loop import Autoscaler
from controllers.autoscaler.observe import Sampler
from controllers.autoscaler.settings import Settings
from controllers.kube import MODEL_ENDPOINTS, PODS, Gvr
from controllers.kube.store import Store
from controllers.lease import FencedWriter
from controllers.metrics import Metrics
from controllers.workloads import KINDS
from spec import names
from tests.bench.scale.objects import Cluster, fill
from tests.bench.scale.traffic import Latencies, Load, configure, haproxy, load, pods, settings_in

ROOT = Path(__file__).resolve().parents[2]
ALONE_S = 20.0
SETTLE_S = 75.0


@dataclass(frozen=True)
class Traffic:
    p50_ms: float
    p99_ms: float
    requests: int
    failed: int
    haproxy_cores: float


@dataclass(frozen=True)
class Result:
    """`cores`: CPU time over wall time. `late_s`: the most that a second's reading began after the second before it,
    beyond one. `told`: samples by what was known."""

    endpoints: int
    active: int
    rate_rps: float
    seconds: float
    controller_cores: float
    controller_rss_mib: float
    controller_peak_mib: float
    reading_ms: float
    late_s: float
    writes_per_s: float
    told: Mapping[str, int]
    alone: Traffic
    read: Traffic


class Statistics:
    """The one HAProxy's, and when each reading began and how long it took."""

    def __init__(self, port: int) -> None:
        self._port, self._reader = port, Reader()
        self.began: list[float] = []
        self.took: list[float] = []

    async def read(self, host: str, port: int, timeout_s: float) -> dict[str, Counters]:
        began_s = time.monotonic()
        self.began.append(began_s)
        try:
            return await self._reader.read("127.0.0.1", self._port, timeout_s)
        finally:
            self.took.append(time.monotonic() - began_s)

    def clear(self) -> None:
        self.began, self.took = [], []


def cpu_s(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def traffic(found: Latencies, haproxy_cores: float) -> Traffic:
    requests = len(found.seconds)
    return Traffic(found.quantile_ms(0.5), found.quantile_ms(0.99), requests, found.failed, haproxy_cores)


class Controllers:
    """The autoscaler as `controllers run` wires it, over a cluster in memory."""

    def __init__(self, endpoints: int, statistics: Statistics, folder: Path) -> None:
        stores: dict[Gvr, Store] = {MODEL_ENDPOINTS: Store(MODEL_ENDPOINTS)}
        stores |= {gvr: Store(gvr, index=names.LABEL_ENDPOINT) for gvr in (*KINDS, PODS)}
        fill(stores, endpoints)
        gateways = Store(PODS)
        gateways.put(
            {
                "metadata": {"namespace": names.SYSTEM_NAMESPACE, "name": "gateway-1", "uid": "g1"},
                "status": {"phase": "Running", "podIP": "127.0.0.1"},
            }
        )
        self.cluster, settings, self.metrics = Cluster(stores), Settings(), Metrics()
        lease = self.cluster
        writer = FencedWriter(self.cluster, lease)  # type: ignore[arg-type]
        self.checkpoints = Checkpoints(self.cluster, writer, lease, names.SYSTEM_NAMESPACE)  # type: ignore[arg-type]
        self.journal = Journal(folder / "records", self.metrics.records_dropped.inc)
        self.autoscaler = Autoscaler(
            stores,
            gateways,
            writer,
            lease,  # type: ignore[arg-type]
            Scaler(self.cluster, writer, stores, "bench"),  # type: ignore[arg-type]
            self.metrics,
            settings,
            Sampler(settings, statistics.read),
            self.checkpoints,
            self.journal,
        )

    async def run(self) -> None:
        await self.checkpoints.read()
        async with asyncio.TaskGroup() as group:
            for part in (self.journal.run(), self.checkpoints.run(), self.autoscaler.run()):
                group.create_task(part)

    def told(self) -> dict[str, int]:
        """Samples so far, by outcome."""
        samples = next(iter(self.metrics.samples.collect())).samples
        return {each.labels["outcome"]: int(each.value) for each in samples if each.name.endswith("_total")}


@dataclass(frozen=True)
class Mark:
    """Counts at one moment."""

    at_s: float
    own_cpu_s: float
    haproxy_cpu_s: float
    writes: int
    told: Mapping[str, int]


def mark(controllers: Controllers, haproxy_pid: int) -> Mark:
    now = time.monotonic(), time.process_time(), cpu_s(haproxy_pid)
    return Mark(*now, controllers.cluster.writes, controllers.told())


async def observed(
    controllers: Controllers, statistics: Statistics, pid: int, seconds: float, profile: Path | None
) -> tuple[Mark, Mark]:
    """The loop's steady state: the first cycles, which write every status, and the first rest are let pass."""
    running = asyncio.create_task(controllers.run())
    await asyncio.sleep(SETTLE_S)
    statistics.clear()
    profiler = cProfile.Profile() if profile else None
    before = mark(controllers, pid)
    if profiler:
        profiler.enable()
    await asyncio.wait({running}, timeout=seconds)
    if profiler and profile:
        profiler.disable()
        profiler.dump_stats(profile)
    after = mark(controllers, pid)
    if running.done():
        running.result()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return before, after


def alone(given: Load, pid: int) -> Traffic:
    """The same traffic while nobody reads statistics."""
    with load(given) as latencies:
        time.sleep(5)
        before_s, began_s = cpu_s(pid), time.monotonic()
        time.sleep(max(given.seconds - 7, 1))
        cores = (cpu_s(pid) - before_s) / (time.monotonic() - began_s)
    return traffic(only(latencies), cores)


def only(found: deque[Latencies]) -> Latencies:
    if not found:
        raise RuntimeError("the load ended without a word")
    return found[0]


def measure(endpoints: int, active: int, rate_rps: float, seconds: float, profile: Path | None) -> Result:
    with tempfile.TemporaryDirectory() as name, pods() as ports:
        folder = Path(name)
        settings = settings_in(folder / "run", endpoints)
        configure(settings, endpoints, ports)
        with haproxy(settings) as pid:
            without = alone(Load(settings.https_port, active, rate_rps, ALONE_S), pid)
            statistics = Statistics(settings.stats_port)
            controllers = Controllers(endpoints, statistics, folder)
            collect_seldom()
            lasting = Load(settings.https_port, active, rate_rps, SETTLE_S + seconds, SETTLE_S)
            with load(lasting) as latencies:
                before, after = asyncio.run(observed(controllers, statistics, pid, seconds, profile))
    wall_s = after.at_s - before.at_s
    gaps = [later - earlier for earlier, later in zip(statistics.began, statistics.began[1:], strict=False)]
    return Result(
        endpoints=endpoints,
        active=active,
        rate_rps=rate_rps,
        seconds=seconds,
        controller_cores=(after.own_cpu_s - before.own_cpu_s) / wall_s,
        controller_rss_mib=memory_mib("VmRSS"),
        controller_peak_mib=memory_mib("VmHWM"),
        reading_ms=1000 * sum(statistics.took) / len(statistics.took),
        late_s=max(gaps) - 1.0,
        writes_per_s=(after.writes - before.writes) / wall_s,
        told={key: count - before.told.get(key, 0) for key, count in after.told.items()},
        alone=without,
        read=traffic(only(latencies), (after.haproxy_cpu_s - before.haproxy_cpu_s) / wall_s),
    )


def table(result: Result) -> str:
    known = result.told.get("known", 0) / max(sum(result.told.values()), 1)
    rows = [
        f"{result.endpoints} endpoints, {result.active} active, {result.rate_rps:g} requests/s, {result.seconds:g} s",
        f"controller: {result.controller_cores:.2f} cores (goal 0.5), {result.controller_rss_mib:.0f} MiB, "
        f"at most {result.controller_peak_mib:.0f} (goal 1024)",
        f"a reading takes {result.reading_ms:.0f} ms; the latest second began {result.late_s:.2f} s late; "
        f"{result.writes_per_s:.0f} writes/s; known samples {known:.2%}",
        f"{'':>16} {'p50':>9} {'p99':>9} {'HAProxy':>12} {'failed':>7}",
    ]
    for label, each in (("traffic alone", result.alone), ("with the reading", result.read)):
        numbers = f"{each.p50_ms:6.2f} ms {each.p99_ms:6.2f} ms {each.haproxy_cores:6.2f} cores {each.failed:7}"
        rows.append(f"{label:>16} {numbers}")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=10_000)
    parser.add_argument("--active", type=float, default=0.1, help="share of the endpoints that have traffic")
    parser.add_argument("--rate", type=float, default=1_000.0, help="requests per second, all endpoints together")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results" / "autoscaler_scale.json")
    given = parser.parse_args()
    active = max(int(given.endpoints * given.active), 1)
    result = measure(given.endpoints, active, given.rate, given.seconds, given.profile)
    print(table(result))
    machine = {"machine": f"{platform.machine()}, {multiprocessing.cpu_count()} cores"}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(asdict(result) | machine, indent=1) + "\n")


if __name__ == "__main__":
    main()
