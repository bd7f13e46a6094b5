"""What `explain` says: every number with what it came from, who holds, and nothing guessed."""

import json
from typing import Any

import pytest

from stacks.cli import explain

NOW_S = 1_767_225_612.0  # 2026-01-01T00:00:12Z
LOAD = {"inFlight": 90.0, "queued": 12.5, "arrivedRps": 900.0, "refusedRps": 8.0, "serviceTimeS": 0.2, "peak": 201.0}
DECISION = {"at": "t", "revision": "wine-1", "from": 2, "to": 4, "reason": "Overload", "detail": "demand 180.3"}


def endpoint(conditions: tuple[tuple[str, str], ...] = (), **scaler: Any) -> dict[str, Any]:
    spec = {"team": "alpha", "model": {"uri": "models:/wine/1"}, "concurrency": {"min": 1, "max": 500}}
    said = {
        "readyReplicas": 2,
        "desiredReplicas": 4,
        "targetConcurrency": 51.2,
        "demand": 180.5,
        "decidedAt": "2026-01-01T00:00:00Z",
        "load": LOAD,
        "reason": "Overload",
        "rules": "raw 4, ceiling 10",
        "revisions": {"wine-1": {"limit": 64, "target": 51.2, "desired": 4, "sized": True}},
        "decisions": [DECISION],
    }
    told = [{"type": kind, "status": "True", "message": message} for kind, message in conditions]
    status = {"trafficRevision": "wine-1", "autoscaler": said | scaler, "conditions": told}
    return {"metadata": {"name": "wine", "generation": 1}, "spec": spec, "status": status}


def test_one_screen_tells_the_whole_chain() -> None:
    text = explain.render(explain.explanation(endpoint((("Paused", "replicas are held"),)), NOW_S))
    assert text == (
        "wine (team alpha): 2 ready, 4 asked for (Overload), 1 to 10 by its range\n"
        "\n"
        "load    900.0 requests/s, 8.0 refused/s, 90.0 in flight, 12.5 queued, 0.2 s each (12 s ago)\n"
        "demand  180.5: 900.0 first attempts/s x 0.2 s = 180.0, and 0.5 for the backlog; 201.0 at most of late\n"
        "target  51.2 requests a replica, limit 64\n"
        "\n"
        "raw           4   demand over target\n"
        "ceiling      10   never more: concurrency.max\n"
        "\n"
        "Paused  replicas are held\n"
        "\n"
        "AT  REVISION  REPLICAS  REASON    DETAIL\n"
        "t   wine-1    2 -> 4    Overload  demand 180.3"
    )


def test_a_replica_over_several_nodes_is_told_so() -> None:
    wide = endpoint()
    wide["spec"]["nodes"] = 2
    (line, *_) = explain.render(explain.explanation(wide, NOW_S)).splitlines()
    assert line == "wine (team alpha): 2 ready, 4 asked for (Overload), 1 to 10 by its range, each over 2 nodes"


@pytest.mark.parametrize(
    ("load", "demand", "origin"),
    [
        (LOAD, 180.5, "900.0 first attempts/s x 0.2 s = 180.0, and 0.5 for the backlog"),
        (LOAD, 180.0, "900.0 first attempts/s x 0.2 s"),
        (LOAD, 102.5, "90.0 in flight and 12.5 queued"),
        ({"inFlight": 3.0, "queued": 0.0}, 3.0, "3.0 in flight and 0.0 queued"),
        ({}, None, "no gateway tells the load"),
    ],
)
def test_the_demand_is_told_with_where_it_came_from(load: dict[str, float], demand: float | None, origin: str) -> None:
    assert explain.explanation(endpoint(load=load, demand=demand), NOW_S).origin == origin


def test_who_holds_is_told_and_nobody_too() -> None:
    held = explain.explanation(endpoint((("Ready", "x"), ("AtCeiling", "c"), ("CircuitOpen", "p"))), NOW_S)
    assert held.held_by == (("CircuitOpen", "p"), ("AtCeiling", "c"))
    assert "Held by nobody" in explain.render(explain.explanation(endpoint(), NOW_S))


def test_what_is_learnt_of_a_replica_is_told() -> None:
    learnt = {"wine-1": {"limit": 40, "knee": 41.5, "why": "Raised"}}
    text = explain.render(explain.explanation(endpoint(revisions=learnt), NOW_S))
    assert "limit 40, knee 41.5: Raised" in text


def test_the_range_is_counted_by_the_declared_target_and_not_by_a_large_pools_own() -> None:
    pooled = {"wine-1": {"limit": 64, "target": 57.6, "declared": 51.2}}
    told = explain.explanation(endpoint(targetConcurrency=57.6, revisions=pooled), NOW_S)
    assert (told.target_concurrency, told.range_replicas) == (57.6, (1, 10))
    untold = explain.explanation(endpoint(targetConcurrency=57.6), NOW_S)
    assert untold.range_replicas == (1, 9), "as a controller of before has it"


def test_an_endpoint_of_which_nothing_is_told_shows_dashes_and_no_zero() -> None:
    bare = endpoint()
    del bare["status"]
    text = explain.render(explain.explanation(bare, NOW_S))
    assert text.splitlines()[0] == "wine (team alpha): - ready, - asked for"
    assert "load    -" in text and "demand  -: no gateway tells the load" in text and "0" not in text


def test_json_holds_all_of_it() -> None:
    told = explain.explanation(endpoint(), NOW_S)
    plain = json.loads(json.dumps(explain.asdict(told)))
    assert (plain["rules"], plain["range_replicas"], plain["held_by"]) == ([["raw", 4], ["ceiling", 10]], [1, 10], [])


def test_records_of_several_pods_are_put_in_the_order_of_time() -> None:
    assert explain.in_order(['{"at_s": 2.5}', '{"at_s": 1e3}', '{"at_s": 0.5}']) == [
        '{"at_s": 0.5}',
        '{"at_s": 2.5}',
        '{"at_s": 1e3}',
    ]
