"""The life of the whole platform, as a person with a fresh clone lives it: one life, in this order.

It has an instance of its own, beside whatever runs, and a clone of what is committed; tools, images and packages are
those that the machine has already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from embedded import host_side
from embedded.instance import FOLDERS, registered
from stacks.cli import interruption, orphans, workspace
from tests.platform_lab.command import HOME, Said, must, wait_until
from tests.platform_lab.life import Life, cloned, left_behind, of_session, plain_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

NAME: Final = "life"
# What another container engine may have on this machine.
FOREIGN_RULES: Final = """table ip foreign_life {
  chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; }
  chain outward { type nat hook postrouting priority 100; ip saddr 172.31.251.0/24 masquerade; }
}
"""
NOWHERE: Final = "http://127.0.0.1:9"
PROXIES: Final = {name: NOWHERE for word in ("http_proxy", "https_proxy", "all_proxy") for name in (word, word.upper())}
INTERRUPTED: Final = "Interrupted. What is finished is kept; run the command again to go on."


def starting(command: subprocess.Popen[str], *marks: str) -> bool:
    """Whether for each mark a program runs that has it in its command line."""
    assert command.poll() is None, command.communicate()[1]
    running = of_session(command.pid)
    return all(any(mark in line for line in running) for mark in marks)


def at_work(life: Life, command: subprocess.Popen[str]) -> Path:
    """The lock that `pulumi up` of the wine's stack holds, as soon as it holds one."""
    try:
        return next(iter(wait_until(lambda: life.locks("local.alpha.wine"), 90, "pulumi is at work")))
    except AssertionError:
        command.send_signal(signal.SIGINT)
        raise AssertionError(command.communicate(timeout=90)[1]) from None


def interrupted(command: subprocess.Popen[str]) -> str:
    """SIGINT to the command alone, as `kill -INT` does; what it said until its end."""
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert said.rstrip().endswith(INTERRUPTED)
    assert "Traceback" not in said
    assert of_session(command.pid) == []
    return said


def curl_line(said: Said) -> str:
    found = re.search(r"^curl (?:.*\\\n)*.*$", said.out, re.MULTILINE)
    assert found is not None, said.text
    return found[0]


def answer(said: Said) -> dict[str, Any]:
    """The model's answer, as `predict` printed it."""
    return dict(next(json.loads(line) for line in said.out.splitlines() if line.startswith("{")))


@pytest.fixture(scope="module")
def life(clone: Path) -> Iterator[Life]:
    subprocess.run(("nft", "-f", "-"), input=FOREIGN_RULES, text=True, check=True)
    one = Life(clone, NAME)
    must(one.knobless("down"))  # what an earlier, killed run left
    one.begins()
    yield one
    one.knobless("down")
    subprocess.run(("nft", "delete", "table", "ip", "foreign_life"), check=True)


@pytest.fixture(scope="module")
def first_up(life: Life) -> Said:
    return life.make("up")


# Before anything runs


def test_a_user_who_may_not_write_the_clone_is_told_so_and_nothing_is_written() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        clone = cloned(Path(folder) / "clone")
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        argv = (*nobody, "/usr/bin/python3", "./knobless", "up")
        done = subprocess.run(argv, cwd=clone, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "as root (sudo)" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (clone / ".venv").exists()


def test_without_root_there_is_one_message_and_nothing_is_started_or_written(life: Life) -> None:
    home = HOME.with_name("knobless-nowhere")
    argv = ("unshare", "--user", str(life.clone / ".venv/bin/python"), "-m", "stacks.cli.main", "up")
    said = life.run(*argv, KNOBLESS_HOME=str(home))
    assert said.code == 3
    assert said.err.startswith("\nknobless: this machine can't run the embedded cluster:\n- this is not root: ")
    assert "Traceback" not in said.err
    assert said.out == ""
    assert not home.exists()


@pytest.fixture
def cold_home() -> Iterator[Path]:
    """A state folder with tools and nothing else; its instances do not take the addresses of others that run."""
    home = Path(tempfile.mkdtemp(prefix="kn-", dir=HOME.parent))
    (home / "tools").symlink_to(HOME / "tools")
    for name, index in registered(HOME).items():
        (home / "nodes" / name).mkdir(parents=True)
        (home / "nodes" / name / "index").write_text(f"{index}\n")
    yield home
    shutil.rmtree(home)


def test_an_interrupt_ends_pip_and_debootstrap_and_the_next_run_goes_on(life: Life, cold_home: Path) -> None:
    for _ in range(2):
        command = life.start("up", KNOBLESS_HOME=str(cold_home))
        wait_until(lambda run=command: starting(run, " pip install ", "debootstrap"), 60, "preparations are at work")
        interrupted(command)
        assert list((cold_home / "images" / "tmp").iterdir()) == []
        assert left_behind(life) == []


# From a clone to a prediction


def test_make_up_in_a_clone_answers_a_prediction_and_says_how_to_repeat_it(life: Life, first_up: Said) -> None:
    assert (life.clone / ".venv").is_dir()
    assert "HTTP 200" in first_up.out
    assert len(answer(first_up)["predictions"]) > 0
    assert "building from source" not in first_up.err
    for word in ("KUBECONFIG=", "http://", "https://", "knobless status", "docs/serve-your-own-model.md"):
        assert word in first_up.out


def test_the_printed_curl_line_gives_the_same_answer(life: Life, first_up: Said) -> None:
    assert json.loads(must(life.shell(curl_line(first_up))).out) == answer(first_up)


def test_status_reads_well_for_a_person_and_for_a_program(life: Life, first_up: Said) -> None:
    assert "wine" in life.make("status").out
    rows = json.loads(must(life.knobless("status", "--json")).out)
    assert {row["endpoint"]: row["ready"] for row in rows} == {"wine": True, "tumour": True}


def test_a_second_make_up_changes_nothing_and_starts_nothing(life: Life, first_up: Said) -> None:
    before = life.pods(), life.components(), life.endpoints()
    said = life.make("up")
    assert re.findall(r"^ +(local\S*): no change$", said.err, re.MULTILINE) == [
        "local.platform",
        "local.beta.tumour",
        "local.alpha.wine",
    ]
    assert "Applying" not in said.err
    assert (life.pods(), life.components(), life.endpoints()) == before


def test_pulumi_by_hand_sees_no_change_in_the_shell_that_knobless_env_sets_up(life: Life, first_up: Said) -> None:
    setup = f'eval "$({plain_python()} ./knobless env)"; '
    said = must(life.shell(setup + "pulumi preview -s local.alpha.wine --non-interactive --expect-no-changes"))
    assert "8 unchanged" in said.out
    must(life.shell(setup + "kubectl get modelendpoints -A"))


def test_the_commands_work_in_the_shell_that_knobless_env_sets_up(life: Life, first_up: Said) -> None:
    before = life.components()
    said = must(life.shell(f'eval "$({plain_python()} ./knobless env)"; ./knobless up --no-demo'))
    assert said.err.count("no change") == 3
    assert life.components() == before


def test_proxies_that_lead_nowhere_are_in_nobodys_way(life: Life, first_up: Said) -> None:
    must(life.knobless("plan", "--expect-no-changes", **PROXIES))
    must(life.knobless("status", **PROXIES))
    must(life.knobless("logs", "gateway", **PROXIES))
    said = must(life.knobless("predict", "wine", **PROXIES))
    assert json.loads(must(life.shell(curl_line(said), **PROXIES)).out) == answer(said)


def test_settings_of_another_passphrase_in_the_clone_stop_nothing(life: Life, first_up: Said) -> None:
    settings = life.clone / ".pulumi-config" / "Pulumi.local.alpha.wine.yaml"
    fitting = settings.read_text()
    settings.write_text("encryptionsalt: v1:J1IU10W0QtQ=:v1:U1BWt1KD/E6URh/b:TKr3sqaPNg56BPSTYGOigxh7QRkqeg==\n")
    must(life.knobless("plan", "--expect-no-changes"))
    assert settings.read_text() == fitting


# Runs that end early


def test_an_interrupt_while_pulumi_waits_leaves_no_lock_and_the_next_run_goes_on(life: Life, first_up: Said) -> None:
    life.give_wine("1100Mi")
    command = life.start("up", "--no-demo")
    at_work(life, command)
    interrupted(command)
    assert life.locks("local.alpha.wine") == []
    must(life.knobless("up", "--no-demo"))
    must(life.knobless("plan", "--expect-no-changes"))
    assert life.endpoints().keys() == {"wine", "tumour"}


def test_pulumi_ends_well_when_only_knobless_is_killed(life: Life, first_up: Said) -> None:
    life.give_wine("1150Mi")
    command = life.start("up", "--no-demo")
    at_work(life, command)
    os.killpg(command.pid, signal.SIGKILL)
    command.communicate()
    wait_until(lambda: not of_session(command.pid), 60, "pulumi has ended")
    assert life.locks("local.alpha.wine") == []


def test_the_lock_of_a_killed_run_is_broken_and_nothing_exists_twice(life: Life, first_up: Said) -> None:
    life.give_wine("1200Mi")
    command = life.start("up", "--no-demo")
    lock = at_work(life, command)
    pulumi = json.loads(lock.read_text())["pid"]
    for group in (command.pid, pulumi):
        os.killpg(group, signal.SIGKILL)
    command.communicate()
    assert lock.exists()
    said = must(life.knobless("up", "--no-demo"))
    broken = [line for line in said.err.splitlines() if "removed the lock" in line]
    assert broken == [f"    local.alpha.wine: removed the lock of process {pulumi}, which runs no more"]
    assert orphans.found(life.cluster_dir) == (), "what the killed one had started ended by itself or was ended"
    must(life.knobless("plan", "--expect-no-changes"))
    assert life.endpoints().keys() == {"wine", "tumour"}
    urns = [resource["urn"] for resource in life.state_of("local.alpha.wine")["resources"]]
    assert len(urns) == len(set(urns))


def test_up_after_a_kill_of_everything_serves_the_same_endpoints(life: Life, first_up: Said) -> None:
    before = life.endpoints()
    life.kill_everything()
    assert "HTTP 200" in life.make("up").out
    wait_until(lambda: life.knobless("predict", "wine").code == 0, 60, "the other endpoint is served")
    assert life.endpoints() == before
    must(life.knobless("plan", "--expect-no-changes"))


def test_up_after_a_reboot_finds_only_files_and_serves_the_same_endpoints(life: Life, first_up: Said) -> None:
    before = life.endpoints()
    life.kill_everything()
    host_side.disconnect(life.instance)
    host_side.remove_cgroups(life.instance)
    (life.instance.node / "init.pid").write_text("1\n")
    said = life.make("up")
    assert "HTTP 200" in said.out
    assert life.endpoints() == before


# The end


def test_down_leaves_nothing_but_what_it_says_that_it_keeps(life: Life, first_up: Said) -> None:
    instance, keys = life.instance, HOME / "keys" / life.environment_dir
    kept = [HOME / "tools", HOME / "registry", HOME / "envs", instance.mlflow_data, keys]
    before = {path: sorted(path.iterdir()) for path in kept}
    life.make("down")
    assert left_behind(life) == []
    assert [process for process in of_clone(life) if process] == []
    assert {path: sorted(path.iterdir()) for path in kept} == before
    assert not instance.node.exists()
    assert not (life.cluster_dir).exists()
    assert list((life.clone / ".pulumi-config").iterdir()) == []
    assert life.knobless("status").code == 6
    assert {path.name for path in HOME.iterdir()} <= FOLDERS | workspace.FOLDERS  # what down-all takes away


def of_clone(life: Life) -> list[str]:
    """Command lines of processes that were started from the clone."""
    found = []
    for pid in interruption.running():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        found += [line] if str(life.clone) in line else []
    return found


def test_up_after_down_builds_nothing(life: Life, first_up: Said) -> None:
    said = life.make("up")
    assert "HTTP 200" in said.out
    assert answer(said) == answer(first_up)
    for word in ("building", "bootstrapping", "installing", "pushing", "trained and registered"):
        assert word not in said.err
    life.make("down")
    assert left_behind(life) == []
