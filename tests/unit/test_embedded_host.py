"""What is done to the host, from text to text: interfaces, cgroups, packages, settings of builds, snapshots."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest

from embedded import control, debian, host_settings, host_side, images, node, packages, readiness, registry, snapshot
from embedded.instance import Instance

INSTANCE = Instance("dev", index=2)
MOUNTINFO = """\
26 24 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw
27 26 0:24 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
28 26 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_the_hosts_end_of_the_wire_routes_pods_and_services_and_nothing_else() -> None:
    commands = host_side.link_commands(INSTANCE, 4711).splitlines()
    assert commands[0] == "link add kn-dev address 02:00:c6:12:5f:fd type veth peer name eth0 netns 4711"
    assert [line for line in commands if line.startswith("route")] == [
        "route add 198.18.64.0/20 via 198.18.95.254 dev kn-dev",
        "route add 198.18.80.0/21 via 198.18.95.254 dev kn-dev",
    ]


def test_every_cgroup_hierarchy_is_found_with_its_version() -> None:
    assert host_side.hierarchies(MOUNTINFO) == (
        (Path("/sys/fs/cgroup/cpu,cpuacct"), False),
        (Path("/sys/fs/cgroup/unified"), True),
    )


PURE = "27 26 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(("mountinfo", "root"), [(PURE, Path("/sys/fs/cgroup")), (MOUNTINFO, None), ("", None)])
def test_controllers_are_handed_down_only_where_v2_has_them_all(mountinfo: str, root: Path | None) -> None:
    assert host_side.pure_v2(host_side.hierarchies(mountinfo)) == root


@pytest.mark.parametrize(
    ("is_true_root", "processes", "wanted", "held"),
    [
        (True, "1\n812\n", "+cpuset", False),  # a machine: its root may have both
        (False, "1\n812\n", "+cpuset", True),  # a container with a cgroup namespace of its own
        (False, "1\n812\n", "", False),  # its engine enabled all for it
        (False, "", "+cpuset", False),  # its processes are in a cgroup below
    ],
)
def test_a_root_cgroup_with_processes_hands_nothing_down_but_the_true_one(
    is_true_root: bool, processes: str, wanted: str, held: bool
) -> None:
    assert host_side.is_held(is_true_root, processes, wanted) is held


@pytest.mark.parametrize(
    ("available", "enabled", "written"),
    [
        ("cpuset cpu io memory pids", "cpu memory pids", "+cpuset"),
        ("cpu memory", "cpu memory", ""),
        ("cpu io memory hugetlb pids", "", "+cpu +hugetlb +memory +pids"),
    ],
)
def test_only_missing_controllers_are_enabled(available: str, enabled: str, written: str) -> None:
    assert host_side.missing_controllers(available, enabled) == written


SPECIFICATION = Path("/var/lib/knobless/nodes/dev/node.json")
COMMAND = b"python\0-m\0embedded.init\0/var/lib/knobless/nodes/dev/node.json\0"


@pytest.mark.parametrize(
    ("command", "status", "expected"),
    [
        (COMMAND, "State:\tS (sleeping)\nNSpid:\t4711\t1\n", True),
        (COMMAND, "State:\tS (sleeping)\nNSpid:\t4711\n", False),  # the process that launches it
        (COMMAND, "State:\tZ (zombie)\nNSpid:\t4711\t1\n", False),
        (COMMAND.replace(b"dev", b"def"), "State:\tS (sleeping)\nNSpid:\t4711\t1\n", False),
        (b"vi\0" + b"/var/lib/knobless/nodes/dev/node.json\0", "NSpid:\t4711\t1\n", False),
        (b"", "", False),
    ],
)
def test_the_nodes_first_process_is_told_from_all_others(command: bytes, status: str, expected: bool) -> None:
    assert control.is_init(command, status, SPECIFICATION) is expected


@pytest.mark.parametrize("there", [frozenset(), frozenset(packages.NEEDED.values())])
def test_a_program_that_is_there_from_any_package_is_not_installed(there: frozenset[str]) -> None:
    assert packages.missing(there.__contains__) == (() if there else tuple(packages.NEEDED))


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 101\n"])
def test_the_policy_on_services_is_put_back_as_it_was(tmp_path: Path, before: str | None) -> None:
    policy, saved = tmp_path / "policy-rc.d", tmp_path / "saved"
    if before is not None:
        policy.write_text(before)
        policy.chmod(0o750)
    with packages.no_services(policy, saved):
        assert policy.read_text() == packages.DENY
        assert policy.stat().st_mode & stat.S_IXUSR
    assert (policy.read_text() if policy.exists() else None) == before
    assert before is None or stat.S_IMODE(policy.stat().st_mode) == 0o750
    assert not saved.exists()


@pytest.mark.parametrize("before", [None, "theirs"])
def test_an_interrupted_installation_leaves_a_policy_that_the_next_one_puts_back(
    tmp_path: Path, before: str | None
) -> None:
    policy, saved = tmp_path / "policy-rc.d", tmp_path / "saved"
    policy.write_text(packages.DENY)
    if before is not None:
        saved.write_text(before)
    packages.recover(policy, saved)
    assert (policy.read_text() if policy.exists() else None) == before


def test_a_foreign_policy_survives_a_recovery(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("theirs")
    packages.recover(policy, tmp_path / "saved")
    assert policy.read_text() == "theirs"


PIP_LIST = """\
:env:.cert='/etc/ssl/own.crt'
:env:.index-url='https://index.example/env'
global.cache-dir='/root/cache'
global.index-url='https://index.example/file'
global.trusted-host='one.example\\ntwo.example'
"""


def test_pip_gets_what_concerns_reaching_an_index_and_the_environment_wins() -> None:
    assert host_settings.pip_conf(PIP_LIST, has_ca=True) == (
        "[global]\n"
        "cert = /run/knobless/ca.crt\n"
        "index-url = https://index.example/env\n"
        "trusted-host = one.example\n  two.example\n"
    )


def test_without_settings_pip_gets_none() -> None:
    assert host_settings.pip_conf("", has_ca=False) == "[global]\n"


def test_apt_gets_proxies_and_checks_and_our_certificates() -> None:
    dumped = (
        'APT "";\nAcquire::http::Proxy "http://proxy.example:3142";\nAcquire::https "";\n'
        'Acquire::https::CAInfo "/etc/ssl/own.crt";\nAcquire::Check-Valid-Until "false";\nDir "/";\n'
    )
    assert host_settings.apt_conf(dumped, has_ca=True) == (
        'Acquire::http::Proxy "http://proxy.example:3142";\nAcquire::Check-Valid-Until "false";\n'
        'Acquire::https::CAInfo "/run/knobless/ca.crt";\n'
    )


DEB822 = """\
Types: deb
URIs: http://mirror.example/debian/
Suites: bookworm bookworm-updates

Types: deb
URIs: http://mirror.example/debian-security
"""


@pytest.mark.parametrize(
    ("texts", "main", "security"),
    [
        ([DEB822], "http://mirror.example/debian", "http://mirror.example/debian-security"),
        (
            ["deb [signed-by=/k.gpg] https://other.example/debian bookworm main"],
            "https://other.example/debian",
            "https://other.example/debian-security",
        ),
    ],
)
def test_the_mirror_is_the_one_that_the_hosts_apt_uses(texts: list[str], main: str, security: str) -> None:
    assert debian.mirror_of(texts) == debian.Mirror(main, security)


@pytest.mark.parametrize("texts", [[], ["deb https://packages.example/app stable main"]])
def test_without_a_debian_mirror_the_base_image_is_refused_with_the_reason(texts: list[str]) -> None:
    with pytest.raises(images.ImageError, match="name no Debian mirror"):
        debian.mirror_of(texts)


def test_an_image_is_named_by_everything_that_goes_in(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    source = tmp_path / "folder" / "program"
    source.write_text("one")
    first = images.inputs_digest((tmp_path,), {"BASE": "a"})
    assert images.inputs_digest((tmp_path,), {"BASE": "a"}) == first
    others = [images.inputs_digest((tmp_path,), {"BASE": "b"})]
    source.chmod(0o755)
    others.append(images.inputs_digest((tmp_path,), {"BASE": "a"}))
    source.write_text("two")
    others.append(images.inputs_digest((tmp_path,), {"BASE": "a"}))
    source.rename(source.with_name("renamed"))
    others.append(images.inputs_digest((tmp_path,), {"BASE": "a"}))
    assert len({first, *others}) == 5


def test_what_goes_into_an_image_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir(mode=0o700)
    for name, mode in (("etc/settings", 0o600), ("program", 0o700)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("nowhere")
    images.give_plain_modes(tmp_path)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("", "etc", "etc/settings", "program")}
    assert modes == {"": 0o755, "etc": 0o755, "etc/settings": 0o644, "program": 0o755}


def test_compiled_python_does_not_count(tmp_path: Path) -> None:
    before = images.inputs_digest((tmp_path,), {})
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert images.inputs_digest((tmp_path,), {}) == before


@pytest.mark.parametrize(
    "text", ["198.18.95.254:5000/knobless/debian:1", "198.18.95.254:5000/knobless/debian@sha256:ab"]
)
def test_a_reference_is_read_and_written_alike(text: str) -> None:
    assert str(registry.parse(text)) == text
    assert registry.parse(text).repository == "knobless/debian"


@pytest.mark.parametrize("text", ["debian", "host:5000/debian", "host:5000/", "host:5000/debian@"])
def test_a_reference_without_registry_or_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not <registry>"):
        registry.parse(text)


def test_a_dns_question_is_as_rfc_1035_writes_it() -> None:
    assert readiness.dns_query("a.bc", 0x1234) == (
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x02bc\x00\x00\x01\x00\x01"
    )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00", None),
        (b"\x12\x34\x81\x83\x00\x01\x00\x00\x00\x01\x00\x00", "code 3 and 0 addresses"),
        (b"\x43\x21\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00", "another question"),
        (b"\x12", "truncated"),
    ],
)
def test_only_an_answer_with_an_address_counts(answer: bytes, problem: str | None) -> None:
    found = readiness.dns_answer_problem(answer, 0x1234)
    assert found is None if problem is None else problem in str(found)


STARTED = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)


def ready(status: str, at: str = "2026-01-01T12:00:00Z", message: str = "") -> dict[str, str]:
    return {"type": "Ready", "status": status, "lastHeartbeatTime": at, "message": message}


@pytest.mark.parametrize(
    ("conditions", "taints", "problem"),
    [
        ([ready("True")], [], None),
        ([ready("True")], [{"key": "soft", "effect": "PreferNoSchedule"}], None),
        ([ready("True")], [{"key": "hard", "effect": "NoSchedule"}], "tainted: hard"),
        ([ready("True", at="2026-01-01T11:59:59Z")], [], "has not reported"),
        ([ready("False", message="no CNI")], [], "no CNI"),
        ([], [], "missing"),
    ],
)
def test_a_node_that_can_not_take_pods_says_why(
    conditions: list[dict[str, str]], taints: list[dict[str, str]], problem: str | None
) -> None:
    found = readiness.condition_problem({"status": {"conditions": conditions}, "spec": {"taints": taints}}, STARTED)
    assert found is None if problem is None else problem in str(found)


def test_a_snapshot_says_what_came_and_what_went() -> None:
    before = {"mounts": ["/a", "/b"], "routes": []}
    after = {"mounts": ["/b", "/c"], "routes": [], "sysctls": ["x = 1"]}
    assert snapshot.differences(before, after) == ["mounts: - /a", "mounts: + /c", "sysctls: + x = 1"]
    assert snapshot.differences(before, before) == []


def test_mounts_are_compared_without_their_numbers() -> None:
    assert snapshot.mounts(MOUNTINFO) == snapshot.mounts(MOUNTINFO.replace("0:2", "0:9"))
    assert "/sys/fs/cgroup/unified cgroup2 cgroup2" in snapshot.mounts(MOUNTINFO)


def test_purge_removes_a_home_of_which_nothing_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "nodes" / "gone").mkdir(parents=True)
    (home / "nodes" / "gone" / "index").write_text("4\n")
    assert node.purge(home) == ()
    assert not home.exists()


def test_purge_removes_what_is_ours_and_tells_of_the_rest(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in ("registry/blob", "keys/a.key", "photos/1.jpg"):
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()
    (elsewhere / "kubectl").touch()
    (home / "tools").symlink_to(elsewhere)
    assert node.purge(home, {"registry", "keys", "tools"}) == ("photos",)
    assert [path.name for path in home.iterdir()] == ["photos"]
    assert (home / "photos" / "1.jpg").exists()
    assert (elsewhere / "kubectl").exists()


def test_purge_refuses_while_an_instance_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes" / "busy").mkdir(parents=True)
    (tmp_path / "nodes" / "busy" / "index").write_text("4\n")
    monkeypatch.setattr(control, "find_init", lambda instance: 4711)
    with pytest.raises(ValueError, match="busy runs"):
        node.purge(tmp_path)
    assert tmp_path.exists()


@pytest.mark.parametrize(
    ("destination", "options"),
    [
        (images.Destination("r:5000", plain_http=True), ["--tls-verify=false"]),
        (images.Destination("r:5000"), ["--tls-verify=true"]),
        (images.Destination("r:5000", auth_file=Path("/a")), ["--tls-verify=true", "--authfile=/a"]),
    ],
)
def test_an_image_is_pushed_with_the_registry_s_own_security(
    destination: images.Destination, options: list[str]
) -> None:
    wanted = images.Recipe("model", Path("Containerfile"), Path(), "a" * 64)
    said = images.push_arguments("localhost/knobless/model:x", wanted, destination)
    place = f"docker://r:5000/knobless/model:{'a' * 24}"
    assert list(said) == ["push", *options, "localhost/knobless/model:x", place]
