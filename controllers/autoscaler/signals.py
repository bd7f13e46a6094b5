"""What to ask Prometheus about the models' pods, and what its answers mean. Pure.

Owns the questions, one for each signal and all pods of all endpoints, and the way from answers to `Signals`. Leaves
asking to `prometheus`. Its one idea: how old a sample may be stands in the question, so it is judged on one clock,
that of the Prometheus that took it; what is not there, not finite, negative or absurd is unknown.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from controllers.autoscaler.vertical.signals import Signals
from spec import names

WINDOW_S: Final = 60
# A share of something that exists can be measured a little above 1, never far above.
SHARE_MAX: Final = 2.0
# Answers to one question: no list is no answer.
Answer = list[Any] | None
Pod = tuple[str, str]

_TEAMS = f'namespace=~"{names.team_namespace("x").removesuffix("x")}.+"'
_SERVER = f'{_TEAMS},container="server"'
_WAITING: Final = 'mode="iowait"'
# Times and counts have no bound of their own.
_UNBOUNDED: Final = frozenset({"p50_ms", "p95_ms", "waiting", "self_test_ms"})


def _slope(metric: str, labels: str = _SERVER) -> str:
    """Growth a second over the samples there are; `rate` takes the part of the window before a pod for zero.

    A counter of a container that is started again is another series, so none of these begins anew.
    """
    return f"deriv({metric}{{{labels}}}[{WINDOW_S}s])"


def _last(metric: str, labels: str = _TEAMS) -> str:
    return f"last_over_time({metric}{{{labels}}}[{WINDOW_S}s])"


def _mean(metric: str, labels: str = _TEAMS) -> str:
    return f"avg_over_time({metric}{{{labels}}}[{WINDOW_S}s])"


def _by_pod(expression: str) -> str:
    """The largest of a pod: a container that was restarted has two series for a while, a pod may have several GPUs."""
    return f"max by (namespace, pod) ({expression})"


def _latency_ms(quantile: float) -> str:
    def of(histogram: str) -> str:
        buckets = f"sum by (namespace, pod, le) (rate({histogram}_bucket{{{_TEAMS}}}[{WINDOW_S}s]))"
        return f"1000 * histogram_quantile({quantile}, {buckets})"

    return f"{of('knobless_runtime_request_duration_seconds')} or {of('vllm:e2e_request_latency_seconds')}"


def _cpu() -> str:
    quota = f"{_last('container_spec_cpu_quota', _SERVER)} / {_last('container_spec_cpu_period', _SERVER)}"
    return f"{_by_pod(_slope('container_cpu_usage_seconds_total'))} / {_by_pod(quota)}"


def _stalled(resource: str) -> str:
    """Pressure stall information. Where the kernel has none for a container, cAdvisor tells a zero that never grows."""
    metric = f"container_pressure_{resource}_waiting_seconds_total"
    return _by_pod(f"{_slope(metric)} and {_last(metric, _SERVER)} > 0")


def _cpu_pressure() -> str:
    """Pressure stall information where there is some, else the share of the quota's periods that were cut off."""
    throttled = f"{_slope('container_cpu_cfs_throttled_periods_total')} / {_slope('container_cpu_cfs_periods_total')}"
    return f"{_stalled('cpu')} or {_by_pod(throttled)}"


def _memory() -> str:
    limit = f"({_last('container_spec_memory_limit_bytes', _SERVER)} > 0)"
    return _by_pod(f"{_last('container_memory_working_set_bytes', _SERVER)} / {limit}")


def _io_wait() -> str:
    """The pod's own stalls where the kernel knows them, else the share of its node's time that waited for I/O."""
    place = f"group by (namespace, pod, node) ({_last('container_spec_cpu_period', _SERVER)})"
    node = f"avg by (node) ({_slope('node_cpu_seconds_total', _WAITING)})"
    return f"{_stalled('io')} or {_by_pod(f'{place} * on (node) group_left () {node}')}"


def _gpu_memory() -> str:
    used, free = _last("DCGM_FI_DEV_FB_USED"), _last("DCGM_FI_DEV_FB_FREE")
    return _by_pod(f"{used} / ({used} + {free})")


# Metric names: cAdvisor's in the kubelet, node exporter's, our runtime's, vLLM's (both of its generations), DCGM's.
QUERIES: Final[Mapping[str, str]] = {
    "p50_ms": _latency_ms(0.5),
    "p95_ms": _latency_ms(0.95),
    "cpu": _cpu(),
    "cpu_pressure": _cpu_pressure(),
    "memory": _memory(),
    "io_wait": _io_wait(),
    "kv_cache": f"{_by_pod(_mean('vllm:kv_cache_usage_perc'))} or {_by_pod(_mean('vllm:gpu_cache_usage_perc'))}",
    "waiting": f"{_by_pod(_mean('knobless_runtime_requests_waiting'))} "
    f"or {_by_pod(_mean('vllm:num_requests_waiting'))}",
    "gpu_memory": _gpu_memory(),
    "gpu_bandwidth": _by_pod(_mean("DCGM_FI_PROF_DRAM_ACTIVE")),
    "tensor_activity": _by_pod(_mean("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
    "gpu_utilization": f"{_by_pod(_mean('DCGM_FI_DEV_GPU_UTIL'))} / 100",
    # Zero until the test has been done; a model without an input example has none.
    "self_test_ms": f"1000 * ({_by_pod(_last('knobless_runtime_self_test_seconds'))} > 0)",
}
assert set(QUERIES) == {field.name for field in fields(Signals)}


def signals_of(answers: Mapping[str, Answer]) -> dict[Pod, Signals]:
    """By namespace and name of the pod. A question without an answer leaves its signal unknown for all pods."""
    found: dict[Pod, dict[str, float]] = {}
    for signal, answer in answers.items():
        for pod, value in _values(answer or ()):
            if value <= _most(signal):
                found.setdefault(pod, {})[signal] = value
    return {pod: Signals(**known) for pod, known in found.items()}


def _most(signal: str) -> float:
    return math.inf if signal in _UNBOUNDED else SHARE_MAX


def _values(answer: Iterable[Any]) -> Iterable[tuple[Pod, float]]:
    """Of each series that can be read: its pod, and a number that is finite and not negative."""
    for series in answer:
        try:
            labels, (_, text) = series["metric"], series["value"]
            pod, value = (str(labels["namespace"]), str(labels["pod"])), float(text)
        except (ArithmeticError, KeyError, TypeError, ValueError):
            continue
        if math.isfinite(value) and value >= 0:
            yield pod, value
