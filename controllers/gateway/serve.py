"""Wires the control plane: watches, the loop of passes, the publisher, the certificate, the metrics port.

Its one idea: each runs by itself, and one that waits on a server of somebody else's holds up none of the others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from controllers.gateway import certificate, waits
from controllers.gateway.control import Control
from controllers.gateway.health import listen
from controllers.gateway.metrics import Metrics
from controllers.gateway.observation import Observation, Watching
from controllers.gateway.publish import Publisher, Writing
from controllers.gateway.settings import Settings

log = logging.getLogger(__name__)

_STUCK_S: Final = 60.0
# Changes that come together (a rollout, a scale-up) become one pass.
_GATHER_S: Final = 0.02


class Kube(Watching, Writing, Protocol):
    """The Kubernetes client, as far as it is used here."""


async def serve(settings: Settings, kube: Kube) -> None:
    """For ever; ends by cancellation."""
    changed = asyncio.Event()
    observation, metrics = Observation(changed.set), Metrics()
    control = Control(settings, observation, metrics)
    publisher = Publisher(kube, observation.objects, time.monotonic)
    loop = _Loop(control, publisher, observation, changed)
    server = await listen(settings.address, settings.control_port, metrics.registry, loop.healthy)
    async with server, asyncio.TaskGroup() as tasks:
        tasks.create_task(observation.follow(kube))
        tasks.create_task(loop.run())
        tasks.create_task(publisher.run())
        tasks.create_task(waits.follow(settings.control_socket))
        if settings.certificate is not None:
            tasks.create_task(certificate.follow(settings.control_socket, settings.certificate))


class _Loop:
    """One pass after the other: when something changed, and when the last pass said so."""

    def __init__(
        self, control: Control, publisher: Publisher, observation: Observation, changed: asyncio.Event
    ) -> None:
        self._control = control
        self._publisher = publisher
        self._observation = observation
        self._changed = changed
        self._passed_at_s = time.monotonic()
        self._waiting = True

    def healthy(self) -> bool:
        """Waiting for the first whole state of the API server is not being stuck."""
        return self._waiting or time.monotonic() - self._passed_at_s < _STUCK_S

    async def run(self) -> None:
        await self._observation.complete.wait()
        self._waiting = False
        changed = True
        while True:
            self._changed.clear()
            self._passed_at_s = time.monotonic()
            outcome = await self._control.step(self._passed_at_s, changed=changed)
            if outcome.news is not None:
                self._publisher.tell(outcome.news)
            changed = await self._wait(outcome.wait_s) or (changed and outcome.news is None)

    async def _wait(self, longest_s: float) -> bool:
        """Whether something changed."""
        try:
            async with asyncio.timeout(longest_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(_GATHER_S)
        return True
