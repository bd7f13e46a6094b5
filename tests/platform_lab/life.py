"""A platform of its own, started from a clone of this checkout as a person starts it: by make and by the command.

Leaves to the tests what happens to it. One idea: `before` is the host as it was, so that what a life leaves is what
differs, whoever else lives on the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from controllers.kube import MODEL_ENDPOINTS, PODS, KubeClient
from controllers.kube.credentials import from_kubeconfig
from embedded import control, snapshot
from embedded.instance import Instance, choose_index, registered
from embedded.toolchain import planning
from stacks.cli import interruption
from tests.platform_lab.command import HOME, ROOT, Said, must, wait_until

T = TypeVar("T")
TEAMS: Final = ("team-alpha", "team-beta", "knobless-system")
WINE: Final = "stacks/local/endpoints/alpha/wine.yaml"


@dataclass
class Life:
    """The clone, and the platform that is started from it."""

    clone: Path
    name: str
    home: Path = HOME
    before: snapshot.Snapshot = field(default_factory=dict)
    neighbours: dict[str, int] = field(default_factory=dict)  # instances of HOME, with their slices, when it began

    def begins(self) -> None:
        self.neighbours, self.before = registered(HOME), snapshot.host_snapshot()

    @property
    def environment_dir(self) -> str:
        """Its folder below those that belong to one environment on one cluster."""
        return f"{self.name}.local"

    @property
    def instance(self) -> Instance:
        return Instance(self.name, self.home, choose_index(self.name, registered(self.home)))

    @property
    def cluster_dir(self) -> Path:
        return self.home / "clusters" / self.environment_dir

    @property
    def state(self) -> Path:
        return self.cluster_dir / "pulumi" / "state" / ".pulumi"

    def environment(self, **more: str) -> dict[str, str]:
        """A plain shell's: nothing of this test run's environment."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("KNOBLESS_", "PYTEST"))}
        own.pop("VIRTUAL_ENV", None)
        own["PATH"] = planning.outside(HOME, own["PATH"])
        return {**own, "KNOBLESS_HOME": str(self.home), "KNOBLESS_INSTANCE": self.name, **more}

    def run(self, *argv: str, **more: str) -> Said:
        done = subprocess.run(
            argv,
            cwd=self.clone,
            env=self.environment(**more),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=400,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def make(self, target: str) -> Said:
        return must(self.try_make(target))

    def try_make(self, target: str) -> Said:
        """As the README says, with a Python that has no package of ours."""
        return self.run("make", target, f"PYTHON={plain_python()}")

    def knobless(self, *arguments: str, **more: str) -> Said:
        return self.run(plain_python(), "./knobless", *arguments, **more)

    def shell(self, script: str, **more: str) -> Said:
        return self.run("bash", "-ec", script, **more)

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """A command in a session of its own, so that everything it starts can be told."""
        return subprocess.Popen(
            [plain_python(), "./knobless", *arguments],
            cwd=self.clone,
            env=self.environment(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        async def inside() -> T:
            async with KubeClient(from_kubeconfig(self.instance.kubeconfig)) as kube:
                return await work(kube)

        return asyncio.run(inside())

    def pods(self) -> dict[str, str]:
        """Name and UID of every pod that is not on its way out."""
        found = [pod["metadata"] for team in TEAMS for pod in self.ask(lambda kube, team=team: kube.list(PODS, team))]
        return {pod["name"]: pod["uid"] for pod in found if "deletionTimestamp" not in pod}

    def endpoints(self) -> dict[str, str]:
        found = self.ask(lambda kube: kube.list(MODEL_ENDPOINTS))
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found}

    def components(self) -> dict[str, int | None]:
        status = control.status(self.instance)
        assert status is not None
        return {name: member.pid for name, member in status.members.items()}

    def locks(self, stack: str) -> list[Path]:
        return list((self.state / "locks" / "organization" / "knobless" / stack).glob("*.json"))

    def state_of(self, stack: str) -> dict[str, Any]:
        text = (self.state / "stacks" / "knobless" / f"{stack}.json").read_text()
        return dict(json.loads(text)["checkpoint"]["latest"])

    def give_wine(self, memory: str) -> None:
        """A change that makes a revision, for whose readiness `pulumi up` waits."""
        kept = [line for line in (self.clone / WINE).read_text().splitlines() if not line.startswith("resources")]
        (self.clone / WINE).write_text("\n".join((*kept, f"resources: {{memory: {memory}}}", "")))

    def kill_everything(self) -> None:
        """The first process takes all others of the node with it, none of them asked."""
        process = control.find_init(self.instance)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: control.find_init(self.instance) is None, 60, "the node is gone")


def plain_python() -> str:
    return str(getattr(sys, "_base_executable", sys.executable))


def of_session(session: int) -> list[str]:
    """Command lines of what a command has started and is still there."""
    found = []
    for pid, process in interruption.running().items():
        try:
            if os.getsid(pid) == session and not process.ended:
                found.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip())
        except OSError:
            continue
    return found


def of_home(home: Path) -> list[str]:
    """Command lines of processes that name a home, in them or in their environment."""
    found = []
    for pid in interruption.running():
        try:
            told = [Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ")]
        except OSError:
            continue
        found += [told[0].replace(b"\0", b" ").decode(errors="replace")] if str(home).encode() in b"".join(told) else []
    return found


def left_behind(life: Life) -> list[str]:
    """What differs from before it began, without other instances, which may come and go meanwhile."""
    known = {**life.neighbours, **registered(HOME)}
    others = [Instance(name, HOME, index) for name, index in known.items() if (HOME, name) != (life.home, life.name)]
    marks = [mark for other in others for mark in (f"{other.interface} ", f"/{other.cgroup}", str(other.node))]
    found = snapshot.differences(life.before, snapshot.host_snapshot())
    return [line for line in found if not (on_loopback(line) or any(mark in f"{line} " for mark in marks))]


def on_loopback(difference: str) -> bool:
    """A port of this machine, as tests beside this one open them; those of a node are in a network of its own."""
    return difference.startswith("listening: ") and " 0100007F:" in difference


def cloned(folder: Path) -> Path:
    subprocess.run(("git", "clone", "--quiet", str(ROOT), str(folder)), check=True)
    return folder
