"""Owns the pod template of a model: the init step that brings the model, the server, its probes and its end.

Leaves to the runtime what the server does and to `controllers.rollout` the revision's label. One idea: the template
holds what a running process can't change and nothing else, for each change of it replaces every pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from components.manifests.objects import Manifest, container, pod_security, probe, scratch, variables
from spec import names
from spec.endpoint import EndpointSpec
from spec.platform import Rollout
from spec.quantities import Cpu

RUNTIME: Final = "mlflow"
PORT: Final = 8080
# Between "out of the balancer" and SIGTERM; longer than the gateway's control plane takes to come back.
LEAVE_S: Final = 15
# After the last answer: predictors end, telemetry is written.
TEARDOWN_S: Final = 15
# How long a model may load before its pod tries again. Not less than this, so that the rollout's patience, which a
# running endpoint may change, enters the template only where a model needs more than the usual.
LOAD_LEAST_S: Final = 600
# The runtime notices a load that is too long itself and says so; the probe comes after it.
PROBE_MARGIN_S: Final = 60
FRONT_PYTHON: Final = "/opt/front/bin/python"
MODEL_PYTHON: Final = "/opt/model/bin/python"
_MODEL, _SCRATCH = "model", "tmp"
_MODEL_FOLDER = "/model"


@dataclass(frozen=True)
class ServedModel:
    """One model, found in its registry, and the image (`<registry>/<repository>@sha256:...`) that can load it."""

    uri: str
    version: str
    sha256: str
    image: str


def grace_s(spec: EndpointSpec) -> int:
    """Seconds from a pod's deletion to its certain end: leave the balancer, finish the longest answer, tear down."""
    return LEAVE_S + spec.deadline_s + TEARDOWN_S


def predictors(cpu: Cpu) -> int:
    """One predicting process a core, rounded up: 500m -> 1, 1500m -> 2."""
    return -(-cpu.millicores // 1000)


def load_s(rollout: Rollout) -> int:
    """Longest that a model may load: 600, and 900 where a new revision may take 900 to start."""
    return max(LOAD_LEAST_S, rollout.start_timeout_s)


def pod_template(spec: EndpointSpec, model: ServedModel, model_registry: str, rollout: Rollout) -> Manifest:
    """The whole template, without the label of the revision that it will make."""
    labels = names.endpoint_labels(spec.endpoint, spec.team)
    return {"metadata": {"labels": labels}, "spec": _pod(spec, model, model_registry, load_s(rollout))}


def _pod(spec: EndpointSpec, model: ServedModel, model_registry: str, most_s: int) -> Manifest:
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {names.LABEL_ENDPOINT: spec.endpoint}},
    }
    return {
        "serviceAccountName": spec.endpoint,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": grace_s(spec),
        "topologySpreadConstraints": [apart],
        "initContainers": [_fetch(spec, model, model_registry)],
        "containers": [_server(spec, model, most_s)],
        "volumes": [scratch(_MODEL, "20Gi"), scratch(_SCRATCH, "1Gi")],
    }


def _resources(spec: EndpointSpec) -> tuple[dict[str, str], dict[str, str]]:
    """Requests and limits of one replica; the init step has the same, since a pod asks for the larger of the two."""
    given = spec.resources
    memory = str(given.memory)
    return {"cpu": str(given.cpu_request), "memory": memory}, {"cpu": str(given.cpu), "memory": memory}


def _fetch(spec: EndpointSpec, model: ServedModel, model_registry: str) -> Manifest:
    requests, limits = _resources(spec)
    flags = {"--uri": model.uri, "--sha256": model.sha256, "--to": _MODEL_FOLDER}
    return container(
        "model",
        model.image,
        [MODEL_PYTHON, "-m", "runtimes.fetch"],
        args=_arguments(flags),
        env=variables({"HOME": "/tmp", "MLFLOW_TRACKING_URI": model_registry}),
        requests=requests,
        limits=limits,
        mounts={_MODEL: _MODEL_FOLDER, _SCRATCH: "/tmp"},
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _server(spec: EndpointSpec, model: ServedModel, most_s: int) -> Manifest:
    requests, limits = _resources(spec)
    flags = {
        "--model": _MODEL_FOLDER,
        "--model-python": MODEL_PYTHON,
        "--port": str(PORT),
        "--deadline-s": str(spec.deadline_s),
        "--load-timeout-s": str(most_s),
        "--predictors": str(predictors(spec.resources.cpu)),
        "--name": spec.endpoint,
        "--version": model.version,
    }
    return container(
        "server",
        model.image,
        [FRONT_PYTHON, "-m", f"runtimes.{RUNTIME}"],
        args=_arguments(flags),
        env=variables({"HOME": "/tmp"}),
        ports=[{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        requests=requests,
        limits=limits,
        mounts={_MODEL: _MODEL_FOLDER, _SCRATCH: "/tmp"},
        read_only=[_MODEL],
        startupProbe=probe("/health", "http", period_s=1, failures=most_s + PROBE_MARGIN_S),
        readinessProbe=probe("/health", "http", period_s=1, failures=3),
        livenessProbe=probe("/live", "http", period_s=10, failures=6, timeout_s=5),
        lifecycle={"preStop": {"sleep": {"seconds": LEAVE_S}}},
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _arguments(flags: dict[str, str]) -> list[str]:
    return [word for flag in flags.items() for word in flag]
