"""HAProxy's command socket over asyncio: many commands in, one answer each out.

Owns the protocol and its timeouts. Leaves to its callers what an answer means. Its one idea: in prompt mode
every answer ends in a prompt, so any number of commands share one short connection and none is guessed apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PROMPT: Final = "\n> "
_TIMEOUT_S: Final = 5.0
_READ_BYTES: Final = 1 << 18
# A command with its payload must fit into HAProxy's buffer of 16,384 bytes.
_PAYLOAD_BYTES: Final = 12_000


class RuntimeApiError(Exception):
    """HAProxy did not take the commands: not there, too slow, or gone in mid-answer."""


class RefusedError(Exception):
    """HAProxy answered, and the answer is not the one that means success."""

    def __init__(self, command: str, answer: str) -> None:
        super().__init__(f"{command!r}: {answer or 'no answer'}")


async def ask(path: Path, commands: Sequence[str], timeout_s: float = _TIMEOUT_S) -> list[str]:
    """The answer to each command, stripped; RuntimeApiError where not all came back in time."""
    if not commands:
        return []
    try:
        async with asyncio.timeout(timeout_s):
            text = await _exchange(path, "\n".join(["prompt", *commands, "quit", ""]))
    except TimeoutError as error:
        raise RuntimeApiError(f"{path}: no answer within {timeout_s} s") from error
    except OSError as error:
        raise RuntimeApiError(f"{path}: {error}") from error
    answers = text.split(_PROMPT)
    # The first prompt answers `prompt` itself; what follows the last one answers `quit`.
    if len(answers) < len(commands) + 2:
        raise RuntimeApiError(f"{path}: {len(answers) - 2} answers to {len(commands)} commands")
    return [_plain(answer) for answer in answers[1 : len(commands) + 1]]


def _plain(answer: str) -> str:
    """Without the `+ ` that invites each line of a payload."""
    text = answer.strip()
    while text.startswith("+"):
        text = text[1:].lstrip()
    return text


async def _exchange(path: Path, request: str) -> str:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(request.encode())
        received = bytearray()
        while chunk := await reader.read(_READ_BYTES):
            received += chunk
        return received.decode(errors="replace")
    finally:
        writer.close()


async def swap_map(path: Path, file: str, entries: Mapping[str, str]) -> None:
    """Replaces a map in one transaction: no request ever sees half of it."""
    prepare = f"prepare map {file}"
    (answer,) = await ask(path, [prepare])
    version = answer.removeprefix("New version created: ")
    if not version.isdigit():
        raise RefusedError(prepare, answer)
    fill = [f"add map @{version} {file} <<\n{chunk}" for chunk in payloads(entries)]
    commands = [*fill, f"commit map @{version} {file}"]
    for command, said in zip(commands, await ask(path, commands), strict=True):
        if said:
            raise RefusedError(command.split("\n")[0], said)


def payloads(entries: Mapping[str, str]) -> list[str]:
    """`key value` lines in chunks that fit into HAProxy's buffer."""
    chunks = [""]
    for key, value in sorted(entries.items()):
        line = f"{key} {value}\n"
        if len(chunks[-1]) + len(line) > _PAYLOAD_BYTES:
            chunks.append("")
        chunks[-1] += line
    return [chunk for chunk in chunks if chunk]


async def set_certificate(path: Path, name: str, pem: str) -> None:
    """New certificate and key for new handshakes; open connections don't notice."""
    payload = "\n".join(line for line in pem.splitlines() if line.strip())
    commands = [f"set ssl cert {name} <<\n{payload}\n", f"commit ssl cert {name}"]
    for command, said in zip(commands, await ask(path, commands), strict=True):
        if not said.endswith(("Transaction created for certificate " + name + "!", "Success!")):
            raise RefusedError(command.split("\n")[0], said)


async def reload(master: Path, timeout_s: float = 30.0) -> None:
    """A new worker from the files on disk takes over; the old one finishes what it has."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await _exchange(master, "reload\n")
    except (TimeoutError, OSError) as error:
        raise RuntimeApiError(f"{master}: reload: {error}") from error
    if not answer.startswith("Success=1"):
        raise RefusedError("reload", answer.strip())
