"""``python -m runtimes.triton``: serve one network with Triton.

Owns turning whatever goes wrong before the first socket into a reason and exit status 3; leaves the rest to serving.
"""

from __future__ import annotations

import logging
import sys

from runtimes import jsonlog
from runtimes.termination import EXIT_FAILED, end_when_told, reason_of, write_reason
from runtimes.triton.settings import parse_settings


def main() -> int:
    end_when_told()
    settings = parse_settings()
    jsonlog.configure()
    try:
        # Both need packages of the front's environment, whose absence is a reason too.
        from runtimes.interface.serving import run
        from runtimes.triton.engine import TritonEngine

        return run(settings, lambda metrics: TritonEngine(settings, metrics))
    except (ImportError, OSError, RuntimeError) as error:
        logging.getLogger("runtimes.triton").exception("the server can't run")
        write_reason(reason_of(error))
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
