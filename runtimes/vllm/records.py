"""Log lines in vLLM's server, without what requests said.

Owns whose lines are cut there; leaves how to jsonlog, and lines that are written before it serves, and those of its
engine's processes, as they are. One idea: only our own sentences are known to repeat nothing, and nobody's exceptions.
"""

from __future__ import annotations

from runtimes import jsonlog


def hide_values() -> None:
    """From now on, in every line that this process writes."""
    jsonlog.hide(
        jsonlog.WithoutValues(says=lambda name: name.partition(".")[0] != "runtimes", raises=lambda name: True)
    )
