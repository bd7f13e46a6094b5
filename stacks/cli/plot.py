"""Lines over time, drawn in the terminal's own characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import plotext

_MARKS = "*o+x#%"


def drawn(
    title: str, lines: Mapping[str, Sequence[float]], duration_s: float, size: tuple[int, int], colour: bool
) -> str:
    """`size` in columns and rows; `lines` are evenly spaced over `duration_s`. Without colour each has its own mark."""
    figure: Any = plotext.figure
    figure.clear()
    figure.theme("default" if colour else "colorless")
    figure.plot_size(*size)
    figure.title(f"{title}, by minute")
    for (name, values), mark in zip(lines.items(), cycle(_MARKS)):
        step = duration_s / 60 / max(len(values), 1)
        marker = "braille" if colour or len(lines) == 1 else mark
        signal = figure.signal([index * step for index in range(len(values))], list(values), marker=marker)
        signal.label(name)
        signal.lines()
        figure.draw(signal)
    text = str(figure.build())
    return text if colour else str(plotext.uncolorize(text))
