"""The failures that a person can act on, and the exit code of each: the only place where codes are given."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `knobless`; the README lists them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    MACHINE = 3
    SPEC = 4
    POLICY = 5
    NOT_FOUND = 6
    CHANGES = 7
    NOT_READY = 8
    INTERRUPTED = 130


class CliError(Exception):
    """A failure with one clear message and, where there is one, the next thing to do.

    Args:
        message: what went wrong, naming the file, field or object.
        hint: what to do about it, a sentence or a command.
        code: the process's exit code.
    """

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
