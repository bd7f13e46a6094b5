"""``python -m runtimes.vllm``: the process that a pod watches while vLLM runs below it.

Owns what is checked before vLLM starts, the listening socket, the exit status and its reason; leaves watching to
leading and working. One idea: whatever can be known to fail fails here, at once and in one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtimes import gpus, jsonlog, quota
from runtimes.interface.serving import listener
from runtimes.termination import EXIT_FAILED, end_when_told, one_line, reason_of, write_reason
from runtimes.vllm import arguments, model
from runtimes.vllm.group import Place, place
from runtimes.vllm.leading import lead
from runtimes.vllm.settings import FOLDER_VARIABLE, VllmSettings, parse_settings
from runtimes.vllm.working import work

_log = logging.getLogger("runtimes.vllm")


def main() -> int:
    end_when_told()
    settings = parse_settings()
    jsonlog.configure()
    scratch = Path(tempfile.mkdtemp(prefix="knobless-vllm-"))
    try:
        cores = quota.cpu(1, quota.cpu_quota(), quota.own_affinity()).threads
        here = place(settings.nodes, os.environ)
        own = arguments.environment(settings, scratch, _checked(settings, here), cores)
        reason = asyncio.run(_watch(settings, {**own, FOLDER_VARIABLE: str(scratch / "model")}, here))
    except model.UnservableError as error:
        reason = one_line(str(error))
    except OSError as error:
        reason = reason_of(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0 if reason is None else _failed(reason)


def _checked(settings: VllmSettings, here: Place) -> Sequence[gpus.Gpu]:
    """The GPUs, once it is clear that this model can be served on them; vLLM would say so minutes later."""
    found = gpus.found()
    ranks = [model.adapter_rank(adapter.folder) for adapter in settings.adapters]
    arguments.flags(settings, model.read(settings.model), found, ranks, place=here)
    return found


async def _watch(settings: VllmSettings, own: Mapping[str, str], place: Place) -> str | None:
    with contextlib.closing(listener(settings.host, settings.port)) as listening:
        if place.leads:
            return await lead(listening, own, place)
        return await work(listening, own, place, settings)


def _failed(reason: str) -> int:
    _log.error("the model can't be served", extra={"reason": reason})
    write_reason(reason)
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
