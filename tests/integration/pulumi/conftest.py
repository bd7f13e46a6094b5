"""A real API server with its controllers (no node, so no pod runs), the real `pulumi`, and registries that answer.

The rollout is stood in for by a thread that writes `Ready`; what is tested is what Pulumi does to the cluster.

Cases of this kind (`pulumi-...`) that have no test, since what they are about is not there yet: A4 and A5 (no stack of
a cloud), A7 and B7 (drift by owner, on a schedule), B8 (no status of a run is kept), C1 (`min: 0` is refused), C3 (no
endpoint over several nodes), H1 and I1 to I6 (no plan is stored or commented on a pull request). H6 is a time, which no
test asserts.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.workspace import Workspace

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "pulumi", "pulumi-language-python")
TOKEN = "of-this-test"
ENDPOINTS = "/apis/knobless.dev/v1alpha1/namespaces/{namespace}/modelendpoints"
# A stack's generated file lies in the checkout: a name that no person's environment has.
ENVIRONMENT = f"t{uuid.uuid4().hex[:12]}"
PLATFORM = f"""
environment: {ENVIRONMENT}
teams:
  alpha: {{quota: {{cpu: "16", memory: 64Gi, pods: 80}}}}
  beta: {{}}
"""
CONTROLLERS = (
    "garbage-collector-controller,namespace-controller,serviceaccount-controller,resourcequota-controller,"
    "endpointslice-controller,root-ca-certificate-publisher-controller"
)


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """Paths of the programs; the toolchain puts them on PATH."""
    found = {name: shutil.which(name) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)} (`knobless env` names the toolchain's folder)")
    return {name: str(path) for name, path in found.items()}


def wait_until(holds: Callable[[], bool], most_s: float, what: str) -> None:
    deadline = time.monotonic() + most_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {most_s:.0f} s")
        time.sleep(0.1)


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], bool], float, str], None]:
    return wait_until


@pytest.fixture(scope="session")
def platform_text() -> str:
    return PLATFORM


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Cluster:
    """The API server, asked as an administrator."""

    url: str
    kubeconfig: Path
    client: httpx.Client

    def ready(self) -> bool:
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        answer = self.client.get(path)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    def endpoint(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.get(f"{ENDPOINTS.format(namespace=namespace)}/{name}")

    def apply(self, path: str, body: Any, manager: str = "a-person", force: bool = True) -> httpx.Response:
        return self.client.patch(
            path,
            params={"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"},
            content=json.dumps(body),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    def merge(self, path: str, body: Any) -> httpx.Response:
        return self.client.patch(
            path, content=json.dumps(body), headers={"Content-Type": "application/merge-patch+json"}
        )


def kubeconfig_text(server: str, **cluster: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True, **cluster}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{Path(name).name}.log").open("wb") as log:
        return subprocess.Popen([name, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def cluster(programs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("control-plane")
    ports = {name: free_port() for name in ("etcd", "peer", "api")}
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "accounts.key").write_bytes(pem)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    etcd, server = f"http://127.0.0.1:{ports['etcd']}", f"https://127.0.0.1:{ports['api']}"
    (folder / "kubeconfig").write_text(kubeconfig_text(server))
    client = httpx.Client(
        base_url=server, verify=False, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, trust_env=False
    )
    cluster = Cluster(server, folder / "kubeconfig", client)
    started = [start(folder, programs["etcd"], *etcd_flags(folder, etcd, ports["peer"]))]
    try:
        started.append(start(folder, programs["kube-apiserver"], *api_flags(folder, etcd, ports["api"])))
        wait_until(cluster.ready, 60, "the API server")
        started.append(start(folder, programs["kube-controller-manager"], *controller_flags(folder)))
        yield cluster
    finally:
        client.close()
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def etcd_flags(folder: Path, url: str, peer: int) -> list[str]:
    return [
        f"--data-dir={folder}/etcd", f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}", "--unsafe-no-fsync", "--log-level=error",
    ]  # fmt: skip


def api_flags(folder: Path, etcd: str, port: int) -> list[str]:
    return [
        f"--etcd-servers={etcd}", f"--secure-port={port}", "--bind-address=127.0.0.1",
        # Of documentation's own range: no node is here that could be told it.
        "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", f"--cert-dir={folder}/certs",
        f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC",
        f"--service-account-key-file={folder}/accounts.key",
        f"--service-account-signing-key-file={folder}/accounts.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=198.51.100.0/24", "--service-node-port-range=8000-32767",
    ]  # fmt: skip


def controller_flags(folder: Path) -> list[str]:
    return [
        f"--kubeconfig={folder}/kubeconfig", f"--service-account-private-key-file={folder}/accounts.key",
        "--leader-elect=false", f"--controllers={CONTROLLERS}", "--secure-port=0",
    ]  # fmt: skip


class Registries(http.server.BaseHTTPRequestHandler):
    """An image for every tag and a model for every version below 9, as a registry and MLflow would say it."""

    def do_HEAD(self) -> None:
        self._answer(404 if "missing" in self.path else 200, b"")

    def do_GET(self) -> None:
        asked = httpx.URL(self.path)
        version = asked.params.get("version", "")
        tags = {"knobless.sha256": "ab" * 32, "knobless.environment": "missing" if version == "8" else "e1"}
        tags["knobless.card"] = '{"flavor":"sklearn","pyfunc":true,"python":"3.11.9"}'
        rows = [{"key": key, "value": value} for key, value in tags.items()]
        if asked.path.endswith("/get") and version != "9":
            self._answer(200, json.dumps({"model_version": {"status": "READY", "tags": rows}}).encode())
        elif asked.path.endswith("/get"):
            self._answer(404, b"{}")
        else:
            self._answer(200, json.dumps({"model_versions": [{"version": "1"}, {"version": "2"}]}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Docker-Content-Digest", "sha256:" + "cd" * 32)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="session")
def registries() -> Iterator[str]:
    """`host:port` of both."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registries) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@dataclass
class StandIn:
    """Says `Ready` of every endpoint's newest spec, but of those that are held back."""

    cluster: Cluster
    held: set[str] = field(default_factory=set)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(0.2):
            with contextlib.suppress(httpx.HTTPError):
                self.look()

    def look(self) -> None:
        found = self.cluster.get("/apis/knobless.dev/v1alpha1/modelendpoints") or {"items": []}
        for endpoint in found["items"]:
            if endpoint["metadata"]["name"] not in self.held:
                self.say_ready(endpoint)

    def say_ready(self, endpoint: dict[str, Any], generation: int | None = None) -> None:
        metadata = endpoint["metadata"]
        seen = metadata["generation"] if generation is None else generation
        condition = {
            "type": "Ready",
            "status": "True",
            "observedGeneration": seen,
            "reason": "Serving",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"observedGeneration": metadata["generation"], "conditions": [condition]}
        path = f"{ENDPOINTS.format(namespace=metadata['namespace'])}/{metadata['name']}/status"
        identity = {key: endpoint[key] for key in ("apiVersion", "kind")}
        body = {**identity, "metadata": {"name": metadata["name"]}, "status": status}
        self.cluster.apply(path, body, manager="knobless-rollout")


@pytest.fixture(scope="session")
def stand_in(cluster: Cluster) -> Iterator[StandIn]:
    stand_in = StandIn(cluster)
    thread = threading.Thread(target=stand_in.run, daemon=True)
    thread.start()
    yield stand_in
    stand_in.ended.set()
    thread.join(10)


@dataclass(frozen=True)
class Ran:
    code: int
    output: str


@dataclass(frozen=True)
class Engine:
    """`pulumi` over an environment of the test's own, with its state in a folder."""

    folder: Path
    variables: dict[str, str]
    program: str

    def write(self, name: str, text: str) -> None:
        path = self.folder / "stacks" / ENVIRONMENT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def endpoint(self, team: str, name: str, **changed: str) -> str:
        """Writes an endpoint's file; returns its stack's name."""
        stated = {"endpoint": name, "model": "models:/wine/1", "concurrency": "{min: 1, max: 8}"} | changed
        text = "".join(f"{key}: {value}\n" for key, value in stated.items())
        self.write(f"endpoints/{team}/{name}.yaml", text)
        return f"{ENVIRONMENT}.{team}.{name}"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [self.program, "--non-interactive", "--color", "never", "-C", str(ROOT), *arguments]
        return subprocess.Popen(
            command, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *arguments: str) -> Ran:
        process = self.start(*arguments)
        output, _ = process.communicate()
        return Ran(process.returncode, output)

    def made(self, stack: str) -> str:
        """Makes the stack; returns its name."""
        ran = self.run("stack", "init", stack, "--secrets-provider", "passphrase")
        assert ran.code == 0, ran.output
        return stack

    def up(self, stack: str, *more: str) -> Ran:
        return self.run("up", "-s", stack, "--yes", "--skip-preview", *more)

    def steps(self, stack: str, *more: str) -> list[dict[str, Any]]:
        """Steps of a preview that change something."""
        process = subprocess.run(
            [self.program, "--non-interactive", "-C", str(ROOT), "preview", "-s", stack, "--json", *more],
            env=self.variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr
        return [step for step in json.loads(process.stdout)["steps"] if step["op"] not in ("same", "refresh")]


@pytest.fixture(scope="session")
def engine(
    cluster: Cluster, registries: str, programs: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("pulumi")
    for name in ("state", "home"):
        (folder / name).mkdir()
    plugins = os.environ.get("KNOBLESS_PULUMI_PLUGINS") or beside(programs["pulumi"])
    if plugins:
        (folder / "home" / "plugins").symlink_to(plugins)
    facts = {
        "kubeconfig": str(cluster.kubeconfig),
        "registry": registries,
        "model_registry": f"http://{registries}",
        "gateway_url": "https://127.0.0.1:8443",
    }
    (folder / "cluster.json").write_text(json.dumps(facts))
    variables = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "KNOBLESS_CLUSTER": str(folder / "cluster.json"),
        "KNOBLESS_PYTHON": sys.executable,
        "KNOBLESS_STACKS": str(folder / "stacks"),
        "PULUMI_BACKEND_URL": f"file://{folder}/state",
        "PULUMI_CONFIG_PASSPHRASE": "of-this-test",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        "PULUMI_HOME": str(folder / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    engine = Engine(folder, variables, programs["pulumi"])
    engine.write("platform.yaml", PLATFORM)
    yield engine
    for generated in (ROOT / ".pulumi-config").glob(f"Pulumi.{ENVIRONMENT}.*"):
        generated.unlink()


def beside(pulumi: str) -> Path | None:
    """The plugins that the toolchain installs beside its programs."""
    plugins = Path(pulumi).parents[1] / "plugins"
    return plugins if plugins.is_dir() else None


class WithoutDeployments(Pulumi):
    """As the command line runs it, but for the platform's two Deployments, whose pods could not run here, and for the
    policy pack, which would judge those two without what they hold.
    """

    def _packs(self) -> list[str]:
        return ["--exclude", "**Deployment**"]


@pytest.fixture(scope="session")
def workspace(engine: Engine) -> Workspace:
    """The engine's files and state as the command line sees them."""
    place = Workspace(ROOT, engine.folder / "stacks", engine.folder / "knobless", ENVIRONMENT, "test")
    place.cluster_file.parent.mkdir(parents=True)
    place.cluster_file.write_text((engine.folder / "cluster.json").read_text())
    place.pulumi_home.mkdir()
    if (engine.folder / "home" / "plugins").exists():
        (place.pulumi_home / "plugins").symlink_to(engine.folder / "home" / "plugins")
    return place


@pytest.fixture
def command(engine: Engine, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Pulumi:
    """What `knobless` drives Pulumi with."""
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        monkeypatch.setenv(name, engine.variables[name])
    return WithoutDeployments(workspace, Path(engine.program).parent)


@pytest.fixture(scope="session")
def platform(engine: Engine, stand_in: StandIn) -> str:
    """The platform's stack, applied but for its two Deployments, whose pods could not run here."""
    stack = engine.made(f"{ENVIRONMENT}.platform")
    ran = engine.up(stack, "--exclude", "**Deployment**")
    assert ran.code == 0, ran.output
    return stack
