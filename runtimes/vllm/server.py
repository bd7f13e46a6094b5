"""``python -m runtimes.vllm.server``: vLLM's server, on a socket that its watcher opened.

Owns giving vLLM its flags, its socket and its encoder; leaves the rest of its start to vLLM. Nothing heavy is imported
at the top: every process that vLLM spawns imports this module again.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import uvloop

from runtimes import gpus, jsonlog, quota
from runtimes.interface.drain import finish_s
from runtimes.interface.http import HttpProtocol
from runtimes.termination import EXIT_FAILED
from runtimes.vllm import arguments, group, model
from runtimes.vllm.reason import OURS
from runtimes.vllm.settings import FOLDER_VARIABLE, SOCKET_VARIABLE, VllmSettings, parse_settings

_SET_PDEATHSIG = 1


def main() -> int:
    _end_with_the_watcher()
    settings = parse_settings()
    jsonlog.configure()
    served = model.joined(model.read(settings.model), Path(os.environ[FOLDER_VARIABLE]))
    ranks = [model.adapter_rank(adapter.folder) for adapter in settings.adapters]
    here = group.place(settings.nodes, os.environ)
    cache = arguments.cache_bytes(quota.memory_limit(), model.size_bytes(served) // here.size)
    words = arguments.flags(settings, served, gpus.found(), ranks, cache, here)
    if not here.leads:
        return _work(words)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, words))


def _told(words: Sequence[str]) -> Any:
    """What vLLM's command makes of its flags."""
    arguments_of = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    importlib.import_module("vllm.entrypoints.serve.utils.api_utils").cli_env_setup()
    told = arguments_of.make_arg_parser(parser).parse_args(list(words))
    importlib.import_module("vllm.logger").configure_logging_from_args(told)
    arguments_of.validate_parsed_serve_args(told)
    importlib.import_module("vllm.utils.system_utils").set_ulimit()
    return told


def _work(words: Sequence[str]) -> int:
    """Run this node's part of the model until one of its processes ends, which none does by itself."""
    told = _told(words)
    told.api_server_count = 0
    importlib.import_module("vllm.entrypoints.cli.serve").run_headless(told)
    print(f"{OURS}a process with this node's part of the model ended", file=sys.stderr)
    return EXIT_FAILED


async def _serve(settings: VllmSettings, words: Sequence[str]) -> int:
    told = _told(words)
    _encode_with_orjson()
    told.failed = None
    told.port = settings.port
    listening = socket.socket(fileno=int(os.environ[SOCKET_VARIABLE]))
    run = importlib.import_module("vllm.entrypoints.launchers.api_server.entry").run_server_worker
    await run(f"port {settings.port}", listening, told, **_uvicorn(settings))
    if told.failed is None:
        return 0
    print(f"{OURS}{told.failed}", file=sys.stderr)
    return EXIT_FAILED


def _uvicorn(settings: VllmSettings) -> dict[str, Any]:
    return {
        "http": HttpProtocol,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_graceful_shutdown": int(finish_s(settings.deadline_s)),
    }


def _encode_with_orjson() -> None:
    """vLLM's own encoder answers a NaN with an error, and is several times slower."""
    answers: Any = importlib.import_module("starlette.responses").JSONResponse

    def render(_: object, content: Any) -> bytes:
        return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)

    answers.render = render


def _end_with_the_watcher() -> None:
    """A watcher that is killed takes this process along."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
