"""Builds what the plan is missing, once, and says how far it is.

Owns the store of finished binaries and the lock around it. A binary appears there by one rename, so
that an interrupted build leaves nothing to mistake for a finished one; what was compiled stays in Go's
own cache, and the next run goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from . import install, versions
from .golang import Go, Stopwatch, ToolchainError, find_go, go_environment
from .install import PulumiTools, Tools
from .planning import BuildPlan, Task, link_flags, task_of
from .progress import LISTING_FORMAT, Progress, Report, format_duration, observe, start_counting
from .versions import MODULES, ModuleFile, Target

REPORT_EVERY_S = 10.0
FREE_BYTES_NEEDED = 8 * 2**30  # measured: 7 GB at the height, 6 GB (caches and binaries) at the end

GoFactory = Callable[[Report], Go]


def ensure(plan: BuildPlan, report: Report, python: Path | None = None) -> Tools:
    """All tools of an embedded cluster and of Pulumi, built where they are missing.

    Takes minutes the first time (the report gets a line every ten seconds) and well under a second later.
    Raises ToolchainError with a text for the user. An interrupt ends the compiler first. ``python`` is for
    the language host: see :func:`embedded.toolchain.install.install_language_host`.
    """
    complete(plan, report, python=python)
    return install.tools(plan)


def ensure_pulumi(plan: BuildPlan, report: Report, python: Path | None = None) -> PulumiTools:
    """Pulumi with its language host and Kubernetes provider: all that another cluster needs."""
    complete(plan, report, only=versions.PULUMI_TARGETS, python=python)
    return install.pulumi_tools(plan)


def complete(plan: BuildPlan, report: Report, only: frozenset[str] | None = None, python: Path | None = None) -> None:
    """Builds the missing ones among the targets named in ``only`` and lays out the folder of programs."""
    wanted = [task for task in plan.tasks if only is None or task.target.name in only]
    with build_lock(plan.home, report):
        missing = [task for task in wanted if not task.is_done]
        if missing:
            announce(plan, missing, report)
            build_all(plan, missing, report, partial(default_go, plan.home))
        install.lay_out(plan, python)


def ensure_one(home: Path, target: Target, report: Report) -> Task:
    """One binary that is no tool of this machine's, with what lies beside it; built where it is missing."""
    task = task_of(home.absolute(), target)
    plan = BuildPlan(home.absolute(), task.digest, (task,), {}, ())
    with build_lock(plan.home, report):
        if not task.is_done:
            announce(plan, [task], report)
            build_all(plan, [task], report, partial(default_go, plan.home))
    return task


def announce(plan: BuildPlan, missing: list[Task], report: Report) -> None:
    for reason in plan.refused:
        report(f"not used: {reason}")
    names = ", ".join(task.target.name for task in missing)
    report(f"building from source, once: {names}")
    free_bytes = shutil.disk_usage(plan.home).free
    if free_bytes < FREE_BYTES_NEEDED and not (plan.home / "go" / "build").exists():
        raise ToolchainError(
            f"building needs {FREE_BYTES_NEEDED / 2**30:.0f} GiB below {plan.home}, "
            f"and {free_bytes / 2**30:.1f} GiB are free there"
        )


@contextlib.contextmanager
def build_lock(home: Path, report: Report) -> Iterator[None]:
    """One build below ``home`` at a time; a second one waits and then finds everything done."""
    folder = home / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            report(f"another build of the tools is running (process {lock.read().strip() or 'unknown'}): waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def default_go(home: Path, report: Report) -> Go:
    path = find_go(home, os.environ.get("PATH", os.defpath), report)
    return Go(path, go_environment(home, os.environ))


def build_all(plan: BuildPlan, missing: list[Task], report: Report, make_go: GoFactory) -> None:
    scratch = plan.home / "go" / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
    for folder in (scratch, plan.home / "tools" / "store"):
        folder.mkdir(parents=True, exist_ok=True)
    go = make_go(report)
    for number, task in enumerate(missing, start=1):
        build_one(go, task, f"{task.target.name} ({number} of {len(missing)})", report)


def build_one(go: Go, task: Task, title: str, report: Report) -> None:
    """Compiles one binary into the store."""
    target, watch = task.target, Stopwatch()
    tracker = Tracker(title, watch, report)
    folder = MODULES / target.module
    scratch = task.output.with_name(f".{task.output.name}.partial")
    try:
        carried = {name: module_file(go, folder, source, tracker) for name, source in target.beside.items()}
        options = [*versions.BUILD_FLAGS, *overlay(go, task, tracker)]
        listed = go.run(["list", "-deps", f"-f={LISTING_FORMAT}", *options, target.package], folder, tracker.see)
        tracker.progress = start_counting(title, listed)
        command = [
            "build",
            "-v",
            *options,
            "-ldflags",
            link_flags(target),
            "-o",
            str(scratch),
            target.package,
        ]
        go.run(command, folder, tracker.see)
    except subprocess.CalledProcessError as error:
        raise ToolchainError(failure(target.name, tracker.progress)) from error
    for name, path in carried.items():
        publish(Path(shutil.copyfile(path, scratch.with_name(f".{name}.partial"))), task.carried(name))
    publish(scratch, task.output)
    report(f"{title}: built in {format_duration(watch.elapsed_s)}")


def publish(scratch: Path, final: Path) -> None:
    scratch.chmod(0o755)
    scratch.replace(final)


def overlay(go: Go, task: Task, tracker: Tracker) -> list[str]:
    """The option that lays files of a module over our own folder while it is compiled."""
    if not task.target.embedded:
        return []
    folder = MODULES / task.target.module
    files = {
        str(folder / name): str(module_file(go, folder, source, tracker))
        for name, source in task.target.embedded.items()
    }
    description = task.output.with_name(f".{task.output.name}.overlay.json")
    description.write_text(json.dumps({"Replace": files}))
    return [f"-overlay={description}"]


def module_file(go: Go, folder: Path, source: ModuleFile, tracker: Tracker) -> Path:
    """Downloads (and verifies) a module and points to one of its files."""
    answer = go.run(["mod", "download", "-json", source.module], folder, tracker.see)
    return Path(json.loads(answer)["Dir"]) / source.path


def failure(name: str, progress: Progress) -> str:
    said = "\n".join(f"  {line}" for line in progress.complaint[-15:]) or "  (it printed no reason)"
    return f"{name} could not be built. Go says:\n{said}\nWhat is compiled is kept; run this again to go on."


class Tracker:
    """Follows go's output for one binary and reports at most every REPORT_EVERY_S."""

    def __init__(self, name: str, watch: Stopwatch, report: Report) -> None:
        self.progress = Progress(name)
        self._watch, self._report = watch, report
        self._due_s = REPORT_EVERY_S

    def see(self, line: str | None) -> None:
        if line is not None:
            self.progress = observe(self.progress, line)
        elapsed_s = self._watch.elapsed_s
        if elapsed_s >= self._due_s:
            self._due_s = elapsed_s + REPORT_EVERY_S
            self._report(self.progress.text(elapsed_s))
