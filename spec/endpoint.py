"""Owns what an endpoint file can say: `EndpointSpec`, its defaults and its rules.

Leaves rules over several files to `environment`, what the model needs to `runtimes.selection` and what is made of a
spec to `components`. One idea: a model (or an image) and concurrency are all that must be said; every other field has
a default that can be defended in one line, and a field that is not stated says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from spec.container import (
    CONTAINER_FORMS,
    IMAGE_PARALLELISM,
    PREDICTS,
    PROXY_CPU_REQUEST,
    PROXY_MEMORY,
    Container,
)
from spec.fields import (
    EGRESS_FORMS,
    CpuField,
    EgressList,
    EndpointName,
    ImageField,
    Labels,
    MemoryField,
    ModelField,
    TeamList,
    TeamName,
    between,
)
from spec.image_reference import ALLOWED as IMAGE_FORMS
from spec.model_reference import ALLOWED as MODEL_FORMS
from spec.problems import SpecError
from spec.quantities import Cpu, Memory
from spec.reading import Allowed, SpecModel, echo, read_model, refused
from spec.sizing import INITIAL_LIMIT
from spec.variables import OURS, Variables
from spec.yaml_text import Document, read_yaml

MAX_CONCURRENCY: Final = 100_000
CONCURRENCY_RANGE: Final = f"1 to {MAX_CONCURRENCY}"
QUEUE_AT_LEAST: Final = 8
ENDPOINT_CPU: Final = (Cpu(10), Cpu(256_000))
ENDPOINT_MEMORY: Final = (Memory(64 * 1024**2), Memory(16 * 1024**4))
# A pod asks for a fifth of the CPU that it may use: most models wait for requests most of the time, and the
# autoscaler adds replicas where they don't. Memory has no such slack, so it is asked for whole.
CPU_REQUEST_SHARE: Final = 5
CPU_REQUEST_LEAST: Final = Cpu(10)
CPU_DEFAULT: Final = Cpu(500)
MEMORY_DEFAULT: Final = Memory(1024**3)
# A pod's own ceiling lies above any limit; this is the highest first one.
PARALLELISM_MOST: Final = 1_000
GPU_MEMORY: Final = (Memory(4 * 1024**3), Memory(1024**4))
NODES_MOST: Final = 16


def _check_min(value: int) -> int:
    if value == 0:
        raise refused("0 is not yet possible: scaling to zero comes later", CONCURRENCY_RANGE)
    return value


def _check_max(value: int, info: ValidationInfo) -> int:
    if value < info.data.get("min", 0):
        raise refused(f"{value} is below min {info.data['min']}")
    return value


class Concurrency(SpecModel):
    """Requests in flight: `min` is always ready, more than `max` is never let in."""

    min: Annotated[int, AfterValidator(_check_min), Allowed(CONCURRENCY_RANGE)] = Field(ge=0, le=MAX_CONCURRENCY)
    max: Annotated[int, AfterValidator(_check_max)] = Field(ge=1, le=MAX_CONCURRENCY)


def _count_of_nodes(value: Any) -> Any:
    if isinstance(value, Mapping):
        told = f"{echo(value)} is no number: labels of the nodes that it runs on are accelerator.nodes"
        raise refused(told, f"1 to {NODES_MOST}")
    return value


def _labels_of_nodes(value: Any) -> Any:
    if isinstance(value, int):
        told = f"{echo(value)} is no label: how many nodes a replica spans is resources.nodes"
        raise refused(told, "<domain>/<name>: <value>")
    return value


class Resources(SpecModel):
    """What one replica gets; None means what the model asks for. A change makes a new revision.

    Over several `nodes` it is a pod on each of them, and CPU, memory and GPUs are those of one such pod."""

    cpu: Annotated[CpuField, between(*ENDPOINT_CPU)] | None = None
    memory: Annotated[MemoryField, between(*ENDPOINT_MEMORY)] | None = None
    nodes: Annotated[int | None, BeforeValidator(_count_of_nodes)] = Field(default=None, ge=1, le=NODES_MOST)


class Accelerator(SpecModel):
    """GPUs of one replica (of its pod on each node, where it spans several), as many as the model needs for None, and
    labels of the nodes that it runs on."""

    gpus: int | None = Field(default=None, ge=0, le=8)
    gpu_memory: Annotated[MemoryField, between(*GPU_MEMORY)] | None = None
    nodes: Annotated[Labels, BeforeValidator(_labels_of_nodes)] = Field(default_factory=dict)


def cpu_request(cpu: Cpu) -> Cpu:
    """What a replica is sure to get of its CPU: 500m -> 100m, 20m -> 10m."""
    return max(CPU_REQUEST_LEAST, Cpu(cpu.millicores // CPU_REQUEST_SHARE))


class Access(SpecModel):
    """Teams besides the own one whose keys may call."""

    teams: TeamList = ()


class Queue(SpecModel):
    """Requests that wait at the gateway; `max` None means as many as may be in flight, at least eight."""

    max: int | None = Field(default=None, ge=1, le=MAX_CONCURRENCY)
    timeout_s: float = Field(default=5.0, ge=0.1, le=60)


class Latency(SpecModel):
    """What 95 of 100 requests shall take at a replica; without it the learnt limit keeps near what a lone one takes."""

    p95_ms: int = Field(ge=1, le=297_000)


class RolloutOverride(SpecModel):
    """Rollout settings of one endpoint; None means the platform's."""

    hold_s: int | None = Field(default=None, ge=0, le=86_400)
    start_timeout_s: int | None = Field(default=None, ge=10, le=7_200)


class EndpointSpec(SpecModel):
    """One endpoint file, and the team that its folder names. It states `model`, or `image` and `container`.

    With `affinity` prefix, prompts that begin alike prefer one replica; None means where the model gains by it.
    `egress` is what its pods may reach besides names and the model registry.
    """

    endpoint: EndpointName
    team: TeamName
    model: Annotated[ModelField, Allowed(MODEL_FORMS)] | None = None
    image: Annotated[ImageField, Allowed(IMAGE_FORMS)] | None = None
    container: Annotated[Container, Allowed(CONTAINER_FORMS)] | None = None
    concurrency: Concurrency
    resources: Resources = Resources()
    runtime: Literal["mlflow", "vllm", "triton"] | None = None
    accelerator: Accelerator | None = None
    parallelism: int | None = Field(default=None, ge=1, le=PARALLELISM_MOST)
    env: Variables = Field(default_factory=dict)
    egress: Annotated[EgressList, Allowed(f"[address, ...], each {EGRESS_FORMS}")] = ()
    access: Access = Access()
    deadline_s: int = Field(default=60, ge=1, le=297)
    queue: Queue = Queue()
    latency: Latency | None = None
    affinity: Literal["prefix", "none"] | None = None
    rollout: RolloutOverride = RolloutOverride()

    @model_validator(mode="after")
    def _check(self) -> EndpointSpec:
        stated = {name: getattr(self, name) for name in self.model_fields_set if getattr(self, name) is not None}
        for field, message, allowed in source_problems(stated):
            raise refused(message, allowed, field)
        return self

    @property
    def first_limit(self) -> int:
        """Requests in flight that one replica is first given, as far as the file tells; the model may say another."""
        return self.parallelism or (INITIAL_LIMIT if self.image is None else IMAGE_PARALLELISM)

    @property
    def pods_each(self) -> int:
        """Pods of one replica, as far as the file tells; the model may need more."""
        return self.resources.nodes or 1

    @property
    def least(self) -> tuple[Cpu, Memory]:
        """What one pod asks for at least, as far as the file tells: what is stated or a small model's, and the
        interface's own beside an image."""
        cpu, memory = cpu_request(self.resources.cpu or CPU_DEFAULT), self.resources.memory or MEMORY_DEFAULT
        if self.image is None:
            return cpu, memory
        return Cpu(cpu.millicores + PROXY_CPU_REQUEST.millicores), Memory(memory.bytes + PROXY_MEMORY.bytes)

    @property
    def asked_at(self) -> str:
        """The path below the endpoint's own that takes a prediction."""
        return PREDICTS["mlflow"] if self.container is None else self.container.asked_at(self.endpoint)

    @property
    def queue_max(self) -> int:
        """Most requests that wait: default as many as may be in flight, so that one full load can queue."""
        return max(QUEUE_AT_LEAST, self.concurrency.max) if self.queue.max is None else self.queue.max

    @property
    def allowed_teams(self) -> tuple[str, ...]:
        """All teams whose keys may call, the own one included, sorted."""
        return tuple(sorted({self.team, *self.access.teams}))

    @property
    def deadline_ms(self) -> int:
        return self.deadline_s * 1000

    @property
    def queue_timeout_ms(self) -> int:
        return round(self.queue.timeout_s * 1000)


def source_problems(stated: Mapping[str, Any]) -> Iterator[tuple[str, str, str | None]]:
    """(field, problem, what is allowed) for what a file serves: a model, or an image and its container."""
    model, image, container = ("model" in stated, "image" in stated, "container" in stated)
    if not model and not image:
        yield "model", "is missing, and no image is named instead", MODEL_FORMS
    if model and image:
        yield "image", "stands beside a model: an endpoint serves one of the two", None
    if image and not model and not container:
        yield "container", "is missing: say how the image is asked", CONTAINER_FORMS
    if container and model and not image:
        yield "container", "is for an image of one's own: a model has a container of ours", None
    if "runtime" in stated and image and not model:
        yield "runtime", "is for a model: an image brings its own", None
    one_node = (image and not model) or stated.get("runtime") in ("mlflow", "triton")
    if one_node and _nodes(stated.get("resources")) > 1:
        yield "resources.nodes", "only text that vLLM generates is split over nodes: write 1; load adds replicas", None
    for name in sorted(OURS & _names(stated.get("env"))) if model else ():
        yield f"env.{name}", "is set by the image of the model: it can't be another", None


def _nodes(resources: Any) -> int:
    nodes = resources.get("nodes") if isinstance(resources, Mapping) else getattr(resources, "nodes", None)
    return nodes if isinstance(nodes, int) else 1


def _names(variables: Any) -> set[str]:
    return {name for name in variables if isinstance(name, str)} if isinstance(variables, Mapping) else set()


def read_endpoint(text: str | bytes, file: str, team: str) -> tuple[EndpointSpec | None, Document]:
    """An endpoint file as a spec and the document it was read from; None where the document has problems."""
    document = read_yaml(text, file)
    spec = read_model(EndpointSpec, document, {"team": team})
    if isinstance(document.value, dict) and not document.is_broken(()):
        _check_across(document, document.value, PurePosixPath(file).stem)
    return (None if document.problems else spec), document


def _check_across(document: Document, stated: Mapping[str, Any], stem: str) -> None:
    """Rules over several fields, told beside the problems of single ones."""
    endpoint = stated.get("endpoint")
    if isinstance(endpoint, str) and endpoint != stem and not document.is_broken(("endpoint",)):
        document.report(("endpoint",), f"{endpoint!r} differs from the file's name {stem!r}: make them equal")
    told = {problem.message for problem in document.problems}
    for field, message, allowed in source_problems(stated):
        path = tuple(field.split("."))
        if message not in told and not document.is_broken(path):
            document.report(path, message, allowed, key=path in document.keys)


def load_endpoint(text: str | bytes, file: str, team: str) -> EndpointSpec:
    """Read an endpoint file of a team's folder; a SpecError holds every problem of it."""
    spec, document = read_endpoint(text, file, team)
    if spec is None:
        raise SpecError(document.problems)
    return spec
