"""What all tests share: their order, which may run side by side, and the tools that those on a cluster need."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

DESTRUCTIVE = "destructive"
SLOW = [Path(__file__).parent / folder for folder in ("properties", "scenarios")]
OWN_NODES = ("test_node.py", "test_context_cluster.py", "test_platform_down_all.py", "test_platform_life.py")
ON_THE_SUITE = ("test_platform_", "test_controllers_", "test_engines_", "test_learning_")


# A busy machine is slow, not wrong.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure() -> None:
    """A run in the background is started with these ignored, and so would be every process that a test interrupts."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that break the suite's cluster run last; the order is otherwise the files'. Properties and
    scenarios take more time than a check has."""
    for item in items:
        if any(folder in item.path.parents for folder in SLOW):
            item.add_marker("slow")
    items.sort(key=lambda item: item.get_closest_marker(DESTRUCTIVE) is not None)


def group_of(nodeid: str) -> str:
    """Tests that must follow each other in one worker: those on the suite's platform, those with nodes of their own."""
    file = nodeid.partition("::")[0].rpartition("/")[2]
    if file in OWN_NODES:
        return "nodes"
    return "suite" if file.startswith(ON_THE_SUITE) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With two workers, whole groups go to one of them; pytest-xdist's own groups do not work with this pytest."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Groups(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first test: where any test has a cluster, no other run has one, and the tools are on PATH.

    What is missing is built, with progress.
    """
    if session.config.option.collectonly or not any(item.get_closest_marker("cluster") for item in session.items):
        return
    from embedded import packages, toolchain
    from tests.platform_lab import one_run
    from tests.platform_lab.command import HOME, ROOT

    def say(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    session.config.add_cleanup(one_run.hold(HOME, one_run.this_run(ROOT), say).close)
    packages.ensure(say)
    tools = toolchain.ensure(toolchain.plan(HOME, os.environ.get("PATH", os.defpath)), say, Path(sys.executable))
    os.environ["PATH"] = f"{tools.bin_dir}:{os.environ.get('PATH', os.defpath)}"
