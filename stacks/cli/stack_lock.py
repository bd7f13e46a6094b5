"""The locks that Pulumi's file backend keeps on stacks: who holds one, and whether that process is gone.

Owns the reading of the lock files and the one safe removal: a lock of this host whose process no longer runs. Leaves
taking and giving back to Pulumi. One idea: a lock file has a name of its own, and a process that is gone does not
come back, so that removing exactly that file can't free what somebody holds.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stacks.cli.workspace import PROJECT

SCHEME = "file://"
PROGRAM = "pulumi"


@dataclass(frozen=True)
class Holder:
    """One lock file's content: the process that wrote it, by its host's number."""

    file: Path
    pid: int
    host: str
    since: str


def state_folder(backend_url: str) -> Path | None:
    """Where a file backend keeps its state, if it is one that names an absolute path."""
    path = Path(backend_url.removeprefix(SCHEME).partition("?")[0])
    return path / ".pulumi" if backend_url.startswith(SCHEME) and path.is_absolute() else None


def holders(state: Path, stack: str) -> tuple[Holder, ...]:
    """Everyone whose lock on this stack is there; a file that can't be read names nobody."""
    found = []
    for file in sorted((state / "locks" / "organization" / PROJECT / stack).glob("*.json")):
        try:
            told = json.loads(file.read_bytes())
            found.append(Holder(file, int(told["pid"]), str(told["hostname"]), str(told.get("timestamp", ""))))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def is_gone(holder: Holder, host: str, program_of: Callable[[int], str | None]) -> bool:
    """Whether nobody holds this lock any more. `program_of` names a running process's program, None where none runs.

    A number may have been given to another program since; one of the same name counts as the holder.
    """
    program = program_of(holder.pid)
    return holder.host == host and (program is None or PROGRAM not in program)


def program_of(pid: int) -> str | None:
    """The name of a running program as the kernel keeps it; None of one that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return None if rest.split()[0] in "ZX" else name


def break_stale(state: Path, stack: str) -> tuple[Holder, ...]:
    """Remove the locks whose holders are gone; the answer says which those were."""
    gone = tuple(one for one in holders(state, stack) if is_gone(one, socket.gethostname(), program_of))
    for holder in gone:
        for file in (holder.file, holder.file.with_name(f"{holder.file.name}.attrs")):
            file.unlink(missing_ok=True)
    return gone
