"""Owns what an endpoint file can say: `EndpointSpec`, its defaults and its rules.

Leaves rules over several files to `environment` and what is made of a spec to `components`. One idea: model and
concurrency are all that must be said; every other field has a default that can be defended in one line.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationInfo

from spec.fields import CpuField, EndpointName, MemoryField, ModelField, TeamList, TeamName, between
from spec.model_reference import ALLOWED as MODEL_FORMS
from spec.problems import SpecError
from spec.quantities import Cpu, Memory
from spec.reading import Allowed, SpecModel, read_model, refused
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
_NOT_YET: Final = {"image": "not yet: a container image of one's own can't be served so far; name a model"}


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


class Resources(SpecModel):
    """What one replica gets. A change makes a new revision."""

    cpu: Annotated[CpuField, between(*ENDPOINT_CPU)] = Cpu(500)
    memory: Annotated[MemoryField, between(*ENDPOINT_MEMORY)] = Memory(1024**3)

    @property
    def cpu_request(self) -> Cpu:
        """What a replica is sure to get of its CPU: 500m -> 100m, 20m -> 10m."""
        return max(CPU_REQUEST_LEAST, Cpu(self.cpu.millicores // CPU_REQUEST_SHARE))


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
    """One endpoint file, and the team that its folder names."""

    endpoint: EndpointName
    team: TeamName
    model: Annotated[ModelField, Allowed(MODEL_FORMS)]
    concurrency: Concurrency
    resources: Resources = Resources()
    access: Access = Access()
    deadline_s: int = Field(default=60, ge=1, le=297)
    queue: Queue = Queue()
    latency: Latency | None = None
    rollout: RolloutOverride = RolloutOverride()

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


def read_endpoint(text: str | bytes, file: str, team: str) -> tuple[EndpointSpec | None, Document]:
    """An endpoint file as a spec and the document it was read from; None where the document has problems."""
    document = read_yaml(text, file)
    _refuse_not_yet(document)
    spec = read_model(EndpointSpec, document, {"team": team})
    stem, stated = PurePosixPath(file).stem, _stated(document, "endpoint")
    if isinstance(stated, str) and stated != stem and not document.is_broken(("endpoint",)):
        document.report(("endpoint",), f"{stated!r} differs from the file's name {stem!r}: make them equal")
    return (None if document.problems else spec), document


def _stated(document: Document, field: str) -> Any:
    return document.value.get(field) if isinstance(document.value, dict) else None


def _refuse_not_yet(document: Document) -> None:
    for field, message in _NOT_YET.items():
        if _stated(document, field) is not None:
            document.report((field,), message, key=True)
            document.broken.update({(field,), ("model",)} if "model" not in document.value else {(field,)})


def load_endpoint(text: str | bytes, file: str, team: str) -> EndpointSpec:
    """Read an endpoint file of a team's folder; a SpecError holds every problem of it."""
    spec, document = read_endpoint(text, file, team)
    if spec is None:
        raise SpecError(document.problems)
    return spec
