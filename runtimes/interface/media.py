"""Which body a request's headers announce, and which answer they ask for.

Owns content type, charset, content encoding and Accept; leaves the body to packing and to the engine. Pure. One idea:
what we can't read is a 415 before a byte of it is read, and the answer lists what we can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from runtimes.interface.engine import Api
from runtimes.interface.errors import RefusedError

MEDIA = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
    "application/vnd.apache.arrow.stream": "arrow",
}
_TAKEN = {
    Api.MLFLOW: MEDIA,
    Api.OPENAI: {"application/json": "json"},
    Api.V2: {"application/json": "json", "application/octet-stream": "json", "": "json"},  # its clients often send none
}
ENCODINGS = {"": None, "identity": None, "gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_ARROW = b"application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Media:
    """What the body is (json, csv, parquet, arrow) and how it is packed (gzip, zstd or None)."""

    kind: str
    packed: str | None = None


@lru_cache(maxsize=256)
def parse_media(api: Api, content_type: bytes | None, content_encoding: bytes | None, any_type: bool = False) -> Media:
    """The body's media from its two headers, or a refusal with 415.

    ``any_type``: an engine that passes bodies on decides itself what it takes.
    """
    essence, *parameters = [part.strip() for part in (content_type or b"").decode("latin-1").split(";")]
    kind = _TAKEN[api].get(essence.lower()) or ("other" if any_type and essence else None)
    if kind is None:
        accepted = ", ".join(filter(None, _TAKEN[api]))
        raise RefusedError(415, f"the content type must be one of {accepted}", "content-type")
    if not any_type:
        _check_parameters(parameters)
    encoding = (content_encoding or b"").decode("latin-1").strip().lower()
    if encoding not in ENCODINGS:
        raise RefusedError(415, "the content encoding must be gzip, zstd or none", "content-encoding")
    return Media(kind, ENCODINGS[encoding])


def wanted_form(accept: bytes | None) -> str:
    """The form of the answer: arrow where it is asked for by name, json otherwise."""
    return "arrow" if accept is not None and _ARROW in accept.lower() else "json"


def _check_parameters(parameters: list[str]) -> None:
    for parameter in filter(None, parameters):
        name, _, value = parameter.partition("=")
        if name.strip().lower() != "charset" or value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise RefusedError(415, "the only parameter of the content type is charset=utf-8", "content-type")
