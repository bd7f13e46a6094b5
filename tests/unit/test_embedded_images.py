"""What is told of a long build while it runs."""

from __future__ import annotations

from embedded.images import Steps


def test_a_step_is_told_when_it_begins_and_while_it_lasts_with_its_last_line() -> None:
    steps = Steps("build", 100.0)
    assert steps.lasting(110.0) == "  build, 10 s"
    assert (
        steps.read("STEP 4/9: RUN python3 -m venv /opt/model\n", 120.0) == "  STEP 4/9: RUN python3 -m venv /opt/model"
    )
    assert steps.read("Downloading torch (526 MB)\n", 130.0) is None
    assert steps.read("   ━━━━━━━━━━ 526/526 MB 130.0 MB/s\n", 140.0) is None
    assert steps.lasting(150.4) == "  STEP 4/9, 30 s: Downloading torch (526 MB)"
    assert steps.read("STEP 5/9: COPY a b\n", 160.0) is not None
    assert steps.lasting(165.0) == "  STEP 5/9, 5 s"


def test_what_is_told_fits_a_line() -> None:
    steps = Steps("push", 0.0)
    steps.read("x" * 5000, 0.0)
    assert len(steps.lasting(1.0)) == 100
