"""Owns the identity of a pod template and of an endpoint's spec: canonical JSON and the digests over it.

Leaves to others what the template says. One idea: equal content has equal bytes, whatever wrote it (a Pulumi
program, the API server, a YAML file), so that a revision is made by a change and by nothing else.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from spec import names


def canonical_json(value: Any) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; a float without a fraction is written as an integer.

    Numbers pass through protobuf on their way to the cluster and come back as floats: 8080.0 is 8080.
    NaN, infinities and what JSON has no word for are a ValueError.
    """
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return int(value) if math.isfinite(value) and value.is_integer() else value
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise ValueError("keys of a canonical object are strings")
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    raise ValueError(f"canonical JSON has no form for a {type(value).__name__}")


def sha256_hex(value: Any) -> str:
    """SHA-256 over the canonical JSON, 64 lower-case hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def revision_of(endpoint: str, pod_template: Mapping[str, Any], nodes: int = 1) -> str:
    """Name of the revision that `spec.podTemplate` and `spec.nodes` of an endpoint object declare."""
    made_of = pod_template if nodes == 1 else {"podTemplate": pod_template, "nodes": nodes}
    return names.revision_name(endpoint, sha256_hex(made_of))


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Digest of an endpoint object's whole `spec`, for the annotation `knobless.dev/spec-digest`."""
    return sha256_hex(spec)
