"""Owns the objects of the rollout and autoscaling controllers: pod, settings, rights, doors.

Leaves to the controllers what they do. One idea: they may read what they watch everywhere and write only in the
namespaces of teams (bound there by `team`), so a fault in them can't reach the platform or a stranger.
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
    ANNOTATION_SETTINGS,
    API_ACCESS,
    API_ACCESS_PATH,
    SKIP_AWAIT,
    Manifest,
    container,
    controller_pod,
    manifest,
    one_at_a_time,
    own_field,
    probe,
    scratch,
    service_account,
)
from components.manifests.team import ROLE_CONTROLLERS_IN_TEAM
from components.manifests.traffic import network_policy, ports
from controllers.autoscaler.journal import BYTES_MAX, FILES, FOLDER
from controllers.kube.resources import LEADER_WORKER_SETS
from spec import names
from spec.platform import PlatformSpec
from spec.revision import canonical_json, sha256_hex

NAME = names.COMPONENT_CONTROLLERS
PLACE = names.SYSTEM_NAMESPACE
LABELS = names.managed_labels(NAME)
HEALTH_PORT = 8407
SETTINGS_FOLDER = "/etc/knobless"
_SETTINGS_VOLUME = "settings"
_SCRATCH_VOLUME = "tmp"
_RECORDS_VOLUME = "records"
ROLE = "knobless-controllers"


def account(pull_secrets: Sequence[str] = ()) -> Manifest:
    return service_account(NAME, PLACE, LABELS, pull_secrets)


def rights() -> list[Manifest]:
    """Who may do what; writing in a team's namespace is granted there, by `team.controllers_writ`."""
    reading = [
        right(names.GROUP, names.PLURAL, "get list watch"),
        right("apps", "deployments", "get list watch"),
        right(LEADER_WORKER_SETS.group, LEADER_WORKER_SETS.plural, "get list watch"),
        right("", "services pods resourcequotas", "get list watch"),
    ]
    writing = [
        right(names.GROUP, f"{names.PLURAL}/status", "patch"),
        right(names.GROUP, f"{names.PLURAL}/finalizers", "update"),
        right("apps", "deployments", "create patch delete"),
        right("apps", "deployments/scale", "get patch"),
        right(LEADER_WORKER_SETS.group, LEADER_WORKER_SETS.plural, "create patch delete"),
        right("", "services", "create patch delete"),
        right("", "events", "create patch"),
    ]
    # A name can't restrict `create`: the object is not there yet.
    leading = [
        right("coordination.k8s.io", "leases", "get update", only=[names.LEASE_CONTROLLERS]),
        right("coordination.k8s.io", "leases", "create"),
    ]
    # Nor can it restrict `list`: in this namespace no ConfigMap holds a secret.
    keeping = [
        right(
            "", "configmaps", "patch", only=[names.checkpoint_object(number) for number in range(names.CHECKPOINTS_MAX)]
        ),
        right("", "configmaps", "create list"),
    ]
    return [
        cluster_role(ROLE, LABELS, reading),
        granted_everywhere(ROLE, account()),
        cluster_role(ROLE_CONTROLLERS_IN_TEAM, LABELS, writing),
        role(ROLE, PLACE, LABELS, [*leading, *keeping]),
        granted_in(PLACE, "Role", ROLE, account(), LABELS),
    ]


def settings(platform: PlatformSpec, prometheus: str | None = None) -> Manifest:
    """What the controllers are told about this environment; `prometheus` is an address, where there is one."""
    return manifest(
        "v1",
        "ConfigMap",
        names.CONFIG_MAP_PLATFORM_SETTINGS,
        namespace=PLACE,
        labels=LABELS,
        data={names.PLATFORM_SETTINGS_KEY: canonical_json(told(platform, prometheus)).decode()},
    )


def told(platform: PlatformSpec, prometheus: str | None) -> Manifest:
    """The part of the platform's file that the controllers read, and the cluster's Prometheus."""
    return {
        "autoscaler": platform.autoscaler.model_dump(mode="json"),
        "rollout": platform.rollout.model_dump(mode="json"),
        **({"prometheus": {"url": prometheus}} if prometheus is not None else {}),
    }


def metrics_service() -> Manifest:
    """A name under which the leading or standing process tells its numbers and which pods have some."""
    entry = {"name": names.PORT_HEALTH, "protocol": "TCP", "port": HEALTH_PORT, "targetPort": names.PORT_HEALTH}
    return manifest(
        "v1",
        "Service",
        NAME,
        namespace=PLACE,
        labels=LABELS,
        annotations=SKIP_AWAIT,
        spec={"clusterIP": "None", "selector": {names.LABEL_COMPONENT: NAME}, "ports": [entry]},
    )


def deployment(platform: PlatformSpec, image: str, prometheus: str | None = None) -> Manifest:
    """One process that leads and, on a cluster with more than one node, one that stands by.

    No replicas are stated where one is meant: it is the API's own default.
    """
    selector = {names.LABEL_COMPONENT: NAME}
    template = {
        # The process reads its settings once: other settings, other pod.
        "metadata": {"labels": LABELS, "annotations": {ANNOTATION_SETTINGS: sha256_hex(told(platform, prometheus))}},
        "spec": _pod(image),
    }
    spec: Manifest = {
        "selector": {"matchLabels": selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "revisionHistoryLimit": 2,
        "template": template,
    }
    if platform.context is not None:
        spec["replicas"] = 2
    return manifest("apps/v1", "Deployment", NAME, namespace=PLACE, labels=LABELS, spec=spec)


def doors() -> Manifest:
    """In: scrapers and probes of the health port. Out: the API server and the gateways' counters, unlisted."""
    return network_policy(NAME, PLACE, LABELS, {names.LABEL_COMPONENT: NAME}, ingress=[{"ports": ports(HEALTH_PORT)}])


def disruption_budget() -> Manifest:
    return one_at_a_time(NAME, PLACE, LABELS, {names.LABEL_COMPONENT: NAME})


def _pod(image: str) -> Manifest:
    volumes: list[Manifest] = [
        {"name": _SETTINGS_VOLUME, "configMap": {"name": names.CONFIG_MAP_PLATFORM_SETTINGS}},
        scratch(_SCRATCH_VOLUME, "64Mi"),
        scratch(_RECORDS_VOLUME, f"{(FILES + 1) * BYTES_MAX // 2**20}Mi"),
    ]
    return controller_pod(NAME, _container(image), volumes)


def _container(image: str) -> Manifest:
    return container(
        NAME,
        image,
        ["python", "-m", "controllers", "run"],
        args=["--settings", f"{SETTINGS_FOLDER}/{names.PLATFORM_SETTINGS_KEY}", "--records", str(FOLDER)],
        env=[own_field("POD_NAME", "metadata.name"), own_field("POD_NAMESPACE", "metadata.namespace")],
        ports=[{"name": names.PORT_HEALTH, "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        requests={"cpu": "100m", "memory": "128Mi"},
        limits={"cpu": "1", "memory": "512Mi"},
        mounts={
            API_ACCESS: API_ACCESS_PATH,
            _SETTINGS_VOLUME: SETTINGS_FOLDER,
            _SCRATCH_VOLUME: "/tmp",
            _RECORDS_VOLUME: str(FOLDER),
        },
        read_only=[API_ACCESS, _SETTINGS_VOLUME],
        startupProbe=probe("/healthz", "health", period_s=1, failures=60),
        readinessProbe=probe("/healthz", "health", period_s=5, failures=3),
        livenessProbe=probe("/healthz", "health", period_s=10, failures=6, timeout_s=5),
        terminationMessagePolicy="FallbackToLogsOnError",
    )
