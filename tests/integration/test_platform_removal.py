"""Removing and renaming: an endpoint's file, a team. What the plan says happens, and no orphan stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from spec import names
from stacks.cli.errors import ExitCode
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import ENVIRONMENT, PLATFORM, Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def everything_named(suite: Suite, endpoint: str) -> list[str]:
    kinds = "mep,deploy,svc,endpointslices,sa,netpol,pdb,pods,rs"
    label = f"{names.LABEL_ENDPOINT}={endpoint}"
    said = suite.kubectl("get", kinds, "-n", names.team_namespace("alpha"), "-l", label, "-o", "name")
    return said.out.split()


def declare_platform(suite: Suite, **changed: Any) -> None:
    (suite.folder / names.PLATFORM_FILE).write_text(yaml.safe_dump({**PLATFORM, **changed}))


@pytest.fixture
def platform_file(suite: Suite) -> Iterator[None]:
    """The platform as the other tests know it, whatever became of it here."""
    yield
    declare_platform(suite)
    suite.must("up", "--no-demo", "--yes", "--announce", "team-leaving")


@pytest.mark.case("pulumi-C5")
def test_a_renamed_file_moves_the_endpoint_and_a_removed_one_ends_it_without_an_orphan(suite: Suite) -> None:
    path = suite.declare("old-name")
    suite.up("old-name")
    path.unlink()
    suite.declare("new-name")

    planned = suite.must("plan").text
    assert f"{ENVIRONMENT}.alpha.old-name: its file is gone" in planned
    assert f"{ENVIRONMENT}.alpha.new-name" in planned and "new endpoint" in planned

    refused = suite.knobless("up", "--no-demo")
    assert refused.code != 0 and "--yes" in refused.err
    assert suite.object("old-name") is not None, "without a yes nothing is removed"

    suite.must("up", "--no-demo", "--yes")
    assert suite.object("old-name") is None
    assert suite.pods("old-name") == [], "a removal ends when its pods are gone"
    wait_until(lambda: not everything_named(suite, "old-name"), 60, "everything of the old name is gone")
    assert suite.status("new-name")["trafficRevision"]

    suite.file("alpha", "new-name").unlink()
    suite.must("up", "--no-demo", "--yes")
    wait_until(lambda: not everything_named(suite, "new-name"), 60, "everything of the new name is gone")
    assert "new-name" not in suite.must("status").out


def test_a_team_goes_with_one_announced_up_its_endpoints_drained_first(suite: Suite, platform_file: None) -> None:
    declare_platform(suite, teams={**PLATFORM["teams"], "leaving": {}})
    path = suite.declare("last", team="leaving")
    suite.must("up", "--no-demo")
    path.unlink()
    declare_platform(suite)

    refused = suite.knobless("plan")
    assert refused.code == ExitCode.POLICY, refused.text
    assert "delete Namespace team-leaving" in refused.err and "--announce NAME" in refused.err
    refused = suite.knobless("up", "--no-demo", "--yes")
    assert refused.code == ExitCode.POLICY, refused.text
    assert suite.status("last", team="leaving")["trafficRevision"], "nothing was applied"

    said = suite.must("up", "--no-demo", "--yes", "--announce", "team-leaving").err
    assert said.index(f"Removing {ENVIRONMENT}.leaving.last") < said.index(f"Applying {ENVIRONMENT}.platform")
    assert "announced: delete of Namespace team-leaving" in said
    assert suite.kubectl("get", "namespace", "team-leaving").code != 0
    suite.must("plan", "--expect-no-changes")


def test_a_missing_pull_secret_stops_up_with_its_name_and_pods_pull_with_one_that_is_there(
    suite: Suite, platform_file: None
) -> None:
    declare_platform(suite, teams={"alpha": {"pull_secrets": ["login"]}, "beta": {}})
    suite.declare("pulling")
    assert "`up` will stop: Secret login is missing in team-alpha" in suite.must("plan").err
    stopped = suite.knobless("up", "--no-demo")
    assert stopped.code == ExitCode.NOT_FOUND, stopped.text
    assert "- Secret login is missing in team-alpha" in stopped.err
    assert suite.object("pulling") is None

    logins = suite.folder.parent / "logins.json"
    logins.write_text(f'{{"auths": {{"{suite.instance.registry}": {{"auth": "bm9ib2R5OnNlY3JldA=="}}}}}}')
    wrote = suite.must("pull-secret", "login", "--login", str(logins))
    assert "the login of nobody" in wrote.err and "secret" not in wrote.text.replace("Secret", "")
    suite.must("up", "--no-demo")
    (pod,) = suite.pods("pulling")
    assert pod["spec"]["imagePullSecrets"] == [{"name": "login"}]
    suite.file("alpha", "pulling").unlink()
