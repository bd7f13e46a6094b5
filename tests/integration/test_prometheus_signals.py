"""The autoscaler's signals through a real Prometheus, as the node runs it.

Real: Prometheus, node exporter, our runtime's metrics. What no machine of the suite has (GPUs with DCGM, vLLM, a kernel
with pressure stall information) is text in `recorded`, or written here, after the exporters' published names.
"""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controllers.autoscaler.prometheus import SignalReader, ask_prometheus, read
from controllers.autoscaler.signals import QUERIES, signals_of
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.metrics import Metrics
from embedded import monitoring, packages, services
from embedded.instance import Instance
from runtimes.interface import metrics as interface
from runtimes.mlflow import metrics as runtime

pytestmark = pytest.mark.process

RECORDED = Path(__file__).parent / "recorded"
INSTANCE = Instance()
WINE, STALE, PRESSED, LLM, SMALL = (
    ("team-alpha", name) for name in ("wine-1234abcd-x", "stale-0", "pressed-0", "llm-1111aaaa-x", "small-2222bbbb-y")
)
STARTED_S = time.monotonic()
BOUND_S = 40.0


def kubelet() -> str:
    """Half a core of a quota of one, throttled in a fifth of its periods; the same last seen 90 s ago; and one of whose
    stalls the kernel tells."""
    age_s = 100.0 + time.monotonic() - STARTED_S
    lines = []
    for (namespace, pod), stamp in ((WINE, ""), (STALE, f" {int((time.time() - 90) * 1000)}"), (PRESSED, "")):
        stalled_s = age_s if (namespace, pod) == PRESSED else 0.0
        labels = f'container="server",namespace="{namespace}",pod="{pod}",id="/{pod}"'
        values = {
            "container_cpu_usage_seconds_total": 0.5 * age_s,
            "container_cpu_cfs_periods_total": 10 * age_s,
            "container_cpu_cfs_throttled_periods_total": 2 * age_s,
            # a lasting zero is how cAdvisor tells of cgroup v1, where there is no such information
            "container_pressure_cpu_waiting_seconds_total": 0.6 * stalled_s,
            "container_pressure_io_waiting_seconds_total": 0.3 * stalled_s,
            "container_spec_cpu_quota": 100_000,
            "container_spec_cpu_period": 100_000,
            "container_memory_working_set_bytes": 3 * 2**28,
            "container_spec_memory_limit_bytes": 2**30,
            "container_of_no_use": 1,
        }
        lines += [f"{name}{{{labels}}} {value}{stamp}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def requests() -> Callable[[], str]:
    """What the front process of a model's pod would tell: 19 of 20 requests take 0.2 s, one 1.2 s."""
    metrics = interface.Metrics("wine", "1")
    own = runtime.Metrics(metrics)
    own.self_test_s.set(0.1)
    own.waiting.set(2)

    def text() -> str:
        for number in range(20):
            metrics.count(200, 1.2 if number == 0 else 0.2)
        return metrics.render().decode()

    return text


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Exporters:
    """All that is no process of its own, a path each on one port; `targets` lists pods as the controllers do."""

    def __init__(self) -> None:
        pages = {"/kubelet": kubelet, "/metrics": requests()}
        pages |= {f"/{file.stem}": file.read_text for file in RECORDED.glob("*.prom")}
        pages["/targets"] = self.targets
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages[self.path]().encode()
                self.send_response(200)
                self.send_header("content-type", "application/json" if self.path == "/targets" else "text/plain")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                outer.asked += 1

        self.asked = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def targets(self) -> str:
        pods = {WINE: "/metrics", LLM: "/vllm", SMALL: "/vllm-older"}
        return json.dumps(
            [
                {"targets": [self.address], "labels": {"namespace": ns, "pod": pod, "__metrics_path__": path}}
                for (ns, pod), path in pods.items()
            ]
        )


def configuration(exporters: Exporters, node_exporter: str) -> dict[str, Any]:
    """The node's own, with other addresses and a faster pace; and DCGM's exporter, as a cluster with GPUs has it."""
    config: dict[str, Any] = json.loads(monitoring.prometheus(INSTANCE))
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    del jobs["controllers"]
    jobs["node"]["static_configs"][0]["targets"] = [node_exporter]
    jobs["kubelet"]["static_configs"][0]["targets"] = [exporters.address]
    jobs["kubelet"] = {k: v for k, v in jobs["kubelet"].items() if k not in ("scheme", "tls_config")}
    jobs["kubelet"]["metrics_path"] = "/kubelet"
    jobs["pods"]["http_sd_configs"] = [{"url": f"http://{exporters.address}/targets", "refresh_interval": "1s"}]
    jobs["dcgm"] = {"job_name": "dcgm", "metrics_path": "/dcgm", "honor_labels": True} | {
        "static_configs": [{"targets": [exporters.address]}]
    }
    return config | {"scrape_configs": list(jobs.values())}


def start(argv: tuple[str, ...], changed: dict[str, str]) -> subprocess.Popen[bytes]:
    """A component's own command line, with some of its flags changed."""
    words = [f"{flag}={changed[flag]}" if (flag := word.split("=")[0]) in changed else word for word in argv]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    packages.ensure()
    folder, exporters = tmp_path_factory.mktemp("prometheus"), Exporters()
    node_exporter, address = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = folder / "prometheus.json"
    config.write_text(json.dumps(configuration(exporters, node_exporter)))
    argv = {each.name: each.argv for each in services.components(INSTANCE, Path("/nowhere"), None)}
    own = {"--config.file": str(config), "--storage.tsdb.path": str(folder / "data"), "--web.listen-address": address}
    processes = [
        start(argv["node-exporter"], {"--web.listen-address": node_exporter}),
        start(argv["prometheus"], own),
    ]
    yield f"http://{address}", processes[1]
    for process in processes:
        process.kill()
        process.wait()
    exporters.server.shutdown()
    exporters.server.server_close()


@pytest.fixture(scope="module")
def signals(prometheus: tuple[str, subprocess.Popen[bytes]]) -> dict[tuple[str, str], Signals]:
    """Once everything was read often enough: two samples make a slope."""
    ask = ask_prometheus(prometheus[0])
    end_s = time.monotonic() + BOUND_S
    while True:
        found = signals_of(read(ask))
        wine = found.get(WINE, UNKNOWN)
        if None not in (wine.cpu, wine.p95_ms, wine.io_wait) and LLM in found and SMALL in found:
            return found
        assert time.monotonic() < end_s, found
        time.sleep(0.5)


def test_prometheus_takes_every_question(prometheus: tuple[str, subprocess.Popen[bytes]], signals: Any) -> None:
    assert {signal for signal, answer in read(ask_prometheus(prometheus[0])).items() if answer is None} == set()


def test_cpu_is_a_share_of_the_quota_and_not_diluted_by_the_time_before_the_pod(signals: dict[Any, Signals]) -> None:
    assert signals[WINE].cpu == pytest.approx(0.5, rel=0.05)
    assert signals[WINE].cpu_pressure == pytest.approx(0.2, rel=0.05)
    assert signals[WINE].memory == 0.75


def test_the_node_exporters_wait_for_io_is_told_of_each_pod_on_the_node(signals: dict[Any, Signals]) -> None:
    io_wait = signals[WINE].io_wait
    assert io_wait is not None
    assert 0 <= io_wait <= 1


def test_where_the_kernel_knows_a_pods_stalls_they_are_its_pressure(signals: dict[Any, Signals]) -> None:
    assert signals[PRESSED].cpu_pressure == pytest.approx(0.6, rel=0.05)
    assert signals[PRESSED].io_wait == pytest.approx(0.3, rel=0.05)


def test_latency_is_the_pods_own_histogram(signals: dict[Any, Signals]) -> None:
    p50_ms, p95_ms = signals[WINE].p50_ms, signals[WINE].p95_ms
    assert p50_ms is not None
    assert p95_ms is not None
    assert 150 <= p50_ms <= 220
    assert 180 <= p95_ms <= 1500
    assert (signals[WINE].waiting, signals[WINE].self_test_ms) == (2, 100)


@pytest.mark.case("autoscaler-A6")
def test_a_container_last_measured_before_the_window_is_unknown(signals: dict[Any, Signals]) -> None:
    assert STALE not in signals


def test_a_gpu_that_dcgm_measures_is_the_fullest_of_the_pods_gpus(signals: dict[Any, Signals]) -> None:
    llm = signals[LLM]
    assert (llm.gpu_memory, llm.gpu_bandwidth, llm.tensor_activity, llm.gpu_utilization) == (0.9, 0.77, 0.42, 0.94)
    assert not any(namespace == "strangers" for namespace, _ in signals)


def test_a_gpu_without_profiling_counters_is_unknown_in_those_alone(
    signals: dict[Any, Signals],
) -> None:
    small = signals[SMALL]
    assert (small.gpu_bandwidth, small.tensor_activity) == (None, None)
    assert (small.gpu_memory, small.gpu_utilization) == (0.25, 0.0)


def test_both_generations_of_vllm_tell_their_cache_and_their_queue(signals: dict[Any, Signals]) -> None:
    assert (signals[LLM].kv_cache, signals[LLM].waiting) == (0.83, 7)
    assert (signals[SMALL].kv_cache, signals[SMALL].waiting) == (0.12, 0)


def test_what_the_node_does_not_ask_for_is_not_kept(
    prometheus: tuple[str, subprocess.Popen[bytes]], signals: Any
) -> None:
    ask = ask_prometheus(prometheus[0])
    assert ask("container_of_no_use") == []
    assert ask("node_memory_MemTotal_bytes") != []


@pytest.mark.case("autoscaler-A3")
async def test_a_prometheus_that_dies_makes_signals_unknown_and_raises_nothing(
    prometheus: tuple[str, subprocess.Popen[bytes]], signals: Any
) -> None:
    """The last test of this file: it ends the process."""
    url, process = prometheus
    metrics = Metrics()
    reader = SignalReader(ask_prometheus(url), metrics)
    await reader.read_once()
    assert reader.of(*WINE).cpu is not None
    process.kill()
    process.wait()
    began_s = time.monotonic()
    await reader.read_once()
    assert time.monotonic() - began_s < 2
    assert metrics.registry.get_sample_value("knobless_autoscaler_prometheus_up") == 0
    assert read(ask_prometheus(url)) == dict.fromkeys(QUERIES)
