"""One prediction through the gateway, as a client would send it, and the curl line that repeats it."""

from __future__ import annotations

import json
import shlex
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stacks.cli.errors import CliError, ExitCode

TIMEOUT_S = 310.0


@dataclass(frozen=True)
class Answer:
    """What came back: status, body as parsed JSON or text, request id, milliseconds."""

    status: int
    body: Any
    request_id: str
    took_ms: float


def url(gateway: str, endpoint: str) -> str:
    return f"{gateway}/serving-endpoints/{endpoint}/invocations"


def curl_line(
    gateway: str, endpoint: str, key_file: Path, ca: Path | None, payload_file: Path, *, past_proxies: bool = False
) -> str:
    """A line for a shell that repeats the request; the key stays in its file.

    `past_proxies`: the shell has proxies, none of which leads to this gateway.
    """
    trust = f" --cacert {shlex.quote(str(ca))}" if ca else ""
    straight = " --noproxy '*'" if past_proxies else ""
    return (
        f"curl -sS{straight}{trust} {shlex.quote(url(gateway, endpoint))} \\\n"
        f'  -H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})" \\\n'
        f"  -H 'Content-Type: application/json' -d @{shlex.quote(str(payload_file))}"
    )


def send(gateway: str, endpoint: str, key: str, payload: bytes, ca: Path | None) -> Answer:
    """POST the payload; raises CliError where nothing answers. An HTTP error is an answer."""
    trust = ssl.create_default_context(cafile=str(ca) if ca else None)  # without a file: what this machine trusts
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    started_s = time.monotonic()
    try:
        # The gateway of the embedded cluster is an address of this machine: no proxy of the user's leads there.
        with httpx.Client(verify=trust, timeout=TIMEOUT_S, trust_env=False) as client:
            response = client.post(url(gateway, endpoint), content=payload, headers=headers)
    except httpx.TransportError as error:
        hint = "`knobless status` shows what runs; `knobless up` starts it"
        raise CliError(f"no answer from {gateway}: {error}", hint=hint, code=ExitCode.NOT_FOUND) from error
    took_ms = (time.monotonic() - started_s) * 1000
    try:
        body = response.json()
    except json.JSONDecodeError:
        body = response.text
    return Answer(response.status_code, body, response.headers.get("x-request-id", ""), took_ms)
