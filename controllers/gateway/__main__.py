"""`python -m controllers.gateway render [--from-file F]` before HAProxy starts, `serve` beside it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from controllers.gateway import first
from controllers.gateway.serve import serve
from controllers.gateway.settings import Settings, SettingsError, from_environment
from controllers.kube import KubeClient
from controllers.kube.credentials import CredentialsError
from controllers.logs import configure

log = logging.getLogger("controllers.gateway")


async def render(settings: Settings, source: Path | None) -> None:
    if source is not None:
        seen = first.from_file(source)
    else:
        async with KubeClient.from_environment() as kube:
            seen = await first.from_api(kube, settings.api_wait_s)
    first.write(seen, settings)
    await first.check(settings)


async def serve_until_told(settings: Settings) -> None:
    """SIGTERM and SIGINT end it; HAProxy goes on with what it has."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with KubeClient.from_environment() as kube:
        serving = asyncio.create_task(serve(settings, kube))
        ending = asyncio.create_task(told.wait())
        await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        serving.cancel()
        ending.cancel()
        await asyncio.gather(serving, ending, return_exceptions=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m controllers.gateway", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    rendering = commands.add_parser("render", help="write the first whole configuration")
    rendering.add_argument("--from-file", type=Path, help="objects in a JSON file instead of the API server's")
    commands.add_parser("serve", help="keep HAProxy as declared")
    given = parser.parse_args(arguments)
    configure(os.environ.get("KNOBLESS_LOG_LEVEL", "INFO"))
    try:
        settings = from_environment(os.environ)
        running = render(settings, given.from_file) if given.command == "render" else serve_until_told(settings)
        asyncio.run(running)
    except (SettingsError, first.StartError, CredentialsError) as error:
        log.error(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
