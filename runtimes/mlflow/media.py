"""Which body a request's headers announce.

Owns content type, charset and content encoding; leaves the body to the predictor. Pure. One idea: what we can't read is
a 415 before a byte of it is read, and the answer lists what we can.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtimes.mlflow.errors import RefusedError

MEDIA = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
}
_ACCEPTED = ", ".join(MEDIA)


@dataclass(frozen=True)
class Media:
    """What the body is (json, csv, parquet) and whether it is packed."""

    kind: str
    gzip: bool = False


def parse_media(content_type: str | None, content_encoding: str | None) -> Media:
    """The body's media from its two headers, or a refusal with 415."""
    essence, *parameters = [part.strip() for part in (content_type or "").split(";")]
    kind = MEDIA.get(essence.lower())
    if kind is None:
        raise RefusedError(415, f"the content type must be one of {_ACCEPTED}", "content-type")
    for parameter in filter(None, parameters):
        name, _, value = parameter.partition("=")
        if name.strip().lower() != "charset" or value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise RefusedError(415, "the only parameter of the content type is charset=utf-8", "content-type")
    encoding = (content_encoding or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise RefusedError(415, "the content encoding must be gzip or none", "content-encoding")
    return Media(kind, gzip=encoding != "identity")
