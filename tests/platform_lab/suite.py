"""One embedded platform for the whole suite: instance `test`, environment `suite`, files in a folder of its own.

It is driven as a person drives it: endpoint files and the `knobless` command. What a test reads, it reads from the
cluster's own API.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

import embedded
from controllers.kube import DEPLOYMENTS, MODEL_ENDPOINTS, PODS, KubeClient, NotFound, Object
from controllers.kube.credentials import from_kubeconfig
from embedded.instance import Instance
from spec import names
from tests.platform_lab import command
from tests.platform_lab.command import COMMAND_BOUND_S, HOME, Said, must
from tests.platform_lab.load import Load, Target

T = TypeVar("T")
INSTANCE: Final = "test"
ENVIRONMENT: Final = "suite"
DOWN_WINDOW_S: Final = 30
HOLD_S: Final = 45
PLATFORM: Final = {
    "environment": ENVIRONMENT,
    "cluster": "embedded",
    "teams": {"alpha": {}, "beta": {}},
    "autoscaler": {"down_window_s": DOWN_WINDOW_S},
    "rollout": {"hold_s": HOLD_S, "start_timeout_s": 240},
}


class Suite:
    """The running platform. `stacks` is the folder of the environment's folder."""

    def __init__(self, stacks: Path) -> None:
        self.stacks = stacks
        self.folder = stacks / ENVIRONMENT
        self.instance = Instance(INSTANCE, HOME, 1)
        self.keys: dict[str, str] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / names.PLATFORM_FILE).write_text(yaml.safe_dump(PLATFORM))

    # the command line

    def knobless(self, *arguments: str, bound_s: float = COMMAND_BOUND_S) -> Said:
        return command.knobless(self.stacks, "--instance", INSTANCE, "-e", ENVIRONMENT, *arguments, bound_s=bound_s)

    def must(self, *arguments: str) -> Said:
        return must(self.knobless(*arguments))

    def up(self, *only: str) -> Said:
        return self.must("up", "--no-demo", *(part for name in only for part in ("--only", name)))

    # files

    def file(self, team: str, endpoint: str) -> Path:
        return self.folder / names.ENDPOINTS_FOLDER / team / f"{endpoint}.yaml"

    def declare(self, endpoint: str, team: str = "alpha", model: str = "models:/sleeper/1", **fields: Any) -> Path:
        """Write an endpoint file; `fields` beside name and model."""
        whole = {"endpoint": endpoint, "model": model, "concurrency": {"min": 1, "max": 64}, **fields}
        path = self.file(team, endpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(whole, sort_keys=False))
        return path

    # the cluster

    def ask(self, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        async def inside() -> T:
            async with KubeClient(from_kubeconfig(self.instance.kubeconfig)) as kube:
                return await work(kube)

        return asyncio.run(inside())

    def object(self, endpoint: str, team: str = "alpha") -> Object | None:
        async def get(kube: KubeClient) -> Object | None:
            try:
                return await kube.get(MODEL_ENDPOINTS, names.team_namespace(team), endpoint)
            except NotFound:
                return None

        return self.ask(get)

    def status(self, endpoint: str, team: str = "alpha") -> dict[str, Any]:
        found = self.object(endpoint, team)
        return dict((found or {}).get("status") or {})

    def condition(self, endpoint: str, kind: str, team: str = "alpha") -> dict[str, Any]:
        conditions = self.status(endpoint, team).get("conditions") or []
        return next((dict(each) for each in conditions if each["type"] == kind), {})

    def pods(self, endpoint: str, team: str = "alpha") -> list[Object]:
        labels = f"{names.LABEL_ENDPOINT}={endpoint}"
        return self.ask(lambda kube: kube.list(PODS, names.team_namespace(team), labels))

    def system_pods(self, component: str) -> list[Object]:
        labels = f"{names.LABEL_COMPONENT}={component}"
        return self.ask(lambda kube: kube.list(PODS, names.SYSTEM_NAMESPACE, labels))

    def deployments(self, endpoint: str, team: str = "alpha") -> list[Object]:
        labels = f"{names.LABEL_ENDPOINT}={endpoint}"
        return self.ask(lambda kube: kube.list(DEPLOYMENTS, names.team_namespace(team), labels))

    def kubectl(self, *arguments: str) -> Said:
        tools = next(iter(sorted(HOME.glob("tools/*/bin/kubectl"))))
        argv = [str(tools), f"--kubeconfig={self.instance.kubeconfig}", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def hold_api_server(self, seconds: float) -> None:
        """The API server is gone for this long, as when it is upgraded or out of memory."""
        embedded.stop_component(self.instance, "kube-apiserver")
        try:
            time.sleep(seconds)
        finally:
            embedded.start_component(self.instance, "kube-apiserver")

    def signal_container(self, container_id: str, number: int) -> None:
        """Signal a container's first process, from outside its namespaces, as the kernel does."""
        members = [
            int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/cgroup") if container_id in _text(entry)
        ]
        assert members, f"no process of container {container_id}"
        os.kill(min(members), number)

    # requests

    def key(self, team: str) -> str:
        if team not in self.keys:
            self.keys[team] = self.must("keys", "create", "--team", team).out.strip()
        return self.keys[team]

    def target(self, endpoint: str, team: str = "alpha", key_of: str | None = None) -> Target:
        context = ssl.create_default_context(cafile=str(HOME / "ca" / "ca.crt"))
        address = str(self.instance.node_address)
        return Target(address, self.instance.gateway_port, context, endpoint, self.key(key_of or team))

    def load(self, endpoint: str, clients: int, sleep_s: float, team: str = "alpha", pause_s: float = 0.0) -> Load:
        return Load(self.target(endpoint, team), sleeping(sleep_s), clients, pause_s)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended since it was listed
        return ""


def sleeping(seconds: float) -> bytes:
    """A request that the sleeper answers after this long."""
    return json.dumps({"dataframe_split": {"columns": ["seconds"], "data": [[seconds]]}}).encode()
