"""A renewed certificate reaches HAProxy while it runs.

Its one idea: the files' content is compared, not their times, so a Secret's swapped links and copies are all one.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from controllers.gateway.runtime_api import RefusedError, RuntimeApiError, set_certificate

log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0


def pem(certificate: Path) -> str | None:
    """Certificate and key in one text, or None while one of them is missing or empty."""
    try:
        texts = [certificate.read_text(), certificate.with_suffix(".key").read_text()]
    except OSError:
        return None
    return "\n".join(texts) if all("-----BEGIN" in text for text in texts) else None


async def follow(socket: Path, certificate: Path) -> None:
    """For ever. The first look sets it too: HAProxy may have started with an older one."""
    in_force: str | None = None
    while True:
        found = pem(certificate)
        if found is not None and found != in_force:
            try:
                await set_certificate(socket, str(certificate), found)
                in_force = found
                log.info("certificate set", extra={"file": str(certificate)})
            except (RuntimeApiError, RefusedError) as error:
                log.warning("certificate not set", extra={"file": str(certificate), "error": str(error)})
        await asyncio.sleep(_LOOK_S)
