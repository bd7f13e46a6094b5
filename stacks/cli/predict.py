"""One prediction through the gateway, as a client would send it, and the curl line that repeats it."""

from __future__ import annotations

import json
import shlex
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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


INVOCATIONS: Final = "/invocations"


def url(gateway: str, endpoint: str, path: str = INVOCATIONS) -> str:
    return f"{gateway}/serving-endpoints/{endpoint}/{path.removeprefix('/')}"


@dataclass(frozen=True)
class Request:
    """One prediction's request.

    Args:
        gateway: its URL.
        endpoint: the endpoint's name.
        key_file: the file with the API key.
        ca: what to trust, where this machine does not anyway.
        payload_file: the body, JSON.
        past_proxies: the shell has proxies, none of which leads to this gateway.
        path: below the endpoint's own.
    """

    gateway: str
    endpoint: str
    key_file: Path
    ca: Path | None
    payload_file: Path
    past_proxies: bool = False
    path: str = INVOCATIONS

    def curl_line(self) -> str:
        """A line for a shell that repeats the request; the key stays in its file."""
        trust = f" --cacert {shlex.quote(str(self.ca))}" if self.ca else ""
        straight = " --noproxy '*'" if self.past_proxies else ""
        return (
            f"curl -sS{straight}{trust} {shlex.quote(url(self.gateway, self.endpoint, self.path))} \\\n"
            f'  -H "Authorization: Bearer $(cat {shlex.quote(str(self.key_file))})" \\\n'
            f"  -H 'Content-Type: application/json' -d @{shlex.quote(str(self.payload_file))}"
        )

    def send(self) -> Answer:
        """POST it; raises CliError where nothing answers. An HTTP error is an answer."""
        key = self.key_file.read_text().strip()
        return send(self.gateway, self.endpoint, key, self.payload_file.read_bytes(), self.ca, self.path)


def send(gateway: str, endpoint: str, key: str, payload: bytes, ca: Path | None, path: str = INVOCATIONS) -> Answer:
    """POST the payload; raises CliError where nothing answers. An HTTP error is an answer."""
    trust = ssl.create_default_context(cafile=str(ca) if ca else None)  # without a file: what this machine trusts
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    started_s = time.monotonic()
    try:
        # The gateway of the embedded cluster is an address of this machine: no proxy of the user's leads there.
        with httpx.Client(verify=trust, timeout=TIMEOUT_S, trust_env=False) as client:
            response = client.post(url(gateway, endpoint, path), content=payload, headers=headers)
    except httpx.TransportError as error:
        hint = "`knobless status` shows what runs; `knobless up` starts it"
        raise CliError(f"no answer from {gateway}: {error}", hint=hint, code=ExitCode.NOT_FOUND) from error
    took_ms = (time.monotonic() - started_s) * 1000
    try:
        body = response.json()
    except json.JSONDecodeError:
        body = response.text
    return Answer(response.status_code, body, response.headers.get("x-request-id", ""), took_ms)
