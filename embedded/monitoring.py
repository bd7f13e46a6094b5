"""Owns what the node's Prometheus reads: the text of its configuration.

Leaves to `services` how it runs, and to the controllers which pods there are: Debian's Prometheus knows no Kubernetes,
so it asks their list of targets. One idea: it keeps what the autoscaler asks for and little more, for two hours, since
memory is what a local stack is short of.
"""

from __future__ import annotations

import json
from typing import Any, Final

from embedded.instance import Instance
from spec import names

RETENTION: Final = "2h"
SCRAPE_S: Final = 10
NODE_EXPORTER: Final = "127.0.0.1:9100"
COLLECTORS: Final = ("cpu", "loadavg", "meminfo", "pressure")
# The user of the API server that it is, and its certificate's file.
USER: Final = "knobless:prometheus"
CERTIFICATE: Final = "prometheus"
# The controllers' port behind the API server: no address of a pod has to be known.
CONTROLLERS: Final = f"{names.COMPONENT_CONTROLLERS}:{names.PORT_HEALTH}"
_PROXY: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{CONTROLLERS}/proxy"
_API_SERVER: Final = "127.0.0.1:6443"
_KEPT_OF_NODE: Final = "node_(cpu_seconds_total|load1|pressure_.+|memory_(MemTotal|MemAvailable)_bytes)"
_KEPT_OF_CONTAINERS: Final = (
    "container_(cpu_usage_seconds_total|cpu_cfs_(throttled_)?periods_total|spec_cpu_(quota|period)|"
    "memory_working_set_bytes|spec_memory_limit_bytes|pressure_(cpu|io|memory)_waiting_seconds_total)"
)


def prometheus(instance: Instance) -> str:
    node = {"node": instance.node_name}
    return json.dumps(
        {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": "5s"},
            "scrape_configs": [
                _job("node", NODE_EXPORTER, labels=node, metric_relabel_configs=[_keep(_KEPT_OF_NODE)]),
                _job(
                    "kubelet",
                    f"{instance.node_address}:10250",
                    labels=node,
                    metrics_path="/metrics/cadvisor",
                    # The pod's own cgroup has no name of a container.
                    metric_relabel_configs=[_keep(_KEPT_OF_CONTAINERS), _keep(".+", "container")],
                    **_as_user(instance),
                ),
                _job("controllers", _API_SERVER, metrics_path=f"{_PROXY}/metrics", **_as_user(instance)),
                {"job_name": "pods", "http_sd_configs": [_targets(instance)]},
            ],
        },
        indent=2,
    )


def _job(name: str, target: str, labels: dict[str, str] | None = None, **settings: Any) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": [target], "labels": labels or {}}], **settings}


def _targets(instance: Instance) -> dict[str, Any]:
    url = f"https://{_API_SERVER}{_PROXY}{names.TARGETS_PATH}"
    tls = _as_user(instance)["tls_config"]
    return {"url": url, "refresh_interval": f"{SCRAPE_S}s", "tls_config": tls}


def _as_user(instance: Instance) -> dict[str, Any]:
    pki = instance.pki
    files = {"ca_file": "ca.crt", "cert_file": f"{CERTIFICATE}.crt", "key_file": f"{CERTIFICATE}.key"}
    return {"scheme": "https", "tls_config": {name: str(pki / file) for name, file in files.items()}}


def _keep(expression: str, label: str = "__name__") -> dict[str, Any]:
    return {"action": "keep", "source_labels": [label], "regex": expression}
