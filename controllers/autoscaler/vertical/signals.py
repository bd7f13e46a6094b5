"""What is known of one pod beside its requests. A number, or None: nobody knows.

Owns the names and units. Leaves measuring them to the caller and what they mean to the learner. Its one idea: there
is no zero that was not measured.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signals:
    """One pod over the last minute. Shares are of 1, and above 1 where the thing itself can be.

    p50_ms, p95_ms: time from a request's headers to its answer, inside the pod. cpu: used share of the quota.
    cpu_pressure: share of the time in which something of it waited for CPU. memory: working set over its limit.
    io_wait: share of the time in which something waited for I/O. kv_cache: share in use, of an LLM engine.
    waiting: requests that wait inside the pod. gpu_memory, gpu_bandwidth, tensor_activity, gpu_utilization: the
    fullest of its GPUs. self_test_ms: a prediction on the input example, alone, before the pod was ready.
    """

    p50_ms: float | None = None
    p95_ms: float | None = None
    cpu: float | None = None
    cpu_pressure: float | None = None
    memory: float | None = None
    io_wait: float | None = None
    kv_cache: float | None = None
    waiting: float | None = None
    gpu_memory: float | None = None
    gpu_bandwidth: float | None = None
    tensor_activity: float | None = None
    gpu_utilization: float | None = None
    self_test_ms: float | None = None


UNKNOWN = Signals()
