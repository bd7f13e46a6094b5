"""Owns what `platform.yaml` can say: `PlatformSpec`, its defaults and its rules.

Leaves rules over several files to `environment` and what is made of a spec to `components`. One idea: on the
embedded cluster everything has a default; on a cluster of one's own, one error names all that only its owner knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, model_validator

from spec.fields import CpuField, EnvironmentName, MemoryField, SecretList, TeamName
from spec.problems import SpecError
from spec.reading import Allowed, SpecModel, read_model, refused
from spec.yaml_text import Document, read_yaml

EMBEDDED: Final = "embedded"
CLUSTER_FORMS: Final = "embedded, {context: <name in the kubeconfig>}"
PLAIN_HTTP: Final = "http://"
REGISTRY_FORMS: Final = "host, host:port, host:port/path, all without https://; http://host:port where it has no TLS"
NODE_PORT_FORMS: Final = "a port of the cluster's range for NodePorts, 30000 to 32767 on most"
_REGISTRY = re.compile(r"(?=.{1,255}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?(?:/[a-z0-9._/-]+)?")
_OWNERS_FIELDS: Final = ("registry", "model_registry", "gateway.expose")


class ContextCluster(SpecModel):
    """A cluster that exists already, named by a context of the user's kubeconfig."""

    context: str = Field(min_length=1, max_length=253)


def _cluster_tag(value: Any) -> str | None:
    if value == EMBEDDED:
        return "<embedded>"
    return "<context>" if isinstance(value, Mapping | ContextCluster) else None


Cluster = Annotated[
    Annotated[Literal["embedded"], Tag("<embedded>")] | Annotated[ContextCluster, Tag("<context>")],
    Discriminator(_cluster_tag),
]


def _check_registry(text: str) -> str:
    if not _REGISTRY.fullmatch(text.removeprefix(PLAIN_HTTP)):
        raise refused(f"{text!r} is no registry", REGISTRY_FORMS)
    return text


def _check_url(text: str, what: str) -> str:
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in text):
        raise refused(f"{text!r} is no address of {what}", "http://host:port, https://host")
    if parts.username is not None or parts.password is not None:
        raise refused("a user or a password does not belong into Git: remove it from the address")
    if parts.query or parts.fragment:
        raise refused(f"an address of {what} has no ? and no #")
    return text.rstrip("/")


def _address_of(what: str) -> AfterValidator:
    return AfterValidator(partial(_check_url, what=what))


class Gateway(SpecModel):
    """How the gateway is reached, and how many back ends it keeps for endpoints to come (more need a reload)."""

    expose: Literal["NodePort", "LoadBalancer"] = "NodePort"
    port: int = Field(default=8443, ge=1, le=65_535)
    spare_backends: int = Field(default=256, ge=1, le=4_096)


class Quota(SpecModel):
    """Most that all pods of a team get together; None means no bound."""

    cpu: CpuField | None = None
    memory: MemoryField | None = None
    pods: int | None = Field(default=None, ge=1, le=100_000)


class Team(SpecModel):
    """One team: a namespace of its own. `pull_secrets` None means the platform's."""

    quota: Quota = Quota()
    pull_secrets: SecretList | None = None


def _not_shorter_than(other: str) -> AfterValidator:
    """Bounds a window by another one, where that one is valid itself."""

    def check(value: int, info: ValidationInfo) -> int:
        if value < info.data.get(other, 0):
            raise refused(f"{value} is shorter than {other} {info.data[other]}")
        return value

    return AfterValidator(check)


class Autoscaler(SpecModel):
    """Windows in seconds; `growth`: most times of what was asked for before; `utilization`: target over limit."""

    fast_window_s: int = Field(default=5, ge=1, le=600)
    up_window_s: Annotated[int, _not_shorter_than("fast_window_s")] = Field(
        default=20, ge=1, le=3_600, validate_default=True
    )
    down_window_s: Annotated[int, _not_shorter_than("up_window_s")] = Field(
        default=120, ge=5, le=86_400, validate_default=True
    )
    growth: float = Field(default=10.0, gt=1, le=1_000)
    utilization: float = Field(default=0.8, ge=0.1, le=1)


class Rollout(SpecModel):
    """How long a replaced revision is held for a revert, and how long a new one may take to get ready."""

    hold_s: int = Field(default=300, ge=0, le=86_400)
    start_timeout_s: int = Field(default=600, ge=10, le=7_200)


class PlatformSpec(SpecModel):
    """One environment: its cluster, its teams, and the platform's settings.

    `pull_secrets` name Secrets that the kubelet logs in to the image registry with: names only, in the platform's
    namespace and in those of teams. Without `prometheus` the autoscaler lives on what the gateways count.
    """

    environment: EnvironmentName
    cluster: Annotated[Cluster, Allowed(CLUSTER_FORMS)] = "embedded"
    registry: Annotated[str, AfterValidator(_check_registry)] | None = None
    model_registry: Annotated[str, _address_of("a model registry")] | None = None
    prometheus: Annotated[str, _address_of("a Prometheus")] | None = None
    pull_secrets: SecretList = ()
    gateway: Gateway = Gateway()
    teams: dict[TeamName, Team] = Field(default_factory=dict)
    autoscaler: Autoscaler = Autoscaler()
    rollout: Rollout = Rollout()

    @model_validator(mode="after")
    def _check(self) -> PlatformSpec:
        stated = {name for name in self.model_fields_set if getattr(self, name) is not None}
        stated |= {f"gateway.{name}" for name in self.gateway.model_fields_set}
        for message, field in cluster_problems(self.context, stated, self.gateway.expose):
            raise refused(message, field=field)
        return self

    def pull_secrets_of(self, team: str) -> tuple[str, ...]:
        """Names of the Secrets that a team's pods pull with: the team's own list where it has one."""
        stated = self.teams[team].pull_secrets
        return self.pull_secrets if stated is None else stated

    @property
    def context(self) -> str | None:
        """The kubeconfig context, or None for the embedded cluster."""
        return self.cluster.context if isinstance(self.cluster, ContextCluster) else None


def cluster_problems(context: str | None, stated: set[str], expose: Any) -> list[tuple[str, str]]:
    """What the choice of cluster demands or forbids, as (message, field)."""
    if context is not None:
        missing = [field for field in _OWNERS_FIELDS if field not in stated]
        named = "this field is" if len(missing) == 1 else "these fields are"
        message = f"a cluster of one's own has no defaults for what only its owner knows; {named} missing"
        if missing:
            return [(f"{message}: {', '.join(missing)}", "cluster")]
        if expose == "NodePort" and "gateway.port" not in stated:
            return [(f"{message}: gateway.port ({NODE_PORT_FORMS})", "cluster")]
        return []
    found: list[tuple[str, str]] = [
        (f"the embedded cluster brings its own {field.replace('_', ' ')}: remove it", field)
        for field in ("registry", "model_registry", "prometheus")
        if field in stated
    ]
    if expose == "LoadBalancer":
        found.append(("the embedded cluster has no load balancer: write NodePort", "gateway.expose"))
    return found


def read_platform(text: str | bytes, file: str, environment: str) -> tuple[PlatformSpec | None, Document]:
    """A platform file as a spec and the document it was read from; None where the document has problems."""
    document = read_yaml(text, file)
    spec = read_model(PlatformSpec, document)
    if isinstance(document.value, dict) and not document.is_broken(()):
        _check_across(document, document.value, environment)
    return (None if document.problems else spec), document


def _check_across(document: Document, stated: Mapping[str, Any], environment: str) -> None:
    """Rules over several fields, told beside the problems of single ones."""
    name = stated.get("environment")
    if isinstance(name, str) and name != environment and not document.is_broken(("environment",)):
        document.report(("environment",), f"{name!r} differs from the folder's name {environment!r}")
    gateway = stated.get("gateway")
    gateway = gateway if isinstance(gateway, Mapping) else {}
    context = stated["cluster"].get("context") if isinstance(stated.get("cluster"), Mapping) else None
    if context is None and stated.get("cluster", EMBEDDED) != EMBEDDED:
        return  # neither form: the field's own problem says so
    told = {problem.message for problem in document.problems}
    for message, field in cluster_problems(
        context, {*stated, *(f"gateway.{key}" for key in gateway)}, gateway.get("expose")
    ):
        path = tuple(field.split("."))
        if message not in told and not document.is_broken(path):
            document.report(path, message)


def load_platform(text: str | bytes, file: str, environment: str) -> PlatformSpec:
    """Read an environment's platform file; a SpecError holds every problem of it."""
    spec, document = read_platform(text, file, environment)
    if spec is None:
        raise SpecError(document.problems)
    return spec
