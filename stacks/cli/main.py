"""The commands and their help. Each command is a few lines here; the work is in its module."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from embedded.instance import Instance
from spec import names
from stacks.cli import (
    access,
    autoscaling,
    bring_up,
    check_image,
    interruption,
    pull_secrets,
    serve,
    simulate,
    views,
    workspace,
)
from stacks.cli.console import Console
from stacks.cli.errors import ExitCode
from stacks.cli.outcome import command
from stacks.cli.predict import INVOCATIONS
from stacks.cli.session import Session

VERSION = "0.1.0"
KEY_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 this machine lacks something, 4 a file under stacks/ is wrong, "
    "5 a policy refuses, 6 not found or not running, 7 the plan has changes (plan --expect-no-changes), "
    "8 an endpoint did not become ready, 130 interrupted."
)


def _environment(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if problem := names.name_problem("environment", value):
        raise click.BadParameter(problem)
    return value


def _instance(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    try:
        return Instance(value).name
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="knobless")
@click.option(
    "-e",
    "--environment",
    default=names.DEFAULT_ENVIRONMENT,
    envvar="KNOBLESS_ENVIRONMENT",
    callback=_environment,
    show_default=True,
    help="The folder below stacks/.",
)
@click.option(
    "--instance",
    default="default",
    envvar="KNOBLESS_INSTANCE",
    callback=_instance,
    show_default=True,
    help="The embedded cluster's name; two instances never meet.",
)
@click.pass_context
def cli(context: click.Context, environment: str, instance: str) -> None:
    """Serve any model without tuning: a model and a concurrency range in Git, the platform does the rest."""
    place = workspace.from_process(environment, instance)
    user_home = Path(os.environ["HOME"]) if os.environ.get("HOME") else None
    if problem := workspace.home_problem(place.home, place.root, user_home):
        raise click.UsageError(problem)
    context.obj = Session(place, Console())


@cli.command()
@click.option("--yes", is_flag=True, help="Remove endpoints whose file is gone without asking.")
@click.option("--only", multiple=True, metavar="ENDPOINT", help="Plan and apply only this endpoint (repeatable).")
@click.option("--announce", multiple=True, metavar="NAME", help="Agree to the removal or replacement of NAME.")
@click.option("--no-demo", is_flag=True, help="Train no example model and send no prediction.")
@click.pass_obj
@command
def up(session: Session, yes: bool, only: tuple[str, ...], announce: tuple[str, ...], no_demo: bool) -> None:
    """Start what is missing, then plan, gate and apply every stack."""
    bring_up.up(session, assume_yes=yes, only=only, announced=announce, demo=not no_demo)


@cli.command()
@click.pass_obj
@command
def build(session: Session) -> None:
    """Build and push the images that the endpoints under stacks/ need."""
    bring_up.build(session)


@cli.command()
@click.option(
    "--expect-no-changes", is_flag=True, help=f"Exit with {int(ExitCode.CHANGES)} where something would change."
)
@click.option("--announce", multiple=True, metavar="NAME", help="As with `up`: what was agreed to is not refused.")
@click.pass_obj
@command
def plan(session: Session, expect_no_changes: bool, announce: tuple[str, ...]) -> None:
    """Show what `up` would change, and whether pods restart."""
    bring_up.plan(session, announced=announce, expect_no_changes=expect_no_changes)


@cli.command()
@click.option("--purge", is_flag=True, help="Remove tools, images, the model registry's data and keys as well.")
@click.option("--yes", is_flag=True, help="Take the environment off a cluster of your own without asking.")
@click.option("--cluster-gone", is_flag=True, help="Your own cluster is no more: forget what stood there, ask nothing.")
@click.pass_obj
@command
def down(session: Session, purge: bool, yes: bool, cluster_gone: bool) -> None:
    """Stop everything that runs; tools, images, MLflow's data and keys stay."""
    bring_up.down(session, purge=purge, assume_yes=yes, cluster_gone=cluster_gone)


@cli.command()
@click.argument("endpoint", required=False)
@click.option("--json", "as_json", is_flag=True, help="The same, for programs.")
@click.pass_obj
@command
def status(session: Session, endpoint: str | None, as_json: bool) -> None:
    """Show endpoints: versions, replicas, target concurrency, last decisions and their reasons."""
    views.show_status(session, endpoint, as_json=as_json)


@cli.command()
@click.argument("endpoint")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
@click.option("-n", "--lines", default=50, show_default=True, help="Lines of each pod.")
@click.pass_obj
@command
def logs(session: Session, endpoint: str, follow: bool, lines: int) -> None:
    """Print the logs of an endpoint's pods, of `gateway`, or of `controllers`."""
    sys.exit(views.logs(session, endpoint, follow=follow, lines=lines))


@cli.command()
@click.argument("endpoint")
@click.option(
    "-d",
    "--data",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="A file with the request's JSON, or - for standard input; else the model's own input example.",
)
@click.option(
    "--path", default=INVOCATIONS, show_default=True, help="Below the endpoint's own; an image's file declares them."
)
@click.option("--key-file", type=KEY_FILE, help="A file with the API key.")
@click.pass_obj
@command
def predict(session: Session, endpoint: str, data: Path | None, path: str, key_file: Path | None) -> None:
    """Send one prediction through the gateway and print the answer."""
    payload = sys.stdin.buffer.read() if data == Path("-") else data.read_bytes() if data else None
    sys.exit(0 if views.predict(session, endpoint, payload, key_file, path) else int(ExitCode.FAILED))


@cli.group()
def keys() -> None:
    """Make, list and revoke API keys."""


@keys.command("create")
@click.option("--team", required=True, help="The team whose endpoints the key may call.")
@click.pass_obj
@command
def keys_create(session: Session, team: str) -> None:
    """Make a key: shown once, and saved to a file only you can read."""
    access.create_key(session, team)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="The same, for programs.")
@click.pass_obj
@command
def keys_list(session: Session, as_json: bool) -> None:
    """List the keys that the gateway accepts, without the keys."""
    access.list_keys(session, as_json=as_json)


@keys.command("revoke")
@click.argument("key_id")
@click.pass_obj
@command
def keys_revoke(session: Session, key_id: str) -> None:
    """Make a key invalid within a second."""
    access.revoke_key(session, key_id)


@cli.command("pull-secret")
@click.argument("name")
@click.option("--login", "login_file", type=KEY_FILE, help="A file of logins (docker's config.json); else your own.")
@click.pass_obj
@command
def pull_secret(session: Session, name: str, login_file: Path | None) -> None:
    """Write a login to the image registry as Secret NAME, wherever platform.yaml names it."""
    pull_secrets.write(session, name, login_file)


@cli.command("env")
@click.pass_obj
@command
def show_env(session: Session) -> None:
    """Print shell lines for `pulumi` and `kubectl` by hand: eval "$(knobless env)"."""
    for name, value in views.shell_variables(session).items():
        click.echo(f"export {name}={shlex.quote(value)}")


for each in (*autoscaling.COMMANDS, *simulate.COMMANDS, *check_image.COMMANDS, *serve.COMMANDS):
    cli.add_command(each)


def main(argv: list[str] | None = None) -> Any:
    interruption.install()
    return cli.main(args=argv, prog_name="knobless")


if __name__ == "__main__":
    main()
