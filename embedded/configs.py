"""Owns the text of every configuration file of the node: pure functions of the instance.

Leaves to `services` who reads which file, and to `node` to write them. Kubernetes' own files are JSON, which is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from embedded import monitoring
from embedded.instance import Instance

CLUSTER_DOMAIN: Final = "cluster.local"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CNI_PLUGINS: Final = "/usr/lib/cni"
# Users of the API server and the names of their kubeconfig files.
CLIENTS: Final = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns")


def kubeconfig(server: str, authority: str, certificate: str, key: str, name: str) -> str:
    """A kubeconfig with one context; the last three paths or data are PEM, all inlined as base64."""
    return _json(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def containerd(instance: Instance, sandbox_image: str) -> str:
    # restrict_oom_score_adj: where the daemon may not lower its score, every sandbox would die at its start.
    # disable_apparmor: it would load a profile into the host's kernel, which nothing takes out again.
    # The optional plug-ins that are switched off would make folders outside the instance's own, or need a device.
    return f"""version = 2
root = "{instance.containerd}"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{instance.conf}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{instance.conf}/registries"
"""


def registry_host(instance: Instance) -> str:
    """How containerd speaks to the instance's registry: plain HTTP, inside the node."""
    url = f"http://{instance.registry}"
    return f'server = "{url}"\n\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'


def cni(instance: Instance) -> str:
    """One veth pair a pod, routed by the node: no bridge, so a pod's Service traffic always meets the node's rules."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni",
        "ranges": [[{"subnet": str(instance.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return _json({"cniVersion": "1.0.0", "name": "knobless", "plugins": [{"type": "ptp", "ipam": ipam}]})


def registry(instance: Instance) -> str:
    return _json(
        {
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(instance.registry_data)},
                "delete": {"enabled": True},
                "redirect": {"disable": True},
            },
            "http": {"addr": instance.registry, "secret": "one process, no shared state"},
        }
    )


def kubelet(instance: Instance) -> str:
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "0.0.0.0",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{instance.pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{instance.pki}/kubelet-server.crt",
            "tlsPrivateKeyFile": f"{instance.pki}/kubelet-server.key",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{instance.cgroup}",
            "clusterDNS": [str(instance.node_address)],
            "clusterDomain": CLUSTER_DOMAIN,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "resolvConf": f"{instance.conf}/resolv.conf",
            "volumePluginDir": f"{instance.node}/volume-plugins",
            "staticPodPath": "",
            "failSwapOn": False,
            # 1.35 refuses cgroup v1 otherwise; a Debian 12 that boots with v2 does not care.
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "serializeImagePulls": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            # A developer's full disk must not evict models, and an image once pulled stays for the next start.
            "evictionHard": {"memory.available": "200Mi", **dict.fromkeys(_DISK_SIGNALS, "0%")},
            "imageGCHighThresholdPercent": 100,
            "containerLogMaxSize": "10Mi",
            "maxPods": 200,
            "registryPullQPS": 0,
            "eventRecordQPS": 0,
        }
    )


_DISK_SIGNALS: Final = ("nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")


def kube_proxy(instance: Instance) -> str:
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": f"{instance.conf}/kube-proxy.kubeconfig"},
            "clusterCIDR": str(instance.pods),
            "hostnameOverride": instance.node_name,
            "bindAddress": "0.0.0.0",
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # The table's size is the host's to choose, and the node has no room to.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "nftables": {"syncPeriod": "30s", "minSyncPeriod": "100ms"},
            "oomScoreAdj": 0,
        }
    )


def corefile(instance: Instance) -> str:
    """The cluster's own names; any other name does not exist, at once, since nothing outside is reached.

    The root as the last zone of the same plug-in is what makes it say so; without it, a resolver is refused and
    tries again.
    """
    return f""".:53 {{
    bind {instance.node_address}
    errors
    ready 127.0.0.1:8181
    cache 5
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa . {{
        kubeconfig {instance.conf}/coredns.kubeconfig
        pods insecure
        ttl 5
    }}
}}
"""


def resolv_conf(instance: Instance) -> str:
    return f"nameserver {instance.node_address}\n"


def rendered(instance: Instance, sandbox_image: str) -> Mapping[Path, str]:
    """Every configuration file of the node but the kubeconfigs, by its path."""
    conf = instance.conf
    return {
        conf / "containerd.toml": containerd(instance, sandbox_image),
        conf / "registries" / instance.registry / "hosts.toml": registry_host(instance),
        conf / "cni" / "10-knobless.conflist": cni(instance),
        conf / "registry.yaml": registry(instance),
        conf / "kubelet.yaml": kubelet(instance),
        conf / "kube-proxy.yaml": kube_proxy(instance),
        conf / "Corefile": corefile(instance),
        conf / "prometheus.json": monitoring.prometheus(instance),
        conf / "resolv.conf": resolv_conf(instance),
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
