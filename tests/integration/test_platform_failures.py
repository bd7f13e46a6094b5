"""What a person gets wrong: the error they need, nothing half-applied, the running revision keeps serving."""

from __future__ import annotations

import pytest

from stacks.cli.errors import ExitCode
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def served(suite: Suite) -> Suite:
    suite.declare("kept", model="models:/sleeper/1")
    suite.up("kept")
    return suite


def still_serves(suite: Suite) -> None:
    with suite.load("kept", clients=2, sleep_s=0.0) as tally:
        wait_until(lambda: tally.total >= 10, 20, "answers")
    assert not tally.failed, tally.failures


def test_a_broken_file_is_told_with_its_line_before_anything_happens(served: Suite) -> None:
    path = served.file("alpha", "kept")
    path.write_text(path.read_text().replace("max: 64", "max: 1e3") + "colour: red\n")
    said = served.knobless("up", "--no-demo")
    served.declare("kept", model="models:/sleeper/1")
    assert said.code == ExitCode.SPEC, said.text
    assert "kept.yaml:" in said.err and "1e3" in said.err and "colour" in said.err
    still_serves(served)


def test_an_unknown_version_names_those_that_exist(served: Suite) -> None:
    served.declare("kept", model="models:/sleeper/99")
    said = served.knobless("up", "--no-demo", "--only", "kept")
    served.declare("kept", model="models:/sleeper/1")
    assert said.code != 0
    assert "models:/sleeper/99" in said.err and "1, 2, 3" in said.err, said.text
    still_serves(served)


def test_a_model_that_cannot_load_is_told_with_its_own_words_and_takes_no_traffic(served: Suite) -> None:
    before = served.status("kept")["trafficRevision"]
    served.declare("kept", model="models:/broken/1")
    said = served.knobless("up", "--no-demo", "--only", "kept")
    assert said.code == ExitCode.NOT_READY, said.text
    assert "another architecture" in said.err, said.text
    assert served.status("kept")["trafficRevision"] == before
    still_serves(served)
    served.declare("kept", model="models:/sleeper/1")
    served.up("kept")
    wait_until(lambda: len(served.deployments("kept")) == 1, 60, "the failed revision is removed")
    still_serves(served)


def test_an_image_that_cannot_be_pulled_is_told_and_takes_no_traffic(served: Suite) -> None:
    from tests.platform_lab.patching import with_image

    before = served.status("kept")["trafficRevision"]
    with with_image(served, "kept", "127.0.0.1:9/none@sha256:" + "0" * 64):
        ready = wait_until(
            lambda: (c := served.condition("kept", "Ready")).get("status") == "False" and c, 60, "Ready is False"
        )
        wait_until(lambda: "Image" in served.condition("kept", "Ready")["reason"], 90, f"an image reason, not {ready}")
        assert served.status("kept")["trafficRevision"] == before
        still_serves(served)
    wait_until(lambda: served.condition("kept", "Ready").get("status") == "True", 90, "Ready again")


def test_a_policy_violation_stops_before_anything_is_applied(served: Suite) -> None:
    from tests.platform_lab.patching import with_extra_rule

    before = served.object("kept")
    served.declare("kept", model="models:/sleeper/2")
    with with_extra_rule(served):
        said = served.knobless("up", "--no-demo", "--only", "kept")
    served.declare("kept", model="models:/sleeper/1")
    assert said.code == ExitCode.POLICY, said.text
    after = served.object("kept")
    assert before is not None and after is not None
    assert before["metadata"]["generation"] == after["metadata"]["generation"]
    still_serves(served)
