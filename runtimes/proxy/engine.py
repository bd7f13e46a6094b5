"""Another HTTP server in this pod, as an engine of the serving interface.

Owns its health as the interface sees it and which paths it answers; leaves its life to Kubernetes and its answers to
upstream. One idea: it is asked how it is all the time, so that one that is gone or stuck is known within a second, and
before a request meets it.
"""

from __future__ import annotations

import asyncio
import logging
import time

from runtimes.interface.engine import About, Api, Call, Forwarded
from runtimes.interface.errors import RefusedError
from runtimes.interface.loopback import Loopback
from runtimes.interface.routes import OPENAI_PATHS
from runtimes.proxy.settings import ProxySettings

PATHS = {"mlflow": ("/invocations",), "v2": ("/v2",), "openai": OPENAI_PATHS, "http": ()}
_LOOK_S = 0.25
_ANSWER_S = 0.5  # of the health path
_FAILS = 2  # in a row: one slow answer is no end
_log = logging.getLogger("runtimes.proxy.engine")


class ProxyEngine:
    """The server behind ``settings.upstream_port``."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._client = Loopback(settings.upstream_host, settings.upstream_port, settings.max_answer_bytes)
        self._prober = Loopback(settings.upstream_host, settings.upstream_port, settings.max_answer_bytes)
        self._looking: asyncio.Task[None] | None = None
        self._failed_looks = 0
        self.about: About | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def ready(self) -> bool:
        return self.about is not None and self._failed_looks < _FAILS

    @property
    def live(self) -> bool:
        return True  # a server that hangs has a liveness probe of its own; a new proxy would not help it

    async def start(self) -> None:
        """Wait until the server says that it is healthy, for as long as its load may take; then keep looking."""
        settings = self._settings
        until = time.monotonic() + settings.load_timeout_s
        while not await self._healthy():
            if time.monotonic() > until:
                self.failed.set_result(
                    f"{settings.health_path} did not answer 200 within {settings.load_timeout_s:g} s"
                )
                return
            await asyncio.sleep(_LOOK_S)
        paths = frozenset(path for protocol in settings.protocol for path in PATHS[protocol]) | frozenset(settings.path)
        self.about = About(
            settings.name, settings.version, "container", settings.version, paths=paths, tells_itself=True
        )
        _log.info("ready", extra={"paths": sorted(paths)})
        self._looking = asyncio.create_task(self._keep_looking())

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._client.close()
        self._prober.close()

    async def forward(self, call: Call) -> Forwarded:
        """The server's answer."""
        return await self._client.forward(call)

    async def _keep_looking(self) -> None:
        while True:
            healthy = await self._healthy()
            if healthy is (self._failed_looks > 0):
                _log.warning("the server is healthy again" if healthy else "the server is not healthy")
            self._failed_looks = 0 if healthy else self._failed_looks + 1
            await asyncio.sleep(_LOOK_S)

    async def _healthy(self) -> bool:
        call = Call("health", Api.MLFLOW, "json", b"", 0.0, self._settings.health_path, method="GET")
        try:
            async with asyncio.timeout(_ANSWER_S):
                return (await self._prober.forward(call)).status == 200
        except (TimeoutError, RefusedError):
            return False
