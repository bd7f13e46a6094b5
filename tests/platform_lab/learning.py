"""What is learnt of an endpoint's replicas while it is under load, as three parts of the platform tell it.

Owns looking: the status for what was learnt, HAProxy for what is in force, Prometheus for why. Leaves to the tests
what is right. One idea: a look is a value, and a course is looks in their order, so a failed test shows how it came.
"""

from __future__ import annotations

import csv
import io
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controllers.autoscaler.haproxy import PORT
from controllers.autoscaler.prometheus import ask_prometheus, read
from controllers.autoscaler.signals import Pod, signals_of
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from spec import names
from tests.platform_lab.suite import Suite

LOOK_S = 10.0


@dataclass(frozen=True)
class Look:
    """`at_s`: since the load began. maxconn: of each pod that takes requests, without one that is asked for another
    limit. cpu: of the pod that uses most, as a share of its quota."""

    at_s: float
    limit: int
    knee: float | None
    why: str
    ready: int
    maxconn: Mapping[str, int]
    cpu: float | None

    def __str__(self) -> str:
        knee = "-" if self.knee is None else f"{self.knee:.1f}"
        cpu = "-" if self.cpu is None else f"{self.cpu:.2f}"
        held = ",".join(str(each) for each in sorted(self.maxconn.values()))
        return f"{self.at_s:6.0f} {self.limit:6} {knee:>6} {self.ready:6} {held:>10} {cpu:>6}  {self.why}"


Course = list[Look]
Courses = Mapping[str, Course]


def watch(suite: Suite, endpoints: Sequence[str], until: Callable[[Courses], bool], bound_s: float) -> Courses:
    """Looks at all of them every ten seconds, until that is true of the courses so far or `bound_s` is over."""
    began_s, ask = time.monotonic(), ask_prometheus(suite.instance.prometheus)
    found: dict[str, Course] = {endpoint: [] for endpoint in endpoints}
    while True:
        at_s = time.monotonic() - began_s
        signals = signals_of(read(ask))
        for endpoint, course in found.items():
            course.append(look(suite, endpoint, at_s, signals))
        if at_s >= bound_s or until(found):
            return found
        time.sleep(max(began_s + at_s + LOOK_S - time.monotonic(), 0.0))


def look(suite: Suite, endpoint: str, at_s: float, signals: Mapping[Pod, Signals]) -> Look:
    status = suite.status(endpoint)
    revision = status["trafficRevision"]
    said = status["autoscaler"]["revisions"][revision]
    probed = said.get("probe", {}).get("pod")
    maxconn = limits_in_force(suite, status["gateway"]["backends"][revision])
    known = [signals.get((names.team_namespace("alpha"), pod), UNKNOWN).cpu for pod in maxconn]
    return Look(
        at_s=at_s,
        limit=said["limit"],
        knee=said.get("knee"),
        why=said.get("why", ""),
        ready=status["autoscaler"].get("readyReplicas", 0),
        maxconn={pod: limit for pod, limit in maxconn.items() if pod != probed},
        cpu=max((cpu for cpu in known if cpu is not None), default=None),
    )


def limits_in_force(suite: Suite, back_end: str) -> dict[str, int]:
    """The `maxconn` of each server that takes requests, as HAProxy itself tells."""
    (pod,) = [p for p in suite.system_pods(names.COMPONENT_GATEWAY) if p["status"].get("phase") == "Running"]
    with socket.create_connection((pod["status"]["podIP"], PORT), 10) as connection:
        connection.sendall(b"show stat\n")
        text = connection.makefile().read()
    rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
    servers = [row for row in rows if row["pxname"] == back_end and row["svname"] != "BACKEND"]
    return {row["svname"]: int(row["slim"]) for row in servers if row["status"] in ("UP", "no check")}


def table(endpoint: str, course: Course) -> str:
    """Each look that differs from the one before, the last one too."""
    head = f"{endpoint}\n{'s':>6} {'limit':>6} {'knee':>6} {'ready':>6} {'maxconn':>10} {'cpu':>6}  why"
    told: list[Look] = []
    for each in course:
        if not told or _weight(each) != _weight(told[-1]) or each is course[-1]:
            told.append(each)
    return "\n".join([head, *map(str, told)])


def _weight(each: Look) -> tuple[object, ...]:
    return each.limit, each.knee, each.ready, sorted(each.maxconn.values())
