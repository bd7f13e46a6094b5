"""Removing and renaming an endpoint's file: what the plan says happens, and no orphan stays."""

from __future__ import annotations

import pytest

from spec import names
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import ENVIRONMENT, Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def everything_named(suite: Suite, endpoint: str) -> list[str]:
    kinds = "mep,deploy,svc,endpointslices,sa,netpol,pdb,pods,rs"
    label = f"{names.LABEL_ENDPOINT}={endpoint}"
    said = suite.kubectl("get", kinds, "-n", names.team_namespace("alpha"), "-l", label, "-o", "name")
    return said.out.split()


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
    wait_until(lambda: not everything_named(suite, "old-name"), 60, "everything of the old name is gone")
    assert suite.status("new-name")["trafficRevision"]

    suite.file("alpha", "new-name").unlink()
    suite.must("up", "--no-demo", "--yes")
    wait_until(lambda: not everything_named(suite, "new-name"), 60, "everything of the new name is gone")
    assert "new-name" not in suite.must("status").out
