"""Stale locks and settings: what is removed is what nobody holds and what does not fit, nothing else."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from stacks.cli import stack_lock, stack_state
from stacks.cli.pulumi_cli import Pulumi, variables
from stacks.cli.stack_lock import Holder, break_stale, holders, is_gone, state_folder
from stacks.cli.stack_state import with_created
from stacks.cli.workspace import Workspace

STACK = "local.alpha.wine"
HOLDER = Holder(Path("lock.json"), 12, "here", "")


def lock(state: Path, pid: int, host: str = "", name: str = "one") -> Path:
    """A lock file as Pulumi writes it."""
    file = state / "locks" / "organization" / "knobless" / STACK / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "pid": pid,
        "username": "root",
        "hostname": host or socket.gethostname(),
        "timestamp": "2026-01-01T00:00:00Z",
    }
    file.write_text(json.dumps(told))
    file.with_name(f"{file.name}.attrs").write_text("{}")
    return file


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("host", "program", "gone"),
    [
        ("here", None, True),
        ("here", "bash", True),  # the number was given to another program
        ("here", "pulumi", False),
        ("here", ".pulumi-wrapped", False),
        ("elsewhere", None, False),  # its processes can't be seen from here
    ],
)
def test_only_a_holder_of_this_host_that_runs_no_more_is_gone(host: str, program: str | None, gone: bool) -> None:
    assert is_gone(HOLDER, host, lambda _: program) is gone


@pytest.mark.case("pulumi-H7")
def test_the_lock_of_an_ended_process_is_broken_with_all_its_files(tmp_path: Path) -> None:
    file = lock(tmp_path, ended_process())
    assert [holder.file for holder in break_stale(tmp_path, STACK)] == [file]
    assert list(file.parent.iterdir()) == []


def test_the_lock_of_another_host_stays(tmp_path: Path) -> None:
    file = lock(tmp_path, ended_process(), "another-host")
    assert break_stale(tmp_path, STACK) == ()
    assert file.exists()


def test_the_lock_of_a_running_pulumi_stays(tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "300"]) as process:
        file = lock(tmp_path, process.pid)
        try:
            assert stack_lock.program_of(process.pid) == "pulumi"
            assert break_stale(tmp_path, STACK) == ()
            assert file.exists()
        finally:
            process.kill()


def test_a_process_that_ended_but_was_not_waited_for_is_no_holder() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert stack_lock.program_of(process.pid) is None
    process.wait()


def test_a_lock_file_that_can_not_be_read_is_left_to_pulumi(tmp_path: Path) -> None:
    lock(tmp_path, 1).write_text("{")
    assert holders(tmp_path, STACK) == ()
    assert break_stale(tmp_path, STACK) == ()


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///var/state", Path("/var/state/.pulumi")),
        ("file:///var/state?no_tmp_dir=true", Path("/var/state/.pulumi")),
        ("file://~", None),
        ("s3://bucket", None),
        ("https://api.pulumi.com", None),
    ],
)
def test_only_a_file_backend_has_locks_here(url: str, folder: Path | None) -> None:
    assert state_folder(url) == folder


def state_file(tmp_path: Path, latest: object) -> Path:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))
    return path


SALT = "v1:abc=:v1:def=="
SALTED = {"secrets_providers": {"type": "passphrase", "state": {"salt": SALT}}}


@pytest.mark.parametrize(
    ("latest", "found"),
    [(SALTED, SALT), (None, ""), ({}, ""), ({"secrets_providers": None}, ""), ({"secrets_providers": {}}, "")],
)
def test_the_salt_of_a_state_is_what_its_secrets_were_made_with(tmp_path: Path, latest: object, found: str) -> None:
    assert stack_state.salt(state_file(tmp_path, latest)) == found


def test_where_there_is_no_state_nothing_is_known_of_a_salt(tmp_path: Path) -> None:
    assert stack_state.salt(tmp_path / "none.json") is None


def object_of(urn: str, namespace: str = "team-alpha") -> dict[str, object]:
    return {"urn": urn, "provider": "p::1", "inputs": {"metadata": {"name": "wine", "namespace": namespace}}}


def exported(resources: list[object], *pending: dict[str, object]) -> dict[str, object]:
    return {"version": 3, "deployment": {"resources": resources, "pending_operations": list(pending)}}


def test_an_object_whose_creation_nobody_noted_is_noted_so_that_it_goes_with_its_stack() -> None:
    noted, begun, changed = {"urn": "a"}, object_of("b"), object_of("c")
    found = with_created(
        exported([noted], {"type": "creating", "resource": begun}, {"type": "updating", "resource": changed})
    )
    made = {**begun, "id": "team-alpha/wine", "outputs": begun["inputs"]}
    assert found == exported([noted, made], {"type": "updating", "resource": changed})


def test_an_object_of_no_namespace_has_its_name_for_an_id() -> None:
    found = with_created(exported([], {"type": "creating", "resource": object_of("a", namespace="")}))
    assert found is not None
    assert found["deployment"]["resources"][0]["id"] == "wine"


def test_a_creation_that_is_noted_by_now_changes_nothing() -> None:
    assert with_created(exported([{"urn": "a"}], {"type": "creating", "resource": object_of("a")})) is None


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "root", tmp_path / "root" / "stacks", tmp_path / "home", "local", "one")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def pulumi(workspace: Workspace, tmp_path: Path, said: list[str]) -> Pulumi:
    """With a program in place of the real one that finds nothing to change."""
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho \'{"steps": [], "deployment": {}}\'\n')
    program.chmod(0o755)
    workspace.root.mkdir()
    return Pulumi(workspace, program.parent, said.append)


def test_what_is_broken_is_said_once_and_before_the_run(workspace: Workspace, pulumi: Pulumi, said: list[str]) -> None:
    pid = ended_process()
    lock(workspace.pulumi_dir / "state" / ".pulumi", pid)
    assert not pulumi.preview(STACK).changes
    assert [line.strip() for line in said] == [f"{STACK}: removed the lock of process {pid}, which runs no more"]


OTHERS = "encryptionsalt: v1:other=\n"


@pytest.mark.parametrize(
    ("latest", "before", "after"),
    [
        (SALTED, f"encryptionsalt: {SALT}\nconfig: {{}}\n", f"encryptionsalt: {SALT}\nconfig: {{}}\n"),
        (SALTED, OTHERS, f"encryptionsalt: {SALT}\n"),
        (SALTED, None, f"encryptionsalt: {SALT}\n"),
        (None, OTHERS, None),
    ],
    ids=["fitting", "of another passphrase", "missing", "of a state without secrets"],
)
def test_a_stacks_generated_file_has_the_salt_of_its_state(
    workspace: Workspace, pulumi: Pulumi, latest: object, before: str | None, after: str | None
) -> None:
    stacks = workspace.pulumi_dir / "state" / ".pulumi" / "stacks" / "knobless"
    stacks.mkdir(parents=True)
    state_file(stacks, latest).rename(stacks / f"{STACK}.json")
    generated = workspace.root / ".pulumi-config" / f"Pulumi.{STACK}.yaml"
    if before is not None:
        generated.parent.mkdir()
        generated.write_text(before)
    pulumi.preview(STACK)
    assert (generated.read_text() if generated.exists() else None) == after


# Variables


def test_the_node_is_reached_past_the_users_proxies_and_their_own_exceptions_stay(workspace: Workspace) -> None:
    told = variables(workspace, Path("/bin"), {"no_proxy": "a.example", "NO_PROXY": "b.example, a.example"})
    assert told["NO_PROXY"] == told["no_proxy"] == "a.example,b.example,198.18.0.0/15,localhost,127.0.0.1"


def test_variables_of_another_instance_in_the_shell_are_no_wish_of_the_users(workspace: Workspace) -> None:
    other = Workspace(workspace.root, workspace.stacks, workspace.home, "local", "other")
    inherited = variables(other, Path("/tools"), {"PATH": "/usr/bin"})
    assert variables(workspace, Path("/tools"), inherited) == variables(workspace, Path("/tools"), {"PATH": "/usr/bin"})


def test_a_backend_and_a_passphrase_of_the_users_are_kept(workspace: Workspace) -> None:
    told = variables(workspace, Path("/bin"), {"PULUMI_BACKEND_URL": "s3://mine", "PULUMI_CONFIG_PASSPHRASE": "p"})
    assert told["PULUMI_BACKEND_URL"] == "s3://mine"
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in told
