"""`keys create`, `list` and `revoke`: who may call, said to a person. Leaves how a key is kept to `keys`."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from stacks.cli import keys
from stacks.cli.console import table
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.session import Session


def create_key(session: Session, team: str) -> None:
    teams = session.platform().teams
    if team not in teams:
        known = ", ".join(sorted(teams)) or "none"
        raise CliError(f"no team {team!r} in platform.yaml (teams: {known})", code=ExitCode.NOT_FOUND)
    made = keys.make_key(team, datetime.now(UTC).isoformat(timespec="seconds"))
    session.with_kube(session.facts(), lambda kube: keys.add(kube, made))
    path = keys.save(session.workspace.keys_dir, made)
    session.console.result(made.secret)
    session.console.note(f"Key {made.key_id} of team {team}. It is not shown again; it is saved in {path}.")


def list_keys(session: Session, *, as_json: bool) -> None:
    present = session.with_kube(session.facts(), keys.entries)
    rows = [[key_id, entry.team, entry.created] for key_id, entry in sorted(present.items())]
    if as_json:
        fields = ("id", "team", "created")
        session.console.result(json.dumps([dict(zip(fields, row, strict=True)) for row in rows], indent=2))
    else:
        session.console.result(table(rows, ["KEY", "TEAM", "CREATED"]) if rows else "No keys.")


def revoke_key(session: Session, key_id: str) -> None:
    session.with_kube(session.facts(), lambda kube: keys.revoke(kube, key_id))
    (session.workspace.keys_dir / f"{key_id}.key").unlink(missing_ok=True)
    session.console.note(f"Key {key_id} is revoked.")
