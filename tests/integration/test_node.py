"""The embedded node on this machine: it is a real Kubernetes, it survives what machines do, and it leaves nothing.

It has an instance of its own, beside whatever runs; the tests are one life of it, in this order.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import embedded
from embedded import control, debian, host_side, images, packages, snapshot, toolchain
from embedded.instance import DEFAULT_HOME, INDEX_MAX, Instance, registered
from embedded.supervision import Phase
from tests.platform_lab.life import on_loopback

pytestmark = pytest.mark.cluster

ROOT: Final = Path(__file__).parents[2]
INSTANCE: Final = Instance("nodetest", Path(os.environ.get("KNOBLESS_HOME", DEFAULT_HOME)), INDEX_MAX)
# What another container engine may have on this machine.
FOREIGN_RULES: Final = """table ip foreign {
  chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; }
  chain outward { type nat hook postrouting priority 100; ip saddr 172.31.250.0/24 masquerade; }
}
"""
SERVER: Final = (
    "use IO::Socket::INET; $| = 1; my $s = IO::Socket::INET->new(LocalPort => 8080, Listen => 5, ReuseAddr => 1);"
    "while (my $c = $s->accept) { while (<$c>) { last if /^\\r?$/ }"
    'print "asked\\n"; print $c "HTTP/1.0 200 OK\\r\\n\\r\\nhere\\n"; }'
)
# Answers nothing where nothing answers; bash has connections and nothing else.
# Who refuses what it reads may end with a reset, after its answer.
ASK: Final = "exec 3<>/dev/tcp/{host}/{port} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && {{ cat <&3 || true; }}"


@dataclasses.dataclass(frozen=True)
class Node:
    """The running instance, and how it is asked."""

    tools_bin: Path
    image: str
    before: snapshot.Snapshot

    def up(self) -> embedded.Cluster:
        return embedded.up(INSTANCE, self.tools_bin)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        argv = (str(self.tools_bin / "kubectl"), f"--kubeconfig={INSTANCE.kubeconfig}", *arguments)
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def ask(self, host: str, port: int, path: str = "/") -> str:
        """What a pod of the cluster is answered."""
        return self.kubectl("exec", "client", "--", "bash", "-c", ASK.format(host=host, port=port, path=path))

    def serves(self) -> bool:
        """Whether the workload's client gets its server's answer; both may be on their way back."""
        try:
            return "here" in self.ask("server", 80)
        except AssertionError:
            return False


def pod(name: str, image: str, *command: str) -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": list(command)}
    metadata = {"name": name, "labels": {"app": name}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def service(name: str) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"type": "NodePort", "selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def eventually(holds: Callable[[], bool], what: str, bound_s: float = 60.0) -> None:
    end_s = time.monotonic() + bound_s
    while not holds():
        assert time.monotonic() < end_s, f"not within {bound_s:g} s: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def foreign_rules() -> Iterator[None]:
    packages.ensure()
    subprocess.run(("nft", "-f", "-"), input=FOREIGN_RULES, text=True, check=True)
    yield
    subprocess.run(("nft", "delete", "table", "ip", "foreign"), check=True)


@pytest.fixture(scope="module")
def node(foreign_rules: None) -> Iterator[Node]:
    tools = toolchain.ensure(toolchain.plan(INSTANCE.home, os.environ["PATH"]), lambda _: None)
    embedded.down(INSTANCE)  # what an earlier, killed run may have left
    before = snapshot.host_snapshot()
    embedded.up(INSTANCE, tools.bin_dir)
    debian.build(INSTANCE.home)
    image = images.push(INSTANCE, debian.recipe(debian.host_mirror()))
    yield Node(tools.bin_dir, image, before)
    embedded.down(INSTANCE)


@pytest.fixture(scope="module")
def workload(node: Node) -> Node:
    """A server behind a Service, and a client."""
    client, server = pod("client", node.image, "sleep", "infinity"), pod("server", node.image, "perl", "-e", SERVER)
    items = [client, server, service("server")]
    node.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    node.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    return node


def init_process() -> int:
    process = control.find_init(INSTANCE)
    assert process is not None
    return process


def component_processes() -> dict[str, int | None]:
    status = embedded.status(INSTANCE)
    assert status is not None
    return {name: member.pid for name, member in status.members.items()}


def kill_everything() -> None:
    """The first process takes all others of the node with it, none of them asked."""
    process = init_process()
    os.kill(process, signal.SIGKILL)
    eventually(lambda: control.find_init(INSTANCE) is None, "the node is gone")


def test_the_node_is_ready_and_runs_the_pinned_kubernetes(node: Node) -> None:
    (found,) = node.get("nodes")["items"]
    assert found["metadata"]["name"] == "knobless-nodetest"
    assert {"type": "Ready", "status": "True"}.items() <= found["status"]["conditions"][-1].items()
    assert found["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")


def test_a_service_answers_a_pod_and_the_host(workload: Node) -> None:
    found = workload.get("service", "server")
    cluster_ip, port = found["spec"]["clusterIP"], found["spec"]["ports"][0]["nodePort"]
    eventually(workload.serves, "the Service by its name")
    assert "here" in workload.ask(cluster_ip, 80)
    for host, number in ((cluster_ip, 80), (str(INSTANCE.node_address), port)):
        argv = ("bash", "-c", ASK.format(host=host, port=number, path="/"))
        assert "here" in subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_pod_reaches_itself_through_its_service(workload: Node) -> None:
    argv = ("exec", "server", "--", "bash", "-c", ASK.format(host="server.default.svc", port=80, path="/"))
    assert "here" in workload.kubectl(*argv)


def test_dns_knows_the_clusters_names_and_no_others(workload: Node) -> None:
    argv = ("exec", "client", "--", "bash", "-c")
    answer = workload.kubectl(*argv, "getent hosts kubernetes.default")
    assert answer.split()[0] == str(INSTANCE.kubernetes_service_address)
    assert workload.kubectl(*argv, "getent hosts example.org || echo none").strip() == "none"


def test_logs_and_exec_work(workload: Node) -> None:
    eventually(lambda: "asked" in workload.kubectl("logs", "server"), "the server's log")
    assert workload.kubectl("exec", "client", "--", "cat", "/etc/hostname").strip() == "client"


def test_a_pod_reaches_registry_and_api_server_where_the_host_does(workload: Node) -> None:
    assert " 200 " in workload.ask(str(INSTANCE.node_address), 5000, "/v2/")
    assert "400 Bad Request" in workload.ask(str(INSTANCE.node_address), 6443)  # plain HTTP to the TLS port
    assert "400 Bad Request" in workload.ask("kubernetes.default", 443)


def test_up_on_a_running_node_changes_nothing(workload: Node) -> None:
    before = (init_process(), component_processes(), snapshot.host_snapshot(), workload.get("pods"))
    workload.up()
    after = (init_process(), component_processes(), snapshot.host_snapshot(), workload.get("pods"))
    assert after[:2] == before[:2]
    assert snapshot.differences(before[2], after[2]) == []
    assert [item["metadata"] for item in after[3]["items"]] == [item["metadata"] for item in before[3]["items"]]


def test_a_crashed_component_is_started_again(workload: Node) -> None:
    before = component_processes()
    inside = before["kube-scheduler"]
    subprocess.run(("nsenter", f"--target={init_process()}", "--pid", "--mount", "kill", "-9", str(inside)), check=True)
    eventually(lambda: component_processes()["kube-scheduler"] not in (inside, None), "a new scheduler")
    others = {name: process for name, process in component_processes().items() if name != "kube-scheduler"}
    assert others.items() <= before.items()


def test_a_stopped_api_server_stays_stopped_and_pods_go_on(workload: Node) -> None:
    address = workload.get("service", "server")["spec"]["clusterIP"]
    embedded.stop_component(INSTANCE, "kube-apiserver")
    for _ in range(30):  # longer than the first back-offs
        status = embedded.status(INSTANCE)
        assert status is not None
        assert status.members["kube-apiserver"].phase is Phase.STOPPED
        time.sleep(0.1)
    argv = ("bash", "-c", ASK.format(host=address, port=80, path="/"))
    assert "here" in subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    embedded.start_component(INSTANCE, "kube-apiserver")
    assert workload.get("pod", "server")["status"]["phase"] == "Running"


def test_up_starts_what_was_stopped(workload: Node) -> None:
    embedded.stop_component(INSTANCE, "kube-scheduler")
    workload.up()
    status = embedded.status(INSTANCE)
    assert status is not None
    assert status.all_ready


@pytest.mark.destructive
def test_up_after_a_kill_of_everything_brings_the_same_pods_back(workload: Node) -> None:
    before = {item["metadata"]["uid"] for item in workload.get("pods")["items"]}
    kill_everything()
    workload.up()
    assert {item["metadata"]["uid"] for item in workload.get("pods")["items"]} == before
    eventually(workload.serves, "the server in its second life")


@pytest.mark.destructive
def test_up_after_a_reboot_finds_only_files(workload: Node) -> None:
    kill_everything()
    host_side.disconnect(INSTANCE)
    host_side.remove_cgroups(INSTANCE)
    (INSTANCE.node / "init.pid").write_text("1\n")
    workload.up()
    eventually(workload.serves, "the server after the reboot")


@pytest.mark.destructive
@pytest.mark.parametrize("seen", ["starting node", "etcd ready", "kube-apiserver ready"])
def test_up_after_an_interrupted_up_goes_on(workload: Node, seen: str) -> None:
    kill_everything()
    argv = (sys.executable, "-m", "embedded", "up", f"--instance={INSTANCE.name}", f"--home={INSTANCE.home}")
    with subprocess.Popen(
        (*argv, f"--tools={workload.tools_bin}"), cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        assert any(seen in line for line in process.stderr)
        process.kill()
    workload.up()
    eventually(workload.serves, "the server after the interruption")


@pytest.mark.destructive
def test_a_node_has_neither_limits_nor_cgroup_of_the_shell_that_started_it(workload: Node) -> None:
    kill_everything()
    argv = (sys.executable, "-m", "embedded", "up", f"--instance={INSTANCE.name}", f"--home={INSTANCE.home}")
    narrow = ("bash", "-c", 'umask 077; ulimit -S -n 1000; exec "$@"', "bash", *argv)
    started = subprocess.run((*narrow, f"--tools={workload.tools_bin}"), cwd=ROOT, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr
    eventually(workload.serves, "the server")
    umask, open_files = workload.kubectl("exec", "client", "--", "bash", "-c", "umask; ulimit -n").split()
    assert umask == "0022"
    assert int(open_files) >= resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    cgroups = Path(f"/proc/{init_process()}/cgroup").read_text().splitlines()
    assert f"0::/{INSTANCE.cgroup}/node" in cgroups


@pytest.mark.destructive
def test_a_component_that_can_not_start_is_named_with_the_end_of_its_log(node: Node, tmp_path: Path) -> None:
    for tool in node.tools_bin.iterdir():
        (tmp_path / tool.name).symlink_to(tool)
    (tmp_path / "etcd").unlink()
    (tmp_path / "etcd").write_text("#!/bin/sh\necho 'this is the reason' >&2\nexit 3\n")
    (tmp_path / "etcd").chmod(0o755)
    with pytest.raises(embedded.NodeError, match=r"etcd ended \d+ times \(exit code 3\)(.|\n)*this is the reason"):
        embedded.up(INSTANCE, tmp_path)


def left_behind(node: Node) -> list[str]:
    """What differs from before the first `up`, without other instances, which may come and go meanwhile."""
    others = [Instance(name, INSTANCE.home, index) for name, index in registered(INSTANCE.home).items()]
    marks = [mark for other in others for mark in (f"{other.interface} ", f"/{other.cgroup}", str(other.node))]
    found = snapshot.differences(node.before, snapshot.host_snapshot())
    return [line for line in found if not (on_loopback(line) or any(mark in f"{line} " for mark in marks))]


@pytest.mark.destructive
def test_down_leaves_the_host_as_it_was(node: Node) -> None:
    embedded.down(INSTANCE)
    assert left_behind(node) == []
    assert not INSTANCE.kubeconfig.exists()
    assert not INSTANCE.node.exists()
    assert INSTANCE.registry_data.is_dir()


@pytest.mark.destructive
def test_down_of_what_is_down_is_nothing(node: Node) -> None:
    embedded.down(INSTANCE)
    assert embedded.status(INSTANCE) is None
