"""Carries the steps of `diff` out at HAProxy and reads back what came of them.

Its one idea: a step that fails stops what depends on it at the same endpoint and nothing else; whatever is left is
found by the next comparison.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from controllers.gateway.desired import Desired, Live, map_file
from controllers.gateway.diff import Command, Stage, Step, Swap, diff
from controllers.gateway.metrics import Metrics
from controllers.gateway.readback import read_servers
from controllers.gateway.runtime_api import RefusedError, ask, swap_map

log = logging.getLogger(__name__)


async def converge(socket: Path, desired: Desired, live: Live, metrics: Metrics) -> Live:
    """One pass; the state afterwards, as far as it was touched, is read back."""
    steps = diff(desired, live)
    failed: set[str] = set()
    done: list[Step] = []
    for stage, group in groupby(steps, key=lambda step: step.stage):
        # A route may only lead to a back end that was filled.
        allowed = [step for step in group if stage is not Stage.ROUTE or step.owner not in failed]
        refused = await _stage(socket, allowed, metrics)
        failed |= {step.owner for step in refused}
        done += [step for step in allowed if step not in refused]
    touched = {step.backend for step in steps if step.backend is not None}
    return await _reread(socket, live, touched, done)


async def _stage(socket: Path, steps: Sequence[Step], metrics: Metrics) -> list[Step]:
    """Carries steps of one stage out; those that HAProxy refused."""
    refused = [step for step in steps if isinstance(step.action, Swap) and not await _swap(socket, step.action)]
    commands = [(step, command) for step in steps if not isinstance(step.action, Swap) for command in step.action]
    answers = await ask(socket, [command.text for _, command in commands])
    for (step, command), answer in zip(commands, answers, strict=True):
        if answer != command.answer and step not in refused:
            refused.append(step)
            _complain(step, command, answer)
    metrics.commands.labels("done").inc(len(steps) - len(refused))
    metrics.commands.labels("refused").inc(len(refused))
    return refused


async def _swap(socket: Path, swap: Swap) -> bool:
    try:
        await swap_map(socket, map_file(swap.map), swap.entries)
    except RefusedError as error:
        log.warning("map not replaced", extra={"map": swap.map, "error": str(error)})
        return False
    return True


def _complain(step: Step, command: Command, answer: str) -> None:
    fields = {
        "owner": step.owner,
        "stage": step.stage.name,
        "command": _shown(command.text),
        "answer": answer,
    }
    log.warning("HAProxy refused a command", extra=fields)


def _shown(command: str) -> str:
    """Never a digest of a key."""
    words = command.split(" ")
    return " ".join(words[:3]) if words[1:2] == ["map"] else command


async def _reread(socket: Path, live: Live, touched: Iterable[str], done: Iterable[Step]) -> Live:
    servers = dict(live.servers) | await read_servers(socket, touched)
    maps = {name: dict(entries) for name, entries in live.maps.items()}
    damaged = set(live.damaged)
    for step in done:
        if isinstance(step.action, Swap):
            maps[step.action.map] = dict(step.action.entries)
            damaged.discard(step.action.map)
        elif step.entry is not None and step.entry.value is None:
            maps[step.entry.map].pop(step.entry.key, None)
        elif step.entry is not None and step.entry.value is not None:
            maps[step.entry.map][step.entry.key] = step.entry.value
    return dataclasses.replace(live, servers=servers, maps=maps, damaged=frozenset(damaged))
