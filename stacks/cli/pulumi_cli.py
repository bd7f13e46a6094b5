"""Drives the real `pulumi` command: one hermetic environment, one stack a call, its output kept in a log.

Owns the environment variables that make a run repeatable (file backend below KNOBLESS_HOME unless the user names
one, passphrase in a file, no update checks, no plugin downloads) and the reading of `--json`. It decides nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedded import host_settings
from stacks.cli import orphans, plan_state, pulumi_output, stack_lock, stack_state
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_output import Preview
from stacks.cli.workspace import PROJECT, Workspace

GENERATED = ".pulumi-config"  # stackConfigDir of Pulumi.yaml
PROTECTED = "A team's namespace and what serves are protected; docs/removing-a-team.md says how they are taken away"
# Not even where a shell has them: the first lets a plan of Pulumi's own stop a run, the second can lose state.
UNWANTED = frozenset({"PULUMI_EXPERIMENTAL", "PULUMI_SKIP_CHECKPOINTS"})
POLL_S = 1.0
INTERRUPT_GRACE_S = 60.0
# A run whose `knobless` was killed is told to end, and takes this long at most to write its state.
HOLDER_BOUND_S = 60.0
LOCKED = "Another run holds the stack's lock. If none is going on, an interrupted one left it: `pulumi cancel STACK`"


def ensure_passphrase(workspace: Workspace) -> None:
    """Make the passphrase of this environment's stacks once: 256 random bits, readable by its owner alone."""
    workspace.pulumi_dir.mkdir(parents=True, exist_ok=True)
    if not workspace.passphrase_file.exists():
        fresh = workspace.passphrase_file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(32) + "\n")
        fresh.rename(workspace.passphrase_file)


def variables(workspace: Workspace, bin_dir: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of a hermetic run, without those that are inherited. `knobless env` prints them.

    What an earlier `knobless env` of another instance left in the shell is no wish of the user's.
    """
    of_user = {name: value for name, value in inherited.items() if f"{workspace.home}/clusters/" not in value}
    own = {
        "KNOBLESS_CLUSTER": str(workspace.cluster_file),
        "KNOBLESS_HOME": str(workspace.home),
        "KNOBLESS_PYTHON": str(workspace.python),
        "PATH": f"{bin_dir}:" + inherited.get("PATH", os.defpath).removeprefix(f"{bin_dir}:"),
        "PULUMI_BACKEND_URL": of_user.get("PULUMI_BACKEND_URL", f"file://{workspace.pulumi_dir}/state"),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
        "PULUMI_HOME": str(workspace.pulumi_home),
        "PULUMI_SKIP_CONFIRMATIONS": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_SUPPRESS_NEO_LINK": "true",
        "PYTHONWARNINGS": "ignore",
        **host_settings.no_proxy(inherited),
    }
    if workspace.stacks != workspace.root / "stacks":
        own["KNOBLESS_STACKS"] = str(workspace.stacks)
    if "PULUMI_CONFIG_PASSPHRASE" not in of_user and "PULUMI_CONFIG_PASSPHRASE_FILE" not in of_user:
        own["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(workspace.passphrase_file)
    return own


class Pulumi:
    """The `pulumi` command in one workspace.

    Args:
        workspace: where the project and the state are.
        bin_dir: the folder of `pulumi` and its plugins, first on PATH.
        say: told what was put right before a run.
    """

    def __init__(self, workspace: Workspace, bin_dir: Path, say: Callable[[str], None] = lambda _: None) -> None:
        self._workspace = workspace
        self._say = say
        inherited = {name: value for name, value in os.environ.items() if name not in UNWANTED}
        self._env = {**inherited, **variables(workspace, bin_dir, inherited), **orphans.mark(workspace.cluster_dir)}
        self._state = stack_lock.state_folder(self._env["PULUMI_BACKEND_URL"])
        self.log_dir = workspace.pulumi_dir / "log"
        for folder in (self.log_dir, workspace.pulumi_dir / "state"):
            folder.mkdir(parents=True, exist_ok=True)

    def stacks(self) -> list[str]:
        """Names of the stacks that the backend knows."""
        return [str(entry["name"]).rsplit("/", 1)[-1] for entry in json.loads(self._quiet("stack", "ls", "--json"))]

    def init(self, stack: str) -> None:
        """Make a stack. What an earlier state left in its generated file has another passphrase's salt."""
        (self._workspace.root / GENERATED / f"Pulumi.{stack}.yaml").unlink(missing_ok=True)
        self._quiet("stack", "init", stack, "--secrets-provider", "passphrase", "--no-select")

    def preview(self, stack: str, *, is_new: bool = False) -> Preview:
        """Run `pulumi preview --json` on a copy of the state, so that no trace of it stays; an `is_new` stack is not
        made for it. Raises CliError with Pulumi's own diagnostics.
        """
        if not is_new:
            self._settle(stack)
        with plan_state.copied(stack, None if is_new else self._deployment(stack)) as copy:
            # The settings of a stack that is there hold the salt of its state; those of a new one are of no use later.
            settings = ["--config-file", str(copy.settings)] if is_new else []
            arguments = ("preview", "-s", stack, *settings, *self._packs())
            result = self._run(*arguments, "--json", backend_url=copy.backend_url)
            if result.returncode == 0:
                return pulumi_output.read_preview(stack, result.stdout)
            output = result.stdout + result.stderr
            if not pulumi_output.has_reason(output):
                output = self._run(*arguments, backend_url=copy.backend_url).stdout
        raise self.failure(f"the preview of {stack} failed", result.returncode, output)

    def up(
        self,
        stack: str,
        on_line: Callable[[str], None],
        abandon: Callable[[], str | None],
        announced: Collection[str] = (),
    ) -> None:
        """Apply. `abandon` is asked about once a second; a text ends the wait early and becomes the error. What is
        `announced`, by URN, is not protected in this run.
        """
        with self._unprotected(stack, announced):
            self._stream(stack, ["up", "-s", stack, "--yes", "--skip-preview", *self._packs()], on_line, abandon)

    @contextmanager
    def _unprotected(self, stack: str, urns: Collection[str]) -> Iterator[None]:
        """What still stands after a run that did not end well is protected again."""
        for urn in urns:
            self._quiet("state", "unprotect", urn, "-s", stack, "--yes")
        try:
            yield
        except BaseException:
            for urn in sorted(set(urns) & self._urns(stack)) if urns else ():
                self._run("state", "protect", urn, "-s", stack, "--yes")
            raise

    def destroy(self, stack: str, on_line: Callable[[str], None], abandon: Callable[[], str | None]) -> None:
        """Remove all that the stack holds, and the stack."""
        self._settle(stack)
        self._take_in_created(stack)
        self._run("state", "unprotect", "-s", stack, "--all", "--yes")
        self._stream(stack, ["destroy", "-s", stack, "--yes", "--skip-preview"], on_line, abandon)
        self._quiet("stack", "rm", stack, "--yes")

    def outputs(self, stack: str) -> dict[str, Any]:
        return dict(json.loads(self._quiet("stack", "output", "-s", stack, "--json")))

    def forget(self, stack: str) -> None:
        """Remove the stack with all that its state holds; nothing is asked of a cluster."""
        self._quiet("stack", "rm", stack, "--force", "--yes")

    def _deployment(self, stack: str) -> dict[str, Any]:
        return dict(json.loads(self._quiet("stack", "export", "-s", stack))["deployment"] or {})

    def _urns(self, stack: str) -> set[str]:
        return {str(resource["urn"]) for resource in self._deployment(stack).get("resources") or []}

    def _settle(self, stack: str) -> None:
        """Put right what a run that did not end well, or another checkout, left about this stack."""
        if ended := orphans.end(self._workspace.cluster_dir):
            self._say(f"    ended {ended} processes of a run whose pulumi was killed")
        if self._state is None:
            return
        self._fit_settings(self._state, stack)
        for holder in stack_lock.break_stale(self._state, stack):
            self._say(f"    {stack}: removed the lock of process {holder.pid}, which runs no more")
        deadline_s = time.monotonic() + HOLDER_BOUND_S
        while (held := stack_lock.holders(self._state, stack)) and time.monotonic() < deadline_s:
            if deadline_s - time.monotonic() > HOLDER_BOUND_S - POLL_S:
                self._say(f"    {stack}: process {held[0].pid} on {held[0].host} is at it; waiting for its end")
            time.sleep(POLL_S)
            stack_lock.break_stale(self._state, stack)

    def _take_in_created(self, stack: str) -> None:
        """Objects that a killed run may have made without noting it belong to the stack, and go with it."""
        noted = stack_state.with_created({"version": plan_state.VERSION, "deployment": self._deployment(stack)})
        if noted is not None:
            with tempfile.NamedTemporaryFile("w", dir=self._workspace.pulumi_dir, suffix=".json") as file:
                json.dump(noted, file)
                file.flush()
                self._quiet("stack", "import", "-s", stack, "--file", file.name)

    def _fit_settings(self, state: Path, stack: str) -> None:
        """A generated file without the state's own salt is of another passphrase, or of a clone that has none yet."""
        salt = stack_state.salt(state / "stacks" / PROJECT / f"{stack}.json")
        generated = self._workspace.root / GENERATED / f"Pulumi.{stack}.yaml"
        if salt is None or (salt and generated.is_file() and salt in generated.read_text()):
            return
        if salt:
            generated.parent.mkdir(exist_ok=True)
            generated.write_text(f"encryptionsalt: {salt}\n")
        else:
            generated.unlink(missing_ok=True)  # nothing is encrypted yet: Pulumi chooses

    def _packs(self) -> list[str]:
        packs = (self._workspace.policy_pack, *self._workspace.more_packs)
        return [part for pack in packs for part in ("--policy-pack", str(pack))]

    def _argv(self, arguments: tuple[str, ...] | list[str]) -> list[str]:
        return ["pulumi", "--non-interactive", "--color", "never", "-C", str(self._workspace.root), *arguments]

    def _tied(self) -> list[str]:
        """Starts a program that gets SIGINT when this process dies, however it does."""
        setpriv = shutil.which("setpriv")
        return [setpriv, "--pdeathsig", "INT"] if setpriv else []

    def _run(self, *arguments: str, backend_url: str | None = None) -> subprocess.CompletedProcess[str]:
        env = self._env if backend_url is None else {**self._env, "PULUMI_BACKEND_URL": backend_url}
        return subprocess.run(
            self._argv(arguments), env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def _quiet(self, *arguments: str) -> str:
        result = self._run(*arguments)
        if result.returncode != 0:
            raise self.failure(f"pulumi {' '.join(arguments[:2])} failed", result.returncode, result.stderr)
        return result.stdout

    def _stream(
        self, stack: str, arguments: list[str], on_line: Callable[[str], None], abandon: Callable[[], str | None]
    ) -> None:
        log = self.log_dir / f"{stack}.{arguments[0]}.log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [*self._tied(), *self._argv(arguments)], env=self._env, stdout=sink, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, process_group=0,
            )  # fmt: skip
            try:
                reason = _follow(process, log, on_line, abandon)
            except BaseException:
                _interrupt(process)
                raise
        if reason is not None:
            raise CliError(f"{stack}: {reason}", hint=f"whole log: {log}", code=ExitCode.NOT_READY)
        if process.returncode != 0:
            raise self.failure(f"applying {stack} failed", process.returncode, log.read_text())

    def failure(self, what: str, code: int, output: str) -> CliError:
        """Pulumi's diagnostics without its progress; a policy violation and a bad spec keep their own codes."""
        text = pulumi_output.diagnostics(output)
        kind = ExitCode.SPEC if "problem in" in text or "problems in" in text else ExitCode.FAILED
        if code == 5 or "[mandatory]" in output:
            kind = ExitCode.POLICY
        hint = (
            LOCKED if "locked by" in text else PROTECTED if "is protected" in text or "protected from" in text else ""
        )
        return CliError(f"{what}:\n{text}", hint=hint, code=kind)


def _follow(
    process: subprocess.Popen[bytes], log: Path, on_line: Callable[[str], None], abandon: Callable[[], str | None]
) -> str | None:
    """Pass new log lines on until the process ends; interrupt it when `abandon` gives a reason."""
    with log.open() as reader:
        while process.poll() is None:
            for line in reader:
                if line.strip():
                    on_line(line.strip())
            reason = abandon()
            if reason is not None:
                _interrupt(process)
                return reason
            time.sleep(POLL_S)
    return None


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """SIGINT lets Pulumi write its state and unlock; only one that doesn't end is killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(INTERRUPT_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
