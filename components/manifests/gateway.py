"""Owns the objects of the gateway: HAProxy and its control plane in one pod, how it is reached and found, its rights.

Leaves to `controllers.gateway` what HAProxy is told. One idea: running traffic depends on HAProxy alone. The pod is
ready when HAProxy is, and a control plane that dies is started again inside its container, because a container that
ends makes its whole pod unready and takes it out of the Service.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.manifests.access import (
    cluster_role,
    granted_everywhere,
    granted_in,
    right,
    role,
)
from components.manifests.objects import (
    API_ACCESS,
    API_ACCESS_PATH,
    SKIP_AWAIT,
    Manifest,
    api_access,
    container,
    manifest,
    one_at_a_time,
    own_field,
    pod_security,
    probe,
    scratch,
    service_account,
    variables,
)
from components.manifests.traffic import network_policy, ports, system_pods
from controllers.gateway.settings import PREFIX, Settings
from spec import names
from spec.platform import PlatformSpec

NAME = names.COMPONENT_GATEWAY
PLACE = names.SYSTEM_NAMESPACE
LABELS = names.managed_labels(NAME)
SELECTOR = {names.LABEL_COMPONENT: NAME}
ROLE = "knobless-gateway"
STATS_SERVICE = "gateway-stats"
SETTINGS = Settings()
RUN_FOLDER = str(SETTINGS.run)
TLS_FOLDER = "/etc/gateway/tls"
# Long enough for every node to hear that the pod leaves, before HAProxy stops listening.
LEAVE_S = 5
# HAProxy's hard-stop-after: no answer takes longer.
DRAIN_S = SETTINGS.drain_s
_RUN, _TLS, _SCRATCH = "run", "tls", "tmp"


def account(pull_secrets: Sequence[str] = ()) -> Manifest:
    return service_account(NAME, PLACE, LABELS, pull_secrets)


def rights() -> list[Manifest]:
    """It watches endpoints and their pods' addresses everywhere, and reads one Secret."""
    watching = [
        right(names.GROUP, names.PLURAL, "get list watch"),
        right(names.GROUP, f"{names.PLURAL}/status", "patch"),
        right("discovery.k8s.io", "endpointslices", "get list watch"),
    ]
    # A watch of one object names it in a field selector, which is what a restricted `list` and `watch` ask for.
    keys = [right("", "secrets", "get list watch", only=[names.SECRET_GATEWAY_KEYS])]
    return [
        cluster_role(ROLE, LABELS, watching),
        granted_everywhere(ROLE, account()),
        role(ROLE, PLACE, LABELS, keys),
        granted_in(PLACE, "Role", ROLE, account(), LABELS),
    ]


def service(platform: PlatformSpec) -> Manifest:
    """Where clients come in: a port of every node, or a load balancer of the cluster's cloud."""
    expose, port = platform.gateway.expose, platform.gateway.port
    entry = {"name": "https", "protocol": "TCP", "port": port, "targetPort": "https"}
    if expose == "NodePort":
        entry["nodePort"] = port
    return manifest(
        "v1",
        "Service",
        NAME,
        namespace=PLACE,
        labels=LABELS,
        # A node's port is there at once; only a cloud's load balancer is worth waiting for.
        annotations=SKIP_AWAIT if expose == "NodePort" else None,
        spec={"type": expose, "selector": SELECTOR, "ports": [entry]},
    )


def stats_service() -> Manifest:
    """No address of its own: one DNS name under which every gateway pod's counters are found."""
    entries = {"stats": SETTINGS.stats_port, "metrics": SETTINGS.exporter_port, "control": SETTINGS.control_port}
    return manifest(
        "v1",
        "Service",
        STATS_SERVICE,
        namespace=PLACE,
        labels=LABELS,
        annotations=SKIP_AWAIT,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": SELECTOR,
            "ports": [
                {"name": name, "protocol": "TCP", "port": port, "targetPort": name} for name, port in entries.items()
            ],
        },
    )


def doors() -> Manifest:
    """Clients from anywhere, counters for the controllers only; the way out is free (pods, API server)."""
    return network_policy(
        NAME,
        PLACE,
        LABELS,
        SELECTOR,
        ingress=[
            {"ports": ports(SETTINGS.https_port, SETTINGS.exporter_port, SETTINGS.control_port)},
            {"from": [system_pods(names.COMPONENT_CONTROLLERS)], "ports": ports(SETTINGS.stats_port)},
        ],
    )


def disruption_budget() -> Manifest:
    return one_at_a_time(NAME, PLACE, LABELS, SELECTOR)


def deployment(platform: PlatformSpec, image: str) -> Manifest:
    """One replica, the API's own default; a new one is ready before the old one leaves."""
    return manifest(
        "apps/v1",
        "Deployment",
        NAME,
        namespace=PLACE,
        labels=LABELS,
        spec={
            "selector": {"matchLabels": SELECTOR},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 2,
            "template": {"metadata": {"labels": LABELS}, "spec": _pod(platform, image)},
        },
    )


def _pod(platform: PlatformSpec, image: str) -> Manifest:
    return {
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "system-cluster-critical",
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": LEAVE_S + DRAIN_S + 15,
        "initContainers": [_render(platform, image)],
        "containers": [_haproxy(image), _control(platform, image)],
        "volumes": [
            api_access(),
            scratch(_RUN, "64Mi", in_memory=True),
            scratch(_SCRATCH, "64Mi"),
            {"name": _TLS, "secret": {"secretName": names.SECRET_GATEWAY_TLS, "defaultMode": 0o440}},
        ],
    }


def _environment(platform: PlatformSpec) -> list[Manifest]:
    return [
        *variables({f"{PREFIX}SPARE_BACKENDS": str(platform.gateway.spare_backends)}),
        own_field("POD_NAME", "metadata.name"),
        own_field("POD_NAMESPACE", "metadata.namespace"),
    ]


def _render(platform: PlatformSpec, image: str) -> Manifest:
    return container(
        "render",
        image,
        ["python", "-m", "controllers.gateway", "render"],
        env=_environment(platform),
        requests={"cpu": "40m", "memory": "96Mi"},
        limits={"cpu": "1", "memory": "256Mi"},
        mounts={_RUN: RUN_FOLDER, _TLS: TLS_FOLDER, _SCRATCH: "/tmp", API_ACCESS: API_ACCESS_PATH},
        read_only=[_TLS, API_ACCESS],
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _haproxy(image: str) -> Manifest:
    # SIGTERM ends HAProxy at once, SIGUSR1 lets it finish; when its master has left, this shell goes with it.
    leave = f"sleep {LEAVE_S}; kill -USR1 1; sleep {DRAIN_S}"
    listening = {"https": SETTINGS.https_port, "stats": SETTINGS.stats_port, "metrics": SETTINGS.exporter_port}
    return container(
        "haproxy",
        image,
        ["haproxy", "-W", "-db", "-f", f"{RUN_FOLDER}/haproxy.cfg", "-S", f"{RUN_FOLDER}/master.sock"],
        ports=_ports(listening),
        requests={"cpu": "60m", "memory": "128Mi"},
        limits={"cpu": "2", "memory": "1Gi"},
        mounts={_RUN: RUN_FOLDER, _TLS: TLS_FOLDER, _SCRATCH: "/tmp"},
        read_only=[_TLS],
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", leave]}}},
        startupProbe=probe("/healthz", "metrics", period_s=1, failures=60),
        readinessProbe=probe("/healthz", "metrics", period_s=2, failures=3),
        livenessProbe=probe("/healthz", "metrics", period_s=10, failures=6, timeout_s=5),
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _control(platform: PlatformSpec, image: str) -> Manifest:
    return container(
        "control",
        image,
        ["/bin/sh", "-c", restarting("python -m controllers.gateway serve")],
        env=_environment(platform),
        ports=_ports({"control": SETTINGS.control_port}),
        requests={"cpu": "40m", "memory": "96Mi"},
        limits={"cpu": "1", "memory": "512Mi"},
        mounts={_RUN: RUN_FOLDER, _TLS: TLS_FOLDER, _SCRATCH: "/tmp", API_ACCESS: API_ACCESS_PATH},
        read_only=[_TLS, API_ACCESS],
        startupProbe=probe("/healthz", "control", period_s=2, failures=60),
        livenessProbe=probe("/healthz", "control", period_s=10, failures=6, timeout_s=5),
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def restarting(command: str) -> str:
    """A shell script that starts `command` again, one second after it ends, until it is itself told to end.

    Told in the moment between the start and the assignment of `child`, it has nobody to tell yet: so it looks again.
    """
    return (
        "trap 'ending=1; kill -TERM \"$child\"' TERM INT; "
        f'while [ -z "$ending" ]; do {command} & child=$!; [ -z "$ending" ] || kill -TERM "$child"; '
        'wait "$child"; wait "$child"; '
        '[ -n "$ending" ] || sleep 1; done'
    )


def _ports(listening: dict[str, int]) -> list[Manifest]:
    return [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in listening.items()]
