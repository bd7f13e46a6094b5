"""The chains that the list of models is read from: whole at every moment, also while endpoints come and go."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from controllers.gateway.desired import MAPS, MODELS, Desired, Live, chains
from controllers.gateway.diff import Swap, diff
from controllers.gateway.observed import Declared, read_endpoint
from controllers.gateway.snapshot import Endpoint, Snapshot, endpoint
from tests.gateway_lab.cluster import endpoint_object

TEAMS = ("alpha", "beta")
ENDPOINTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "e", "alpha"]), st.sets(st.sampled_from(TEAMS), min_size=1), max_size=6
)


def declared(name: str, teams: set[str]) -> Endpoint:
    said = read_endpoint(endpoint_object(name, team=min(teams), teams=teams))
    assert isinstance(said, Declared)
    return endpoint(said, [], None)


def chains_of(endpoints: Mapping[str, set[str]]) -> dict[str, str]:
    return chains(Snapshot(tuple(declared(name, teams) for name, teams in sorted(endpoints.items()))))


def read(entries: Mapping[str, str], team: str) -> list[str]:
    """As HAProxy's program does."""
    found: list[str] = []
    following = entries.get(team)
    while following is not None:
        assert len(found) < 20, "the chain has no end"
        found.append(following)
        following = entries.get(f"{team}/{following}")
    return found


def may_use(endpoints: Mapping[str, set[str]], team: str) -> list[str]:
    return sorted(name for name, teams in endpoints.items() if team in teams)


@given(ENDPOINTS)
def test_a_teams_chain_names_the_endpoints_that_it_may_call(endpoints: dict[str, set[str]]) -> None:
    assert [read(chains_of(endpoints), team) for team in TEAMS] == [may_use(endpoints, team) for team in TEAMS]


@given(ENDPOINTS, ENDPOINTS)
def test_no_endpoint_that_stays_is_missing_at_any_step_of_a_change(
    before: dict[str, set[str]], after: dict[str, set[str]]
) -> None:
    entries = chains_of(before)
    empty: dict[str, Mapping[str, str]] = {name: {} for name in MAPS}
    steps = diff(Desired(maps=empty | {MODELS: chains_of(after)}), Live(1, maps=empty | {MODELS: dict(entries)}))
    for step in steps:
        assert not isinstance(step.action, Swap)
        assert step.entry is not None
        if step.entry.value is None:
            del entries[step.entry.key]
        else:
            entries[step.entry.key] = step.entry.value
        for team in TEAMS:
            listed = read(entries, team)
            assert set(may_use(before, team)) & set(may_use(after, team)) <= set(listed)
            assert set(listed) <= {*may_use(before, team), *may_use(after, team)}
    assert entries == chains_of(after)
