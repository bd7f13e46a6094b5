"""Turns what ``go`` prints into lines for a person.

Pure, but for :func:`terminal_report`. ``go list -deps`` says how many packages there are and which of them
are in the cache already, ``go build -v`` names each one that it compiles. Anything that is neither a package
nor a download is kept: it is the compiler's complaint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TextIO

Report = Callable[[str], None]

COMPLAINT_LINES = 40
LISTING_FORMAT = "{{.ImportPath}} {{.Stale}}"
_PASSING = re.compile(r"^\S+(?: \(\d+ of \d+\))?: (?:\d+/\d+ packages|\d+ modules downloaded), ")


@dataclass(frozen=True)
class Progress:
    name: str  # of the binary, with its place among those to build
    total: int = 0  # packages in all; 0 while modules are still being downloaded
    packages: int = 0
    modules: int = 0
    complaint: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()  # the packages of this build

    def text(self, elapsed_s: float) -> str:
        if self.total:
            return f"{self.name}: {self.packages}/{self.total} packages, {format_duration(elapsed_s)}"
        return f"{self.name}: {self.modules} modules downloaded, {format_duration(elapsed_s)}"


def start_counting(name: str, listing: str) -> Progress:
    """From ``go list -deps -f LISTING_FORMAT``: a resumed build counts on from where it stopped."""
    stale = dict(line.split() for line in listing.splitlines())
    cached = sum(answer == "false" for answer in stale.values())
    return Progress(name, total=len(stale), packages=cached, known=frozenset(stale))


def observe(progress: Progress, line: str) -> Progress:
    """One line of go's standard error."""
    line = line.rstrip()
    if line in progress.known:
        return replace(progress, packages=progress.packages + 1)
    if line.startswith("go: downloading "):
        return replace(progress, modules=progress.modules + 1)
    if not line:
        return progress
    return replace(progress, complaint=(*progress.complaint, line)[-COMPLAINT_LINES:])


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def is_passing(text: str) -> bool:
    """Whether the next line may take this one's place on a terminal."""
    return _PASSING.match(text) is not None


def terminal_report(stream: TextIO) -> Report:
    """Writes lines; on a terminal, one line of progress replaces the last."""
    rewrite = stream.isatty()
    pending = False

    def report(text: str) -> None:
        nonlocal pending
        start = "\r\x1b[K" if pending else ""
        pending = rewrite and is_passing(text)
        stream.write(start + text + ("" if pending else "\n"))
        stream.flush()

    return report
