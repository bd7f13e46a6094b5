"""Owns the host's view of a node's first process: whether it runs, what it says, and its end.

Leaves to `node` what to do about it. The process is found by its command line, not by a recorded number, so a stale
record can't name somebody else's process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from embedded.instance import Instance
from embedded.supervision import Phase

# Longer than all probes of one turn of its loop may take.
ANSWER_BOUND_S: Final = 15.0
POLL_S: Final = 0.05


@dataclass(frozen=True)
class MemberStatus:
    phase: Phase
    failures: int
    last_end: str | None
    pid: int | None  # as the node numbers it


@dataclass(frozen=True)
class NodeStatus:
    """What the node's first process says: the digest of what it runs, and its components in starting order."""

    digest: str
    members: Mapping[str, MemberStatus]

    @property
    def all_ready(self) -> bool:
        return all(member.phase is Phase.READY for member in self.members.values())


def is_init(command_line: bytes, status: str, specification: Path) -> bool:
    """Whether /proc's `cmdline` and `status` are those of the first process of the node of this specification."""
    arguments = command_line.rstrip(b"\0").split(b"\0")
    if arguments[-3:] != [b"-m", b"embedded.init", str(specification).encode()]:
        return False
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    numbers = fields.get("NSpid", "").split()
    return len(numbers) > 1 and numbers[-1] == "1" and not fields.get("State", "").strip().startswith("Z")


def find_init(instance: Instance) -> int | None:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            found = is_init((folder / "cmdline").read_bytes(), (folder / "status").read_text(), instance.specification)
        except OSError:
            continue  # it ended while being looked at
        if found:
            return int(folder.name)
    return None


def end_init(process: int, grace_s: float) -> None:
    """SIGTERM, then SIGKILL; returns when the process and with it the whole namespace is gone."""
    for number, bound_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 30.0)):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            return
        if _gone_within(process, bound_s):
            return
    raise TimeoutError(f"the node's first process {process} does not end")


def _gone_within(process: int, bound_s: float) -> bool:
    end_s = time.monotonic() + bound_s
    while time.monotonic() < end_s:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(POLL_S)
    return False


def ask(instance: Instance, request: Mapping[str, Any]) -> NodeStatus:
    """One request to the node's first process. OSError where it does not answer, ValueError where it refuses."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_BOUND_S)
        connection.connect(str(instance.init_socket))
        connection.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(connection.makefile().readline() or '{"error": "no answer"}')
    if "error" in reply:
        raise ValueError(reply["error"])
    members = {name: MemberStatus(**{**raw, "phase": Phase(raw["phase"])}) for name, raw in reply["members"].items()}
    return NodeStatus(reply["digest"], members)


def status(instance: Instance) -> NodeStatus | None:
    """None where no node of this instance answers."""
    try:
        return ask(instance, {"do": "status"})
    except OSError:
        return None
