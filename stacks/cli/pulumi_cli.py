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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedded import host_settings
from stacks.cli import stack_lock, stack_state
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import PROJECT, Workspace

GENERATED = ".pulumi-config"  # stackConfigDir of Pulumi.yaml
TAIL_LINES = 60
PROTECTED = "A team's namespace and what serves are protected; docs/removing-a-team.md says how they are taken away"
WITHOUT_REASON = "preview failed"
POLL_S = 1.0
INTERRUPT_GRACE_S = 60.0
# A run whose `knobless` was killed is told to end, and takes this long at most to write its state.
HOLDER_BOUND_S = 60.0
LOCKED = "Another run holds the stack's lock. If none is going on, an interrupted one left it: `pulumi cancel STACK`"


@dataclass(frozen=True)
class Preview:
    """What one `pulumi preview --json` said.

    Args:
        stack: the stack's name.
        steps: the `steps` of the output, as Pulumi wrote them.
        counts: resources by operation, without `same`.
    """

    stack: str
    steps: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]

    @property
    def changes(self) -> bool:
        return bool(self.counts)


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


def count_operations(steps: tuple[Mapping[str, Any], ...]) -> dict[str, int]:
    """Resources by operation; `same`, `read` and the parts of a replace are no change of their own."""
    quiet = {"same", "read", "refresh", "create-replacement", "delete-replaced", "discard", "read-discard"}
    counts: dict[str, int] = {}
    for step in steps:
        operation = str(step.get("op"))
        if operation not in quiet:
            counts[operation] = counts.get(operation, 0) + 1
    return counts


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
        self._env = {**os.environ, **variables(workspace, bin_dir, os.environ)}
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

    def preview(self, stack: str) -> Preview:
        """Run `pulumi preview --json`; raises CliError with Pulumi's own diagnostics."""
        self._settle(stack)
        result = self._run("preview", "-s", stack, "--json", *self._packs())
        if result.returncode != 0:
            output = result.stdout + result.stderr
            if diagnostics(output) in ("", WITHOUT_REASON):  # a policy's verdict stands in the plain text only
                output = self._run("preview", "-s", stack, *self._packs()).stdout
            raise self.failure(f"the preview of {stack} failed", result.returncode, output)
        steps = tuple(json.loads(result.stdout).get("steps", []))
        return Preview(stack, steps, count_operations(steps))

    def up(self, stack: str, on_line: Callable[[str], None], abandon: Callable[[], str | None]) -> None:
        """Apply. `abandon` is asked about once a second; a text ends the wait early and becomes the error."""
        self._stream(stack, ["up", "-s", stack, "--yes", "--skip-preview", *self._packs()], on_line, abandon)

    def destroy(self, stack: str, on_line: Callable[[str], None], abandon: Callable[[], str | None]) -> None:
        """Remove all that the stack holds, and the stack."""
        self._settle(stack)
        self._take_in_created(stack)
        self._run("state", "unprotect", "-s", stack, "--all", "--yes")
        self._stream(stack, ["destroy", "-s", stack, "--yes", "--skip-preview"], on_line, abandon)
        self._quiet("stack", "rm", stack, "--yes")

    def outputs(self, stack: str) -> dict[str, Any]:
        return dict(json.loads(self._quiet("stack", "output", "-s", stack, "--json")))

    def _settle(self, stack: str) -> None:
        """Put right what a run that did not end well, or another checkout, left about this stack."""
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
        noted = stack_state.with_created(json.loads(self._quiet("stack", "export", "-s", stack)))
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

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._argv(arguments), env=self._env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
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
        text = diagnostics(output)
        kind = ExitCode.SPEC if "problem in" in text or "problems in" in text else ExitCode.FAILED
        if code == 5 or "[mandatory]" in output:
            kind = ExitCode.POLICY
        hint = (
            LOCKED if "locked by" in text else PROTECTED if "is protected" in text or "protected from" in text else ""
        )
        return CliError(f"{what}:\n{text}", hint=hint, code=kind)


def diagnostics(output: str) -> str:
    """The part of Pulumi's output that says what is wrong, else its last lines."""
    if output.lstrip().startswith("{"):
        return _json_diagnostics(output)
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("Diagnostics:", "Policies:", "Policy Violations:"))]
    ends = [i for i, line in enumerate(lines) if line.startswith(("Outputs:", "Resources:", "Duration:"))]
    kept = lines[starts[0] : next((e for e in ends if e > starts[0]), None)] if starts else lines[-TAIL_LINES:]
    return "\n".join(line for line in kept if line.strip())


def _json_diagnostics(output: str) -> str:
    """Messages of a failed `--json` run: every error but the engine's own remark that there was one."""
    document, end = json.JSONDecoder().raw_decode(output.lstrip())
    told = [str(entry.get("message", "")).strip() for entry in document.get("diagnostics") or ()]
    told = [line.removeprefix("error: ") for line in told if line and "an unhandled error occurred" not in line]
    return "\n".join([*told, output.lstrip()[end:].strip()]).strip()


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
