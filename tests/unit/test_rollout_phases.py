"""The table of phases: every legal edge is one that the design names, every other one raises."""

from pathlib import Path

import pytest

from controllers.rollout.phases import TABLE, Happening, IllegalEdge, Phase, diagram, step

ALL = [(phase, happening) for phase in Phase for happening in Happening]
LEGAL = {(phase, happening) for phase, edges in TABLE.items() for happening in edges}


@pytest.mark.parametrize(("phase", "happening"), sorted(set(ALL) - LEGAL))
def test_an_edge_outside_the_table_raises(phase: Phase, happening: Happening) -> None:
    with pytest.raises(IllegalEdge, match=str(phase)):
        step(phase, happening)


@pytest.mark.parametrize(("phase", "happening"), sorted(LEGAL))
def test_an_edge_of_the_table_leads_to_a_state_of_the_table(phase: Phase, happening: Happening) -> None:
    assert step(phase, happening) in TABLE


def test_every_phase_has_its_row() -> None:
    assert set(TABLE) == set(Phase)


def test_every_phase_is_reached_from_the_start_and_can_end() -> None:
    reached, frontier = {Phase.ABSENT}, {Phase.ABSENT}
    while frontier:
        frontier = {after for phase in frontier for after in TABLE[phase].values()} - reached
        reached |= frontier
    assert reached == set(Phase)
    ends = {phase for phase in Phase if Phase.GONE in TABLE[phase].values()}
    assert ends >= set(Phase) - {Phase.ABSENT, Phase.GONE}


def test_nothing_that_serves_is_removed_by_a_declaration() -> None:
    assert Happening.WITHDRAWN not in TABLE[Phase.SERVING]
    assert Happening.FAILED not in TABLE[Phase.SERVING]


def test_the_page_about_rollouts_shows_the_table_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "rollout.md"
    text = page.read_text()
    assert f"```mermaid\n{diagram()}\n```" in text
    assert all(f"| {happening.name.lower()} | {happening} |" in text for happening in Happening)
