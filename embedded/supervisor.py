"""Owns the processes of the node: starts, probes, reaps and logs them, and answers on the control socket.

Leaves every choice to `supervision.decide`. It runs as the first process of the node's PID namespace, so it also
reaps what containerd's shims leave behind, and its end is the end of the whole node.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import shutil
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from embedded.specification import Component, NodeSpecification
from embedded.supervision import RUNNING, Decision, Member, Observation, Phase, decide

TICK_S: Final = 0.1
IDLE_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 1.0
END_BOUND_S: Final = 8.0
# What a child must not inherit from Python: an ignored SIGPIPE, and the handlers of this process.
DEFAULT_SIGNALS: Final = (signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)


def answers(probe: str) -> bool:
    """Whether a component's probe answers now; see `Component` for the forms."""
    try:
        if probe.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PROBE_TIMEOUT_S)
                connection.connect(probe.removeprefix("unix:"))
            return True
        if probe.startswith("tcp:"):
            host, _, port = probe.removeprefix("tcp:").rpartition(":")
            socket.create_connection((host, int(port)), PROBE_TIMEOUT_S).close()
            return True
        return _get_status(probe) == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def _get_status(url: str) -> int:
    target = urlsplit(url)
    if target.scheme == "https":
        # Only asks a process of this node whether it is up; nothing it says is used.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(target.netloc, timeout=PROBE_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(target.netloc, timeout=PROBE_TIMEOUT_S)  # type: ignore[assignment]
    try:
        connection.request("GET", target.path or "/")
        return connection.getresponse().status
    finally:
        connection.close()


class Supervisor:
    """The loop around `decide`. `run` returns when the node was asked to end."""

    def __init__(self, specification: NodeSpecification) -> None:
        self._specification = specification
        self._components = {component.name: component for component in specification.components}
        self._members = {name: Member(since_s=time.monotonic()) for name in self._components}
        self._processes: dict[int, str] = {}
        self._held: set[str] = set()
        self._ending_since_s: float | None = None
        self._selector = selectors.DefaultSelector()
        self._control = _listen(specification.socket)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(_signal_pipe(self._end), selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            now_s = time.monotonic()
            observation = Observation(self._reap(), self._answered(), frozenset(self._held))
            self._members, decision = decide(self._specification.components, self._members, observation, now_s)
            self._carry_out(decision)
            self._cap_logs()
            if self._ended():
                return
            self._wait()

    def _end(self) -> None:
        if self._ending_since_s is None:
            self._ending_since_s = time.monotonic()
        self._held.update(self._components)

    def _ended(self) -> bool:
        if self._ending_since_s is None:
            return False
        stopped = all(member.phase is Phase.STOPPED for member in self._members.values())
        return stopped or time.monotonic() - self._ending_since_s > END_BOUND_S

    def _reap(self) -> dict[str, str]:
        ended: dict[str, str] = {}
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if process == 0:
                return ended
            if process in self._processes:
                name = self._processes.pop(process)
                ended[name] = _how(os.waitstatus_to_exitcode(status))
                self._note(name, f"ended: {ended[name]}")

    def _answered(self) -> frozenset[str]:
        return frozenset(
            name
            for name, member in self._members.items()
            if member.phase is Phase.STARTING and self._components[name].probe and answers(self._components[name].probe)
        )

    def _carry_out(self, decision: Decision) -> None:
        for name in decision.launch:
            self._launch(self._components[name])
        for names, number in ((decision.terminate, signal.SIGTERM), (decision.kill, signal.SIGKILL)):
            for process in [process for process, name in self._processes.items() if name in names]:
                # A component leads a process group of its own; containerd's shims leave it, and so outlive it.
                os.killpg(process, number)

    def _launch(self, component: Component) -> None:
        log = str(self._log(component.name))
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        environment = dict(component.environment)
        program = shutil.which(component.argv[0], path=environment.get("PATH")) or component.argv[0]
        self._note(component.name, f"starting {' '.join(component.argv)}")
        try:
            process = os.posix_spawn(
                program, component.argv, environment, file_actions=actions, setsid=True, setsigdef=DEFAULT_SIGNALS
            )
        except OSError as error:
            # `false` ends at once: the back-off and its message are the same as for any other end.
            self._note(component.name, f"can't start {program}: {error.strerror}")
            process = os.posix_spawn("/bin/false", ("false",), {})
        self._processes[process] = component.name

    def _log(self, name: str) -> Path:
        return Path(self._specification.log, f"{name}.log")

    def _note(self, name: str, text: str) -> None:
        with self._log(name).open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} init: {text}\n")

    def _cap_logs(self) -> None:
        for name in self._components:
            log = self._log(name)
            if log.exists() and log.stat().st_size > self._specification.log_bytes_max:
                # The writer appends, so it goes on at the new end; a line written in between is lost.
                shutil.copyfile(log, log.with_suffix(".log.1"))
                os.truncate(log, 0)

    def _wait(self) -> None:
        settled = all(member.phase in (Phase.READY, Phase.STOPPED) for member in self._members.values())
        for key, _ in self._selector.select(IDLE_S if settled else TICK_S):
            if key.fileobj is self._control:
                self._serve()
            else:
                os.read(key.fd, 4096)

    def _serve(self) -> None:
        connection, _ = self._control.accept()
        with connection:
            connection.settimeout(PROBE_TIMEOUT_S)
            try:
                reply = self._reply(json.loads(connection.makefile().readline()))
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except (OSError, ValueError):
                return  # a caller that left or talks nonsense gets nothing; the node goes on

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        component = request.get("component")
        if component is not None and component not in self._components:
            return {"error": f"no component {component!r}; there are {', '.join(self._components)}"}
        match request.get("do"):
            case "hold":
                self._held.add(str(component))
            case "release":
                self._held.discard(str(component))
            case "status":
                pass
            case other:
                return {"error": f"can't {other!r}; hold, release or status"}
        return {"digest": self._specification.digest, "members": self._described()}

    def _described(self) -> dict[str, dict[str, Any]]:
        running = {name: process for process, name in self._processes.items()}
        return {
            name: {
                "phase": str(member.phase),
                "failures": member.failures,
                "last_end": member.last_end,
                "pid": running.get(name) if member.phase in RUNNING else None,
            }
            for name, member in self._members.items()
        }


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _listen(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    Path(path).chmod(0o600)
    listener.listen(16)
    return listener


def _signal_pipe(end: Any) -> int:
    """A descriptor that is readable after a signal, so that a child's end wakes the loop at once."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end())
    return reader
