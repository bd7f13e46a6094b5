"""Owns the image whose one process holds a pod's namespaces: a static program in an otherwise empty image.

Leaves building and pushing to `images`.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from embedded import images, registry
from embedded.instance import Instance

SOURCE: Final = Path(__file__).parents[1] / "images" / "pause"
FLAGS: Final = ("-static", "-Os", "-s", "-Wall", "-Wextra", "-Werror")

Report = Callable[[str], None]


def recipe(context: Path = SOURCE) -> images.Recipe:
    """Named by the source and the compiler's flags; the compiled program is put into `context` before a build."""
    containerfile = SOURCE / "Containerfile"
    digest = images.inputs_digest((containerfile, SOURCE / "pause.c"), {"flags": " ".join(FLAGS)})
    return images.Recipe("pause", containerfile, context, digest)


def reference(instance: Instance) -> str:
    return str(recipe().published(instance))


def problem(instance: Instance) -> str | None:
    """Why no pod could start now, or None."""
    try:
        found = registry.find(recipe().published(instance))
    except OSError as error:
        return f"the registry does not answer: {error}"
    return None if found else "the registry does not have the pause image"


def publish(instance: Instance, report: Report) -> None:
    """Compile, build and push it where the registry does not have it."""
    if registry.find(recipe().published(instance)) is not None:
        return
    with tempfile.TemporaryDirectory(prefix="knobless-pause-") as folder:
        argv = ("gcc", *FLAGS, "-o", f"{folder}/pause", str(SOURCE / "pause.c"))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise images.ImageError(f"the pause program does not compile:\n{done.stderr}")
        images.push(instance, recipe(Path(folder)), report)
