"""The commands around the autoscaler: why there are so many replicas, and a person's hand on them.

The work is in `explain` and `holding`; a replay is the controllers' own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from controllers.autoscaler import replay as replaying
from controllers.autoscaler.control import Mode
from stacks.cli import explain as explaining
from stacks.cli import holding
from stacks.cli.errors import ExitCode
from stacks.cli.outcome import command
from stacks.cli.session import Session

_FOR_HELP = "How long: 90s, 30m, 2h, 1d."


def _length_s(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    """`30m` as seconds."""
    try:
        return holding.seconds_of(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("endpoint")
@click.option("--json", "as_json", is_flag=True, help="The same, for programs.")
@click.option("--records", is_flag=True, help="Print its records of decisions, one JSON line each, for `replay`.")
@click.option("--last", type=click.IntRange(min=1), help="With --records: only so many, the newest.")
@click.pass_obj
@command
def explain(session: Session, endpoint: str, as_json: bool, records: bool, last: int | None) -> None:
    """Say why an endpoint has the replicas that it has."""
    if records:
        explaining.show_records(session, endpoint, last)
    else:
        explaining.show(session, endpoint, as_json=as_json)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@command
def replay(file: Path) -> None:
    """Decide the records in FILE (- for standard input) once more; exits with 1 where one comes out otherwise."""
    with click.open_file(str(file)) as lines:
        replayed = replaying.replay(lines)
    click.echo(replaying.told(replayed))
    sys.exit(int(ExitCode.OK if replayed.first is None else ExitCode.FAILED))


@click.command()
@click.argument("endpoint")
@click.option("--replicas", type=click.IntRange(min=1), required=True, help="How many.")
@click.option("--for", "length_s", callback=_length_s, metavar="TIME", required=True, help=_FOR_HELP)
@click.pass_obj
@command
def scale(session: Session, endpoint: str, replicas: int, length_s: float) -> None:
    """Set an endpoint's replicas for a while, within its concurrency range; then the load decides again."""
    holding.hold(session, endpoint, Mode.SCALE, replicas, length_s)


@click.command()
@click.argument("endpoint")
@click.option("--for", "length_s", callback=_length_s, metavar="TIME", help=f"{_FOR_HELP} Without it until `resume`.")
@click.pass_obj
@command
def pause(session: Session, endpoint: str, length_s: float | None) -> None:
    """Keep an endpoint's replicas as they are."""
    holding.hold(session, endpoint, Mode.PAUSE, None, length_s)


@click.command("dry-run")
@click.argument("endpoint")
@click.option("--for", "length_s", callback=_length_s, metavar="TIME", help=f"{_FOR_HELP} Without it until `resume`.")
@click.pass_obj
@command
def dry_run(session: Session, endpoint: str, length_s: float | None) -> None:
    """Keep an endpoint's replicas as they are, and tell in its status what they would be."""
    holding.hold(session, endpoint, Mode.DRY_RUN, None, length_s)


@click.command()
@click.argument("endpoint")
@click.pass_obj
@command
def resume(session: Session, endpoint: str) -> None:
    """End `scale`, `pause` and `dry-run`: the load decides again."""
    holding.resume(session, endpoint)


COMMANDS: tuple[click.Command, ...] = (explain, replay, scale, pause, dry_run, resume)
