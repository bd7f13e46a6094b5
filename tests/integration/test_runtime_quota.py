"""What follows from a real CPU quota, set by the kernel on a process of ours."""

from __future__ import annotations

import json
import os
import sys

import pytest

from runtimes.quota import own_affinity
from tests.integration.runtime_process import ROOT
from tests.runtime_lab import cpu_quota

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.geteuid() != 0, reason="making a cgroup needs root")]

TELL = """
import json, os
from runtimes.mlflow.launch import predictor_environment
from runtimes.quota import cpu, cpu_quota, own_affinity
found = cpu(None, cpu_quota(), own_affinity())
threads = predictor_environment(os.environ, found.threads)["OMP_NUM_THREADS"]
print(json.dumps([found.cores, found.predictors, int(threads)]))
"""


@pytest.mark.case("runtimes-F1", "runtimes-F3")
@pytest.mark.parametrize("quota", [0.5, 1, 1.5, 1000])
def test_predictors_and_their_threads_are_those_of_the_quota_or_of_the_cores(quota: float) -> None:
    with cpu_quota.cores(quota) as folder:
        own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        cores, predictors, threads = json.loads(
            cpu_quota.run(folder, [sys.executable, "-c", TELL], {**own, "PYTHONPATH": str(ROOT)})
        )
    assert cores == min(quota, own_affinity())
    assert predictors * threads <= max(1, -(-cores // 1))
    assert predictors == -(-cores // 1)
