"""Writes the golden configuration of a small gateway anew; read the difference before it is committed.

Argument: the folder to write to; without one, the golden's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from controllers.gateway import render
from controllers.gateway.desired import ACCESS, KEYS, MODELS, PATHS, ROUTES, Desired, Target
from controllers.gateway.settings import QueueClass, Settings

HERE = Path(__file__).resolve().parent
SETTINGS = Settings(queue_classes=(QueueClass(1000, 1), QueueClass(5000, 2)))
DESIRED = Desired(
    servers={
        "b00001": {
            "iris-00000001-abc": Target("10.0.0.7", 8080, 50),
            "iris-00000001-def": Target("fd00::7", 8080, 49),
        }
    },
    maps={
        ROUTES: {"iris": "b00001/128/60000", "tulip": "none/8/1000/prefix"},
        KEYS: {"AB" * 32: "alpha"},
        ACCESS: {f"{'AB' * 32}/iris": "1"},
        MODELS: {"alpha": "iris"},
        PATHS: {"tulip/generate": "1"},
    },
)


def main(target: Path) -> None:
    for name, text in render.files(DESIRED, SETTINGS).items():
        (target / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
