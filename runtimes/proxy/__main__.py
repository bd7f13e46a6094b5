"""``python -m runtimes.proxy``: the serving interface in front of another server in this pod.

Owns turning whatever goes wrong before the first socket into a reason and exit status 3; leaves the rest to serving.
"""

from __future__ import annotations

import logging
import sys

from runtimes import jsonlog
from runtimes.proxy.settings import parse_settings
from runtimes.termination import EXIT_FAILED, end_when_told, reason_of, write_reason


def main() -> int:
    end_when_told()
    settings = parse_settings()
    jsonlog.configure()
    try:
        # Both need packages of the front's environment, whose absence is a reason too.
        from runtimes.interface.serving import run
        from runtimes.proxy.engine import ProxyEngine

        return run(settings, lambda _: ProxyEngine(settings))
    except (ImportError, OSError, RuntimeError) as error:
        logging.getLogger("runtimes.proxy").exception("the server can't run")
        write_reason(reason_of(error))
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
