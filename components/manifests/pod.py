"""Owns what the pods of models and of images of one's own share: their end, their spread, their size, their variables.

Leaves the containers to `model_pod` and `image_pod`. One idea: what a request relies on (the pause before the end, the
grace that covers the longest answer) is computed here once, whatever serves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from components.manifests.objects import Manifest
from spec import names
from spec.container import PROXY_PORT
from spec.endpoint import EndpointSpec, cpu_request
from spec.platform import Rollout
from spec.quantities import Cpu, Memory
from spec.variables import SecretKey

PORT: Final = 8080
GPU: Final = "nvidia.com/gpu"
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


def port_of(spec: EndpointSpec) -> int:
    """Where the gateway finds the interface. A container of one's own has its port, often 8080, in the same pod."""
    return PORT if spec.container is None else PROXY_PORT


def grace_s(spec: EndpointSpec, nodes: int = 1) -> int:
    """Seconds from a pod's deletion to its certain end: leave the balancer, finish the longest answer, tear down, and
    let a container of one's own end after that. Over several nodes each pod has time for the leader's end and its own:
    a worker that has to go stays until what it works for is answered."""
    own_s = 0 if spec.container is None else spec.container.stop_s
    return LEAVE_S + spec.deadline_s + TEARDOWN_S + own_s + (TEARDOWN_S if nodes > 1 else 0)


def load_s(rollout: Rollout) -> int:
    """Longest that a model may load: 600, and 900 where a new revision may take 900 to start."""
    return max(LOAD_LEAST_S, rollout.start_timeout_s)


def frame(spec: EndpointSpec, gpus: int, nodes: int = 1, **content: Any) -> Manifest:
    """A pod template around containers and volumes, without the label of the revision that it will make. Over several
    `nodes` it is that of each pod of a replica, the one that leads and those that work for it."""
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {names.LABEL_ENDPOINT: spec.endpoint}},
    }
    pod = {
        "serviceAccountName": spec.endpoint,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(spec, nodes),
        "topologySpreadConstraints": [apart],
        **_placed(spec, gpus),
        **content,
    }
    return {"metadata": {"labels": names.endpoint_labels(spec.endpoint, spec.team)}, "spec": pod}


def _placed(spec: EndpointSpec, gpus: int) -> Manifest:
    """On which nodes: those whose labels the file names; nodes with GPUs are often closed to what asks for none."""
    nodes: Manifest = spec.accelerator.nodes if spec.accelerator is not None else {}
    placed: Manifest = {"nodeSelector": dict(nodes)} if nodes else {}
    if gpus:
        placed["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    return placed


def amounts(cpu: Cpu, memory: Memory, gpus: int = 0) -> Manifest:
    """`requests` and `limits`: a share of the CPU is asked for, memory and GPUs are asked for whole."""
    devices = {GPU: str(gpus)} if gpus else {}
    return {
        "requests": {"cpu": str(cpu_request(cpu)), "memory": str(memory), **devices},
        "limits": {"cpu": str(cpu), "memory": str(memory), **devices},
    }


def environment(own: Mapping[str, str], spec: EndpointSpec) -> list[Manifest]:
    """Variables of ours, and over them those of the file: a secret's by its place, never by its value."""
    values: dict[str, str | SecretKey] = {**own, **spec.env}
    return [{"name": name, **_value(value)} for name, value in values.items()]


def _value(value: str | SecretKey) -> Manifest:
    if isinstance(value, str):
        return {"value": value}
    return {"valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}


def arguments(flags: Mapping[str, str | Sequence[str]]) -> list[str]:
    """A command line of flags; one with several values stands several times."""
    pairs = [(flag, [value] if isinstance(value, str) else value) for flag, value in flags.items()]
    return [word for flag, values in pairs for value in values for word in (flag, value)]
