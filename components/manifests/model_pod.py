"""Owns the pod template of a model: the init step that brings the model, the server, its probes.

Leaves to the runtime what the server does and to `controllers.rollout` the revision's label. One idea: the template
holds what a running process can't change and nothing else, for each change of it replaces every pod.
"""

from __future__ import annotations

from typing import Final

from components.manifests.objects import Manifest, container, pod_security, probe, scratch, variables
from components.manifests.pod import (
    FRONT_PYTHON,
    LEAVE_S,
    PORT,
    PROBE_MARGIN_S,
    amounts,
    arguments,
    environment,
    frame,
    load_s,
)
from components.manifests.served import ServedModel
from runtimes.selection import Choice, Runtime
from spec.endpoint import EndpointSpec
from spec.platform import Rollout
from spec.quantities import Cpu, Memory

MODEL_PYTHON: Final = "/opt/model/bin/python"
_MODEL, _SCRATCH, _SHARED = "model", "tmp", "shm"
_MODEL_FOLDER = "/model"
# Their processes hand requests to each other there, and a pod has 64 MiB by itself: four bodies of 16 MB.
_SHARES_MEMORY = (Runtime.VLLM, Runtime.TRITON)


def pod_template(spec: EndpointSpec, model: ServedModel, model_registry: str, rollout: Rollout) -> Manifest:
    """The whole template, without the label of the revision that it will make."""
    shared = [scratch(_SHARED, "1Gi", in_memory=True)] if model.choice.runtime in _SHARES_MEMORY else []
    return frame(
        spec,
        model.choice.gpus,
        model.nodes,
        securityContext=pod_security(),
        initContainers=[_fetch(model, model_registry)],
        containers=[_server(spec, model, load_s(rollout))],
        volumes=[scratch(_MODEL, _room(model)), scratch(_SCRATCH, "1Gi"), *shared],
    )


def _room(model: ServedModel) -> str:
    """20Gi, and more only for a model that may not fit: its files come, and are moved into place. Each node has all of
    them, and its memory is for a part."""
    most = max(20 * 1024**3, model.choice.memory_bytes * model.choice.nodes * 2)
    return str(Memory(most))


def _size(choice: Choice) -> Manifest:
    """The init step has the same, since a pod asks for the larger of the two."""
    return amounts(Cpu(choice.cpu_millicores), Memory(choice.memory_bytes), choice.gpus)


def _fetch(model: ServedModel, model_registry: str) -> Manifest:
    flags = {"--uri": model.uri, "--sha256": model.sha256, "--to": _MODEL_FOLDER}
    without_gpus = amounts(Cpu(model.choice.cpu_millicores), Memory(model.choice.memory_bytes))
    return container(
        "model",
        model.fetch_image,
        [MODEL_PYTHON, "-m", "runtimes.fetch"],
        args=arguments(flags),
        env=variables({"HOME": "/tmp", "MLFLOW_TRACKING_URI": model_registry}),
        mounts={_MODEL: _MODEL_FOLDER, _SCRATCH: "/tmp"},
        terminationMessagePolicy="FallbackToLogsOnError",
        **without_gpus,
    )


def _server(spec: EndpointSpec, model: ServedModel, most_s: int) -> Manifest:
    shared = {_SHARED: "/dev/shm"} if model.choice.runtime in _SHARES_MEMORY else {}
    return container(
        "server",
        model.image,
        _command(model.choice.runtime),
        args=arguments(_flags(spec, model, most_s)),
        env=environment({"HOME": "/tmp"}, spec),
        ports=[{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        mounts={_MODEL: _MODEL_FOLDER, _SCRATCH: "/tmp", **shared},
        read_only=[_MODEL],
        startupProbe=probe("/health", "http", period_s=1, failures=most_s + PROBE_MARGIN_S),
        readinessProbe=probe("/health", "http", period_s=1, failures=3),
        livenessProbe=probe("/live", "http", period_s=10, failures=6, timeout_s=5),
        lifecycle={"preStop": {"sleep": {"seconds": LEAVE_S}}},
        terminationMessagePolicy="FallbackToLogsOnError",
        **_size(model.choice),
    )


def _command(runtime: Runtime) -> list[str]:
    """Empty where the image's own entry point is the runtime."""
    return [FRONT_PYTHON, "-m", f"runtimes.{runtime}"] if runtime is Runtime.MLFLOW else []


def _flags(spec: EndpointSpec, model: ServedModel, most_s: int) -> dict[str, str]:
    choice = model.choice
    own: dict[Runtime, dict[str, str]] = {
        Runtime.MLFLOW: {
            "--model-python": MODEL_PYTHON,
            "--load-timeout-s": str(most_s),
            "--predictors": str(choice.predictors),
        },
        Runtime.VLLM: {
            "--max-num-seqs": str(choice.first_limit),
            "--tensor-parallel": str(max(choice.gpus, 1)),
            **({"--nodes": str(choice.nodes)} if choice.nodes > 1 else {}),
        },
        Runtime.TRITON: {"--model-python": MODEL_PYTHON, "--load-timeout-s": str(most_s)},
    }
    return {
        "--model": _MODEL_FOLDER,
        "--port": str(PORT),
        "--deadline-s": str(spec.deadline_s),
        "--name": spec.endpoint,
        "--version": model.version,
        **own[choice.runtime],
    }
