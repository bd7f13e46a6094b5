"""Owns which processes make up a node: the command line of each, what it waits for, and how one sees that it is up.

Leaves their files to `configs` and their running to `supervisor`. Pure functions of the instance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from embedded import monitoring
from embedded.configs import CONTAINERD_SOCKET
from embedded.instance import Instance
from embedded.specification import Component

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
API_SERVER: Final = "kube-apiserver"
REGISTRY: Final = "registry"
ETCD_URL: Final = "https://127.0.0.1:2379"
# NodePorts: the gateway's 8443 is outside Kubernetes' default range.
NODE_PORTS: Final = "8000-32767"
PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "etcd",
    "coredns",
)


def environment(tools_bin: Path) -> dict[str, str]:
    """What every process of the node gets: nothing of the caller's, so no proxy and no credentials."""
    return {"PATH": f"{tools_bin}:{SYSTEM_PATH}", "HOME": "/root", "LANG": "C.UTF-8"}


def components(instance: Instance, tools_bin: Path, mlflow_python: Path | None) -> tuple[Component, ...]:
    """In the order in which they start."""
    control_plane = (
        _containerd(instance, tools_bin),
        _etcd(instance, tools_bin),
        _api_server(instance, tools_bin),
        _registry(instance, tools_bin),
        _kubelet(instance, tools_bin),
        _controller_manager(instance, tools_bin),
        _scheduler(instance, tools_bin),
        _kube_proxy(instance, tools_bin),
        _coredns(instance, tools_bin),
        _node_exporter(tools_bin),
        _prometheus(instance, tools_bin),
    )
    return control_plane if mlflow_python is None else (*control_plane, _mlflow(instance, tools_bin, mlflow_python))


def _containerd(instance: Instance, tools_bin: Path) -> Component:
    return Component(
        "containerd",
        ("containerd", "--config", f"{instance.conf}/containerd.toml"),
        environment(tools_bin),
        probe=f"unix:{CONTAINERD_SOCKET}",
        stop_grace_s=3.0,
    )


def _etcd(instance: Instance, tools_bin: Path) -> Component:
    peer_url = "http://127.0.0.1:2380"
    argv = (
        f"{tools_bin}/etcd",
        f"--name={instance.node_name}",
        f"--data-dir={instance.etcd}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster={instance.node_name}={peer_url}",
        "--client-cert-auth",
        f"--trusted-ca-file={instance.pki}/ca.crt",
        f"--cert-file={instance.pki}/etcd.crt",
        f"--key-file={instance.pki}/etcd.key",
        "--auto-compaction-retention=1h",
        "--quota-backend-bytes=1073741824",
        "--log-level=warn",
    )
    # Asked to end, it waits for its watchers to leave; its log is synced, so it may as well be killed.
    return Component("etcd", argv, environment(tools_bin), probe="tcp:127.0.0.1:2379")


def _api_server(instance: Instance, tools_bin: Path) -> Component:
    pki = instance.pki
    argv = (
        f"{tools_bin}/{API_SERVER}",
        f"--advertise-address={instance.node_address}",
        f"--service-cluster-ip-range={instance.services}",
        f"--service-node-port-range={NODE_PORTS}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/kube-apiserver.crt",
        f"--tls-private-key-file={pki}/kube-apiserver.key",
        f"--etcd-servers={ETCD_URL}",
        f"--etcd-cafile={pki}/ca.crt",
        f"--etcd-certfile={pki}/etcd-client.crt",
        f"--etcd-keyfile={pki}/etcd-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/kubelet-client.crt",
        f"--kubelet-client-key={pki}/kubelet-client.key",
        # The node's name does not resolve; without this, logs and exec fail.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/service-accounts.key",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        "--profiling=false",
    )
    return Component(API_SERVER, argv, environment(tools_bin), after=("etcd",), probe="https://127.0.0.1:6443/readyz")


def _controller_manager(instance: Instance, tools_bin: Path) -> Component:
    argv = (
        f"{tools_bin}/kube-controller-manager",
        f"--kubeconfig={instance.conf}/kube-controller-manager.kubeconfig",
        f"--service-account-private-key-file={instance.pki}/service-accounts.key",
        f"--root-ca-file={instance.pki}/ca.crt",
        "--use-service-account-credentials",
        # At the default 20 a second, its start alone waits four seconds for itself.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    )
    probe = "https://127.0.0.1:10257/healthz"
    return Component("kube-controller-manager", argv, environment(tools_bin), after=(API_SERVER,), probe=probe)


def _scheduler(instance: Instance, tools_bin: Path) -> Component:
    argv = (
        f"{tools_bin}/kube-scheduler",
        f"--kubeconfig={instance.conf}/kube-scheduler.kubeconfig",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--profiling=false",
    )
    probe = "https://127.0.0.1:10259/healthz"
    return Component("kube-scheduler", argv, environment(tools_bin), after=(API_SERVER,), probe=probe)


def _kubelet(instance: Instance, tools_bin: Path) -> Component:
    argv = (
        f"{tools_bin}/kubelet",
        f"--config={instance.conf}/kubelet.yaml",
        f"--kubeconfig={instance.conf}/kubelet.kubeconfig",
        f"--hostname-override={instance.node_name}",
        f"--node-ip={instance.node_address}",
    )
    after = ("containerd", API_SERVER)
    return Component("kubelet", argv, environment(tools_bin), after=after, probe="http://127.0.0.1:10248/healthz")


def _kube_proxy(instance: Instance, tools_bin: Path) -> Component:
    argv = (f"{tools_bin}/kube-proxy", f"--config={instance.conf}/kube-proxy.yaml")
    return Component(
        "kube-proxy", argv, environment(tools_bin), after=(API_SERVER,), probe="http://127.0.0.1:10249/healthz"
    )


def _coredns(instance: Instance, tools_bin: Path) -> Component:
    argv = (f"{tools_bin}/coredns", "-conf", f"{instance.conf}/Corefile")
    return Component("coredns", argv, environment(tools_bin), after=(API_SERVER,), probe="http://127.0.0.1:8181/ready")


def _registry(instance: Instance, tools_bin: Path) -> Component:
    argv = ("docker-registry", "serve", f"{instance.conf}/registry.yaml")
    return Component(REGISTRY, argv, environment(tools_bin), probe=f"http://{instance.registry}/v2/", stop_grace_s=3.0)


def _node_exporter(tools_bin: Path) -> Component:
    argv = (
        "prometheus-node-exporter",
        f"--web.listen-address={monitoring.NODE_EXPORTER}",
        "--web.disable-exporter-metrics",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in monitoring.COLLECTORS),
        "--log.level=error",
    )
    probe = f"http://{monitoring.NODE_EXPORTER}/"
    return Component("node-exporter", argv, environment(tools_bin), probe=probe)


def _prometheus(instance: Instance, tools_bin: Path) -> Component:
    argv = (
        "prometheus",
        f"--config.file={instance.conf}/prometheus.json",
        f"--storage.tsdb.path={instance.node}/prometheus",
        f"--storage.tsdb.retention.time={monitoring.RETENTION}",
        f"--web.listen-address={instance.prometheus.removeprefix('http://')}",
        "--query.timeout=10s",
        "--query.max-concurrency=4",
        # Until the controllers run, their list of targets can't be had, which it would tell every ten seconds.
        "--log.level=error",
    )
    # Its log of writes survives being killed.
    return Component("prometheus", argv, environment(tools_bin), probe=f"{instance.prometheus}/-/ready")


def _mlflow(instance: Instance, tools_bin: Path, python: Path) -> Component:
    address = str(instance.node_address)
    argv = (
        str(python),
        *("-m", "mlflow", "server"),
        *("--host", address),
        *("--port", str(instance.mlflow_port)),
        *("--backend-store-uri", f"sqlite:///{instance.mlflow_data}/mlflow.db"),
        *("--artifacts-destination", f"{instance.mlflow_data}/artifacts"),
        "--serve-artifacts",
        # It refuses a Host header it does not know; host and pods use the same one.
        *("--allowed-hosts", f"{address},{address}:{instance.mlflow_port}"),
        *("--workers", "1"),
    )
    own = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Component(
        "mlflow",
        argv,
        environment(tools_bin) | own,
        probe=f"{instance.mlflow_uri}/health",
        stop_grace_s=3.0,
    )
