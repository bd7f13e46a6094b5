"""Owns the objects of LeaderWorkerSet's controller on the embedded cluster: its pod, webhooks, settings, rights, doors.

Leaves its kinds and its certificate to `knobless up`, and what it does to LeaderWorkerSet itself. One idea: it is as
little trusted as our own controllers. It may read everywhere and write only in the namespaces of teams, and it knows no
key but its own, since its certificate comes from the local CA and not from rights to write Secrets and webhooks.
"""

from __future__ import annotations

import base64
from typing import Final

from components.manifests.access import cluster_role, granted_everywhere, granted_in, right
from components.manifests.objects import (
    ANNOTATION_SETTINGS,
    API_ACCESS,
    API_ACCESS_PATH,
    SKIP_AWAIT,
    Manifest,
    container,
    controller_pod,
    manifest,
    one_at_a_time,
    probe,
    service_account,
)
from components.manifests.team import team_labels
from components.manifests.traffic import network_policy, ports
from controllers.kube.resources import LEADER_WORKER_SETS
from spec import names
from spec.revision import canonical_json, sha256_hex

NAME: Final = "leaderworkerset"
PLACE: Final = names.SYSTEM_NAMESPACE
LABELS: Final = names.managed_labels(NAME)
SELECTOR: Final = {names.LABEL_COMPONENT: NAME}
GROUP: Final = LEADER_WORKER_SETS.group
LABEL_SET: Final = "leaderworkerset.sigs.k8s.io/name"  # on every pod of a group, and on no other
SECRET_TLS: Final = "leaderworkerset-tls"
HOST: Final = f"{NAME}.{PLACE}.svc"  # what its certificate is for
ROLE: Final = "knobless-leaderworkerset"
ROLE_IN_TEAM: Final = "knobless-leaderworkerset-team"
_WEBHOOK_PORT, _HEALTH_PORT = 9443, 8081
_PODS_PATH: Final = "/mutate--v1-pod"
_SETS_PATH: Final = f"/mutate-{GROUP.replace('.', '-')}-v1-leaderworkerset"
_SETTINGS, _SETTINGS_FOLDER, _SETTINGS_FILE = "settings", "/etc/leaderworkerset/settings", "settings.yaml"
_TLS, _TLS_FOLDER = "tls", "/etc/leaderworkerset/tls"
# One process, and never a second beside it: nothing has to be elected. Nobody reads its metrics.
_TOLD: Final = {
    "apiVersion": "config.lws.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": f":{_HEALTH_PORT}"},
    "internalCertManagement": {"enable": False},
    "leaderElection": {"leaderElect": False},
    "metrics": {"bindAddress": "0"},
    "webhook": {"certDir": _TLS_FOLDER, "port": _WEBHOOK_PORT},
}


def account() -> Manifest:
    return service_account(NAME, PLACE, LABELS)


def rights() -> list[Manifest]:
    """Who may do what; writing is granted in each team's namespace, by `writ`."""
    reading = [
        right(GROUP, "leaderworkersets", "get list watch"),
        right("disaggregatedset.x-k8s.io", "disaggregatedsets", "get list watch"),
        right("apps", "controllerrevisions statefulsets", "get list watch"),
        right("", "pods services", "get list watch"),
    ]
    writing = [
        right(GROUP, "leaderworkersets/status", "patch update"),
        right("apps", "controllerrevisions", "create delete"),
        right("apps", "statefulsets", "create patch"),
        right("", "pods", "delete"),
        right("", "services", "create"),
        right("events.k8s.io", "events", "create patch"),
    ]
    return [
        cluster_role(ROLE, LABELS, reading),
        granted_everywhere(ROLE, account()),
        cluster_role(ROLE_IN_TEAM, LABELS, writing),
    ]


def writ(team: str) -> Manifest:
    """Lets the controller make what groups are made of, in this namespace."""
    return granted_in(names.team_namespace(team), "ClusterRole", ROLE_IN_TEAM, account(), team_labels(team))


def settings() -> Manifest:
    data = {_SETTINGS_FILE: canonical_json(_TOLD).decode()}
    return manifest("v1", "ConfigMap", NAME, namespace=PLACE, labels=LABELS, data=data)


def service() -> Manifest:
    """Where the API server asks its webhooks."""
    entry = {"name": "webhooks", "protocol": "TCP", "port": 443, "targetPort": "webhooks"}
    spec = {"selector": SELECTOR, "ports": [entry]}
    return manifest("v1", "Service", NAME, namespace=PLACE, labels=LABELS, annotations=SKIP_AWAIT, spec=spec)


def doors() -> Manifest:
    """In: the API server, which is no pod. Out: the API server."""
    return network_policy(NAME, PLACE, LABELS, SELECTOR, ingress=[{"ports": ports(_WEBHOOK_PORT)}])


def disruption_budget() -> Manifest:
    return one_at_a_time(NAME, PLACE, LABELS, SELECTOR)


def webhooks(authority_pem: bytes) -> list[Manifest]:
    """What the API server asks before it takes a set, or a pod of one: no other pod waits for the controller.

    Each pod is told its place in its group here, so none is made while the controller does not answer.
    """
    sets = {"apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["leaderworkersets"]}
    written = ["CREATE", "UPDATE"]
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    of_groups = {"matchExpressions": [{"key": LABEL_SET, "operator": "Exists"}]}
    mutating = [
        _webhook("sets", _SETS_PATH, sets | {"operations": written}, authority_pem),
        _webhook("pods", _PODS_PATH, pods, authority_pem) | {"objectSelector": of_groups},
    ]
    checked = _SETS_PATH.replace("mutate", "validate")
    validating = [_webhook("sets", checked, sets | {"operations": written}, authority_pem)]
    return [
        manifest("admissionregistration.k8s.io/v1", kind, ROLE, labels=LABELS, webhooks=entries)
        for kind, entries in (
            ("MutatingWebhookConfiguration", mutating),
            ("ValidatingWebhookConfiguration", validating),
        )
    ]


def _webhook(name: str, path: str, rule: Manifest, authority_pem: bytes) -> Manifest:
    return {
        "name": f"{name}.{NAME}.{names.GROUP}",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "caBundle": base64.b64encode(authority_pem).decode(),
            "service": {"namespace": PLACE, "name": NAME, "path": path, "port": 443},
        },
        "failurePolicy": "Fail",
        "rules": [rule],
        "sideEffects": "None",
    }


def deployment(image: str) -> Manifest:
    """One process; a new one starts when the old one has ended, since two would both act."""
    template = {
        "metadata": {"labels": LABELS, "annotations": {ANNOTATION_SETTINGS: sha256_hex(_TOLD)}},
        "spec": _pod(image),
    }
    spec: Manifest = {
        "selector": {"matchLabels": SELECTOR},
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 2,
        "template": template,
    }
    return manifest("apps/v1", "Deployment", NAME, namespace=PLACE, labels=LABELS, spec=spec)


def _pod(image: str) -> Manifest:
    volumes: list[Manifest] = [
        {"name": _SETTINGS, "configMap": {"name": NAME}},
        {"name": _TLS, "secret": {"secretName": SECRET_TLS, "defaultMode": 0o440}},
    ]
    return controller_pod(NAME, _container(image), volumes)


def _container(image: str) -> Manifest:
    # Asked without a review a webhook answers 200, with a line in its log, and before it is there 404.
    started = probe(_PODS_PATH, "webhooks", period_s=1, failures=60)
    started["httpGet"]["scheme"] = "HTTPS"
    return container(
        NAME,
        image,
        [f"/{NAME}"],
        args=["--config", f"{_SETTINGS_FOLDER}/{_SETTINGS_FILE}", "--zap-devel=false"],
        ports=[
            {"name": "webhooks", "containerPort": _WEBHOOK_PORT, "protocol": "TCP"},
            {"name": names.PORT_HEALTH, "containerPort": _HEALTH_PORT, "protocol": "TCP"},
        ],
        requests={"cpu": "20m", "memory": "64Mi"},
        limits={"cpu": "1", "memory": "512Mi"},
        mounts={API_ACCESS: API_ACCESS_PATH, _SETTINGS: _SETTINGS_FOLDER, _TLS: _TLS_FOLDER},
        read_only=[API_ACCESS, _SETTINGS, _TLS],
        startupProbe=started,
        readinessProbe=probe("/readyz", names.PORT_HEALTH, period_s=5, failures=3),
        livenessProbe=probe("/healthz", names.PORT_HEALTH, period_s=10, failures=6, timeout_s=5),
        terminationMessagePolicy="FallbackToLogsOnError",
    )
