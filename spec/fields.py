"""Owns the field types that several files use: names, amounts, lists of names.

Leaves the fields themselves to the models. One idea: a value is parsed where it enters, and is never checked again.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from spec import names
from spec.image_reference import ALLOWED as IMAGE_ALLOWED
from spec.image_reference import ImageReference, parse_image_reference
from spec.model_reference import ALLOWED as MODEL_ALLOWED
from spec.model_reference import ModelReference, parse_model_reference
from spec.quantities import CPU_FORMS, MEMORY_FORMS, Cpu, Memory, parse_cpu, parse_memory
from spec.reading import echo, refused

Parsed = TypeVar("Parsed")


def _named(what: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        problem = names.name_problem(what, text)
        if problem is not None:
            raise refused(problem)
        return text

    return check


EndpointName = Annotated[str, AfterValidator(_named("endpoint"))]
TeamName = Annotated[str, AfterValidator(_named("team"))]
EnvironmentName = Annotated[str, AfterValidator(_named("environment"))]


def _check_secret(text: str) -> str:
    if not names.is_object_name(text):
        raise refused(f"{echo(text)} is no name of a Secret: {names.OBJECT_RULE}")
    return text


SecretName = Annotated[str, AfterValidator(_check_secret)]


def _parsing(kind: type[Parsed], parse: Callable[[str], Parsed], allowed: str, number: bool) -> Callable[[Any], Parsed]:
    def check(value: Any) -> Parsed:
        if isinstance(value, kind):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int | float if number else str):
            raise refused(f"{echo(value)} is not allowed here", allowed)
        try:
            return parse(str(value))
        except ValueError as error:
            raise refused(str(error), allowed) from error

    return check


_AMOUNT_SCHEMA = WithJsonSchema({"type": ["string", "number"]})
CpuField = Annotated[
    Cpu, PlainValidator(_parsing(Cpu, parse_cpu, CPU_FORMS, number=True)), PlainSerializer(str), _AMOUNT_SCHEMA
]
MemoryField = Annotated[
    Memory,
    PlainValidator(_parsing(Memory, parse_memory, MEMORY_FORMS, number=True)),
    PlainSerializer(str),
    _AMOUNT_SCHEMA,
]
ModelField = Annotated[
    ModelReference,
    PlainValidator(_parsing(ModelReference, parse_model_reference, MODEL_ALLOWED, number=False)),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": r"^models:/([^/:@]+/[1-9][0-9]*|m-[0-9a-f]{32})$"}),
]

ImageField = Annotated[
    ImageReference,
    PlainValidator(_parsing(ImageReference, parse_image_reference, IMAGE_ALLOWED, number=False)),
    PlainSerializer(str),
    WithJsonSchema({"type": "string"}),
]


def between(low: Parsed, high: Parsed) -> AfterValidator:
    """Bounds, both allowed, of an amount."""

    def check(value: Parsed) -> Parsed:
        if not low <= value <= high:  # type: ignore[operator]
            raise refused(f"{value} is too {'small' if value < low else 'large'}", f"{low} to {high}")  # type: ignore[operator]
        return value

    return AfterValidator(check)


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _once(listed: tuple[str, ...]) -> tuple[str, ...]:
    again = sorted({name for name in listed if listed.count(name) > 1})
    if again:
        raise refused(f"{', '.join(again)} stands twice")
    return listed


_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def _check_labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise refused(f"{echo(key)}: {echo(value)} is no label", "<domain>/<name>: <value>", field=key)
    return labels


EGRESS_FORMS: Final = "https://host, http://host:port, or any other with a TCP port, as postgresql://host:5432; no path"


_NO_TCP: Final = frozenset({"coap", "dtls", "ntp", "quic", "sctp", "snmp", "syslog+udp", "tftp", "udp"})


def _check_egress(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = {"http": 80, "https": 443}.get(parts.scheme) if parts.port is None else parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if not port or not _is_host(parts.hostname or "") or text != f"{parts.scheme}://{parts.netloc}":
        raise refused(f"{echo(text)} is nothing to reach", EGRESS_FORMS)
    if parts.scheme in _NO_TCP:
        raise refused(f"{parts.scheme} does not run over TCP, and nothing else is opened")
    if "@" in text:
        raise refused("a user or a password does not belong into Git: remove it from the address")
    return text


def _is_host(text: str) -> bool:
    try:
        return getattr(ipaddress.ip_address(text), "scope_id", None) is None
    except ValueError:
        return names.is_object_name(text)


Labels = Annotated[dict[str, str], AfterValidator(_check_labels)]
TeamList = Annotated[tuple[TeamName, ...], BeforeValidator(_as_tuple), AfterValidator(_once)]
EgressList = Annotated[
    tuple[Annotated[str, AfterValidator(_check_egress)], ...], BeforeValidator(_as_tuple), AfterValidator(_once)
]
SecretList = Annotated[tuple[SecretName, ...], BeforeValidator(_as_tuple), AfterValidator(_once)]
