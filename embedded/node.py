"""Owns the life of one embedded cluster: `up`, `down`, its state in between, and the faults that tests ask for.

Leaves what runs to `services`, and how to `init` and `supervisor`. One idea: `up` compares what runs with what is
wanted; where they differ it ends the node, clears what an ended node leaves, and starts it again on the same state.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded import configs, control, host_side, layout, pause, services, startup
from embedded.control import NodeStatus
from embedded.instance import FOLDERS, Instance, registered
from embedded.specification import NodeSpecification, dump, files_digest
from embedded.startup import NodeError, Report
from embedded.supervision import Phase

END_GRACE_S: Final = 10.0
LOG_BYTES_MAX: Final = 10_000_000


@dataclass(frozen=True)
class Cluster:
    """Where a running cluster is found; the addresses are the same from the host and from its pods."""

    kubeconfig: Path
    api_server: str
    registry: str
    mlflow_uri: str
    prometheus: str
    node_address: str


def cluster_of(instance: Instance) -> Cluster:
    return Cluster(
        kubeconfig=instance.kubeconfig,
        api_server=instance.api_server,
        registry=instance.registry,
        mlflow_uri=instance.mlflow_uri,
        prometheus=instance.prometheus,
        node_address=str(instance.node_address),
    )


def specify(
    instance: Instance, tools_bin: Path, mlflow_python: Path | None, files: Mapping[Path, str]
) -> NodeSpecification:
    return NodeSpecification(
        hostname=instance.node_name,
        interface=layout.INTERFACE,
        socket=str(instance.init_socket),
        log=str(instance.log),
        log_bytes_max=LOG_BYTES_MAX,
        layout=layout.steps(instance),
        components=services.components(instance, tools_bin, mlflow_python),
        files_digest=files_digest({str(path): text for path, text in files.items()}),
    )


def up(
    instance: Instance,
    tools_bin: Path,
    mlflow_python: Path | None = None,
    report: Report = lambda _: None,
) -> Cluster:
    """A cluster that takes pods. Where it already runs as wanted, nothing is changed. Raises NodeError."""
    # Here and not above: this package's toolchain is used before there is an environment with cryptography in it.
    from embedded import certificates

    with _locked(instance):
        certificates.ensure(instance)
        files = _files(instance)
        wanted = specify(instance, tools_bin, mlflow_python, files)
        running = control.status(instance)
        if running is None or running.digest != wanted.digest:
            _restart(instance, wanted, files, report)
        _release_all(instance)
        startup.wait_until_ready(instance, report)
    return cluster_of(instance)


def down(instance: Instance, report: Report = lambda _: None) -> None:
    """End the node and remove its state. Nothing of it stays on the host; images, models and tools do."""
    with _locked(instance):
        _end(instance, report)
        shutil.rmtree(instance.node, ignore_errors=True)
        for folder in (instance.node, instance.node.parent):
            with contextlib.suppress(OSError):  # another instance's state is next to it
                folder.rmdir()


def purge(home: Path, folders: Collection[str] = FOLDERS) -> tuple[str, ...]:
    """Remove these folders of `home`, and itself where nothing else is in it; the answer names what else there is.

    ValueError where an instance still runs. A home that a person named may hold files of theirs.
    """
    for name, index in registered(home).items():
        if control.find_init(Instance(name, home, index)) is not None:
            raise ValueError(f"instance {name} runs; end it first")
    for folder in (home / name for name in folders):
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        home.rmdir()
    return tuple(sorted(path.name for path in home.iterdir())) if home.is_dir() else ()


def status(instance: Instance) -> NodeStatus | None:
    return control.status(instance)


def stop_component(instance: Instance, name: str) -> None:
    """End a component and keep it ended until `start_component`. Returns when it is gone."""
    control.ask(instance, {"do": "hold", "component": name})
    startup.await_phase(instance, name, Phase.STOPPED)


def start_component(instance: Instance, name: str) -> None:
    """Let a stopped component run again. Returns when it is ready."""
    control.ask(instance, {"do": "release", "component": name})
    startup.await_phase(instance, name, Phase.READY)


@contextlib.contextmanager
def _locked(instance: Instance) -> Iterator[None]:
    """One `up` or `down` of an instance at a time; the lock ends with its process."""
    instance.lock.parent.mkdir(parents=True, exist_ok=True)
    with instance.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _files(instance: Instance) -> dict[Path, str]:
    """Every file that the node reads, and the administrator's kubeconfig."""
    local, remote = "https://127.0.0.1:6443", instance.api_server
    clients = {instance.conf / f"{name}.kubeconfig": _kubeconfig(instance, local, name) for name in configs.CLIENTS}
    admin = {instance.kubeconfig: _kubeconfig(instance, remote, "admin")}
    return {**configs.rendered(instance, pause.reference(instance)), **clients, **admin}


def _kubeconfig(instance: Instance, server: str, name: str) -> str:
    authority, certificate, key = (
        base64.b64encode((instance.pki / file).read_bytes()).decode()
        for file in ("ca.crt", f"{name}.crt", f"{name}.key")
    )
    context = instance.node_name if name == "admin" else name
    return configs.kubeconfig(server, authority, certificate, key, context)


def _restart(instance: Instance, wanted: NodeSpecification, files: Mapping[Path, str], report: Report) -> None:
    _end(instance, report)
    report(f"starting node {instance.node_name} at {instance.node_address}")
    for folder in (instance.log, instance.registry_data, instance.mlflow_data / "artifacts"):
        folder.mkdir(parents=True, exist_ok=True)
    instance.etcd.mkdir(mode=0o700, exist_ok=True)
    (instance.node / "index").write_text(f"{instance.index}\n")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_private(path, text)
    _write_private(instance.specification, dump(wanted))
    host_side.make_cgroups(instance)
    process = _launch(instance)
    try:
        host_side.adopt(instance, process)
        host_side.connect(instance, process)
    except (OSError, RuntimeError) as error:
        raise NodeError(f"the node can't be connected: {error}\n{startup.tail(instance, 'init')}") from error


def _launch(instance: Instance) -> int:
    """Start the node's first process; it outlives this one. Returns its number on the host."""
    environment = {"PATH": services.SYSTEM_PATH, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        (sys.executable, "-m", "embedded.init", str(instance.specification)),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NodeError(f"the node's namespaces could not be made:\n{done.stderr.strip()}")
    return int(done.stdout)


def _write_private(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    unfinished.rename(path)


def _end(instance: Instance, report: Report) -> None:
    """End the node if it runs, and clear what one leaves on the host however it ended."""
    process = control.find_init(instance)
    if process is not None:
        report(f"ending node {instance.node_name}")
        control.end_init(process, END_GRACE_S)
    host_side.disconnect(instance)
    host_side.remove_cgroups(instance)
    instance.init_socket.unlink(missing_ok=True)


def _release_all(instance: Instance) -> None:
    running = control.status(instance)
    for name, member in running.members.items() if running else ():
        if member.phase in (Phase.STOPPED, Phase.STOPPING):
            control.ask(instance, {"do": "release", "component": name})
