"""How a command ends: done, or one clear message and the documented exit code, never a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from stacks.cli import interruption
from stacks.cli.errors import CliError, ExitCode

P = ParamSpec("P")
R = TypeVar("R")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn failures into one clear message and the documented exit code."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except CliError as error:
            click.echo(f"\nknobless: {error.message}", err=True)
            if error.hint:
                click.echo(f"  {error.hint}", err=True)
            sys.exit(int(error.code))
        except PermissionError as error:
            click.echo(f"\nknobless: this user may not use {error.filename}: run it as root (sudo)", err=True)
            sys.exit(int(ExitCode.MACHINE))
        except BrokenPipeError:
            raise  # whoever read our output has enough: click ends in silence
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"\nknobless: {where}{error.strerror or error}", err=True)
            sys.exit(int(ExitCode.MACHINE if error.errno in _FULL else ExitCode.FAILED))
        except KeyboardInterrupt:
            interruption.finish()
            click.echo("\nInterrupted. What is finished is kept; run the command again to go on.", err=True)
            sys.exit(int(ExitCode.INTERRUPTED))

    return wrapped
