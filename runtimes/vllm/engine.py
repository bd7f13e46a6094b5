"""vLLM as an engine of the serving interface.

Owns its self-test, its health, which paths it answers, and the few words of its answers that have to change. Leaves
everything about tokens to vLLM. One idea: its client to its own engine is asked one cheap question all the time, so an
engine that is dead or stuck is known before a request meets it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import orjson

from runtimes.interface.engine import About, Api, Call, Forwarded
from runtimes.interface.routes import OPENAI_PATHS
from runtimes.termination import one_line, reason_of
from runtimes.vllm.inner import Application, forward
from runtimes.vllm.refusals import reworded
from runtimes.vllm.settings import VllmSettings

_LOOK_S = 0.25
STALLED_S = 10.0  # without an answer from the engine: not ready; longer than any one step of it
_SELF_TEST_S = 300.0  # the first request may compile
_CHAT, _COMPLETIONS, _EMBEDDINGS, _RESPONSES = OPENAI_PATHS[0], OPENAI_PATHS[1], OPENAI_PATHS[2], OPENAI_PATHS[3]
_QUESTIONS: dict[str, dict[str, Any]] = {
    # What is compiled on its first use is compiled now: sampling, and the probabilities beside it.
    _COMPLETIONS: {"prompt": "Hello", "max_tokens": 2, "temperature": 1, "top_p": 0.9, "top_k": 5, "logprobs": 1},
    _CHAT: {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0},
    _EMBEDDINGS: {"input": "Hello"},
}
_log = logging.getLogger("runtimes.vllm.engine")


class VllmEngine:
    """vLLM's application in this process, and its client (`EngineClient`) to the processes of its engine."""

    def __init__(
        self, application: Application, served: Any, client: Any, settings: VllmSettings, release: str
    ) -> None:
        self._application = application
        self._fixed = {"app": served}
        self._client = client
        self._settings = settings
        self._release = release
        self._answered_at = time.perf_counter()
        self._asking: asyncio.Task[None] | None = None
        self.about: About | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def ready(self) -> bool:
        """Whether the engine lives and answered lately."""
        return self.about is not None and not self._client.errored and self._silent_s() < STALLED_S

    @property
    def live(self) -> bool:
        """False once the engine is dead, or said nothing for longer than anything it does takes."""
        return not self._client.errored and self._silent_s() < self._settings.stuck_s

    async def start(self) -> None:
        """Ask the model something on every path it should answer."""
        self._asking = asyncio.create_task(self._keep_asking())
        try:
            paths = await self._tested(await self._client.get_supported_tasks())
        except Exception as error:
            self.failed.set_result(f"the model failed on its self-test: {reason_of(error)}")
            return
        name, version = self._settings.name, self._settings.version
        self.about = About(name, version, "vllm", self._release, paths=frozenset(paths), tells_itself=True)

    async def stop(self) -> None:
        """Only what this class started: vLLM ends itself."""
        if self._asking is not None:
            self._asking.cancel()

    async def forward(self, call: Call) -> Forwarded:
        """vLLM's answer; RefusedError where it is an error."""
        answered = await forward(self._application, self._fixed, call)
        if answered.status >= 400:
            raise reworded(answered.status, answered.body, call.body, self._settings.name)
        if call.method == "GET" and answered.pieces is None:
            answered.body = _without_paths(answered.body)
        return answered

    def _silent_s(self) -> float:
        return time.perf_counter() - self._answered_at

    async def _keep_asking(self) -> None:
        """The question passes through the engine's loop between two steps, and costs it nothing."""
        while not self._client.errored:
            try:
                await self._client.is_sleeping()
                self._answered_at = time.perf_counter()
            except Exception:
                _log.exception("the engine can't be asked how it is")
            await asyncio.sleep(_LOOK_S)

    async def _tested(self, tasks: Sequence[str]) -> list[str]:
        if "generate" not in tasks:
            await self._ask(_EMBEDDINGS)
            return ["/invocations", _EMBEDDINGS]
        await self._ask(_COMPLETIONS)
        paths = ["/invocations", _COMPLETIONS]
        try:
            await self._ask(_CHAT)
        except SelfTestError as error:
            _log.warning("the model answers no chats", extra={"reason": one_line(str(error))})
            return paths
        return [*paths, _CHAT, _RESPONSES]

    async def _ask(self, path: str) -> None:
        body = orjson.dumps({"model": self._settings.name, **_QUESTIONS[path]})
        headers = ((b"content-type", b"application/json"),)
        due_at = time.perf_counter() + _SELF_TEST_S
        call = Call("self-test", Api.OPENAI, "json", body, due_at, path, headers=headers)
        async with asyncio.timeout(_SELF_TEST_S):
            answered = await forward(self._application, self._fixed, call)
        if answered.status != 200:
            raise SelfTestError(f"{path} answered {answered.status}: {answered.body[:500].decode(errors='replace')}")


class SelfTestError(RuntimeError):
    """A path of the model did not answer."""


def _without_paths(body: bytes) -> bytes:
    """The list of models without the folders that they were loaded from."""
    document = orjson.loads(body)
    for card in document.get("data", [document]):
        card["root"] = card["id"]
        card.pop("permission", None)
    return orjson.dumps(document)
