"""Owns the birth of the node: new namespaces, a first process in them, its own view of the file system, its network.

Leaves the other end of the wire to `network` and the processes to `supervisor`. Run as `python -m embedded.init
<node.json>`, it prints the host's number of the node's first process and returns; that process then waits for the
host to move its network interface in, which is also the sign that the host has recorded who it is.
"""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from embedded.specification import NodeSpecification, Step, load
from embedded.supervisor import Supervisor

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWPID: Final = 0x20000000
CLONE_NEWNET: Final = 0x40000000
INTERFACE_BOUND_S: Final = 20.0
# The kernel's own bound on descriptors of one process: what "infinity" in containerd's unit stands for.
OPEN_FILES_MAX: Final = Path("/proc/sys/fs/nr_open")


def launch(specification: NodeSpecification) -> int:
    """Make the namespaces and the node's first process in them. Returns its number on the host."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    process = os.fork()
    if process == 0:
        _first_process(specification)
    return process


def _first_process(specification: NodeSpecification) -> None:
    """Never returns: whatever happens ends this process, and with it the namespaces."""
    try:
        _detach(Path(specification.log, "init.log"))
        _own_limits()
        socket.sethostname(specification.hostname)
        _await_interface(specification.interface)
        for step in specification.layout:
            carry_out(step)
        Supervisor(specification).run()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _detach(log: Path) -> None:
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.closerange(3, max(null, output) + 1)


def _own_limits() -> None:
    """A pod runs under the same limits and file modes whichever shell its node was started from."""
    os.umask(0o022)
    _widen(resource.RLIMIT_NOFILE, int(OPEN_FILES_MAX.read_text()))
    _widen(resource.RLIMIT_NPROC, resource.RLIM_INFINITY)


def _widen(limit: int, wanted: int) -> None:
    try:
        resource.setrlimit(limit, (wanted, wanted))
    except ValueError:  # a container's root that may not: as far as it goes
        _, hard = resource.getrlimit(limit)
        resource.setrlimit(limit, (hard, hard))


def _await_interface(name: str) -> None:
    bound_s = time.monotonic() + INTERFACE_BOUND_S
    while name not in {interface for _, interface in socket.if_nameindex()}:
        if time.monotonic() > bound_s:
            raise TimeoutError(f"the host did not move {name} in within {INTERFACE_BOUND_S:g} s")
        time.sleep(0.01)


def carry_out(step: Step) -> None:
    for entry in step.entries:
        path = Path(entry.path)
        if entry.content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry.content)
    if step.argv:
        done = subprocess.run(step.argv, input=step.stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(step.argv)}: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    print(launch(load(Path(sys.argv[1]).read_text())), flush=True)
