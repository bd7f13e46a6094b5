"""Owns the wait for a starting node: what is still missing, when to give up, and what to say then.

Leaves starting and ending to `node`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from embedded import control, pause, readiness, services
from embedded.control import NodeStatus
from embedded.instance import Instance
from embedded.supervision import Phase

READY_BOUND_S: Final = 120.0
COMPONENT_BOUND_S: Final = 60.0
POLL_S: Final = 0.1
TAIL_LINES: Final = 15
# A component that ended this often in a row will not come up by waiting.
FAILURES_MAX: Final = 5

Report = Callable[[str], None]


class NodeError(Exception):
    """The node could not be brought up; the message names the component and shows the end of its log."""


class _Progress:
    """What has been seen and done so far in one wait."""

    def __init__(self, instance: Instance, report: Report) -> None:
        self._instance, self._report = instance, report
        self._start_s = time.monotonic()
        self._ready: set[str] = set()
        self._published = self._bound = False

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s

    def follow(self, status: NodeStatus) -> None:
        """Report components that became ready, and do what can only be done from then on."""
        for name, member in status.members.items():
            if member.phase is Phase.READY and name not in self._ready:
                self._report(f"{name} ready ({self.elapsed_s:.1f} s)")
                self._ready.add(name)
        if services.REGISTRY in self._ready and not self._published:
            pause.publish(self._instance, self._report)
            self._published = True
        if services.API_SERVER in self._ready and not self._bound:
            with contextlib.suppress(OSError):  # the API server may still lack its own roles: ask again
                readiness.apply_bindings(self._instance)
                self._bound = True


def wait_until_ready(instance: Instance, report: Report) -> None:
    """Returns when every component is ready, the node takes pods and DNS answers. Raises NodeError."""
    status = control.status(instance)
    if status is not None and problem_of(instance, status) is None:
        return
    progress = _Progress(instance, report)
    problem: str | None = "it has not started"
    while progress.elapsed_s < READY_BOUND_S:
        status = control.status(instance)
        if status is None and control.find_init(instance) is None:
            raise NodeError(f"the node ended while it was starting\n{tail(instance, 'init')}")
        if status is not None:
            give_up_on_failures(instance, status)
            progress.follow(status)
            problem = problem_of(instance, status)
            if problem is None:
                report(f"node {instance.node_name} is ready ({progress.elapsed_s:.1f} s)")
                return
        time.sleep(POLL_S)
    culprit = "init" if status is None else next(iter(_not_ready(status)), "kubelet")
    raise NodeError(f"the node is not ready after {READY_BOUND_S:g} s: {problem}\n{tail(instance, culprit)}")


def problem_of(instance: Instance, status: NodeStatus) -> str | None:
    """Why the cluster can't be used yet, or None where it can."""
    waiting = _not_ready(status)
    if waiting:
        return f"{waiting[0]} is {status.members[waiting[0]].phase}"
    return readiness.node_problem(instance) or readiness.dns_problem(instance) or pause.problem(instance)


def give_up_on_failures(instance: Instance, status: NodeStatus) -> None:
    for name, member in status.members.items():
        if member.failures >= FAILURES_MAX and member.phase is not Phase.READY:
            raise NodeError(f"{name} ended {member.failures} times ({member.last_end})\n{tail(instance, name)}")


def _not_ready(status: NodeStatus) -> list[str]:
    """In starting order, so the first is what the others may be waiting for."""
    return [name for name, member in status.members.items() if member.phase is not Phase.READY]


def await_phase(instance: Instance, name: str, phase: Phase) -> None:
    end_s = time.monotonic() + COMPONENT_BOUND_S
    while time.monotonic() < end_s:
        status = control.status(instance)
        if status is not None and status.members[name].phase is phase:
            return
        time.sleep(POLL_S)
    raise NodeError(f"{name} is not {phase} after {COMPONENT_BOUND_S:g} s\n{tail(instance, name)}")


def tail(instance: Instance, name: str) -> str:
    """The end of a component's log, with its path."""
    log = instance.log / f"{name}.log"
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if log.exists() else []
    return "\n".join((f"the end of {log}:", *(f"  {line[:400]}" for line in lines)))
