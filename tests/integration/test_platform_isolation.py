"""Two teams' endpoints: a key opens its own only, and one in overload takes nothing from the other."""

from __future__ import annotations

import asyncio
import csv
import io
import socket
import time

import pytest

from spec import names
from tests.gateway_lab.client import Client, Reply
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import Suite, sleeping

STATS_PORT = 8404
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def ask_once(suite: Suite, endpoint: str, team: str, key: str) -> Reply:
    target = suite.target(endpoint, team)

    async def call() -> Reply:
        client = Client(target.port, key, target.tls, target.host)
        reply = await client.call(endpoint, body=sleeping(0.0), headers={"content-type": "application/json"})
        await client.leave()
        return reply

    return asyncio.run(call())


def longest_queue(suite: Suite, endpoint: str, team: str) -> int:
    """Most requests that ever waited in the endpoint's queue, as HAProxy itself tells."""
    status = suite.status(endpoint, team)
    back_end = status["gateway"]["backends"][status["trafficRevision"]]
    (pod,) = [p for p in suite.system_pods(names.COMPONENT_GATEWAY) if p["status"].get("phase") == "Running"]
    with socket.create_connection((pod["status"]["podIP"], STATS_PORT), 10) as connection:
        connection.sendall(b"show stat\n")
        text = connection.makefile().read()
    rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
    return next(int(row["qmax"]) for row in rows if (row["pxname"], row["svname"]) == (back_end, "BACKEND"))


@pytest.fixture
def two(suite: Suite) -> Suite:
    small = {"min": 1, "max": 4}
    suite.declare("crowded", "alpha", concurrency=small, queue={"max": 4, "timeout_s": 1})
    suite.declare("quiet", "beta", concurrency={"min": 1, "max": 64})
    suite.up("crowded", "quiet")
    return suite


def test_a_key_of_one_team_gets_403_at_the_other_and_an_unknown_one_401(two: Suite) -> None:
    assert ask_once(two, "quiet", "beta", two.key("beta")).status == 200
    assert ask_once(two, "quiet", "beta", two.key("alpha")).status == 403
    assert ask_once(two, "crowded", "alpha", two.key("beta")).status == 403
    assert ask_once(two, "quiet", "beta", "kn_nobodys").status == 401
    assert ask_once(two, "nowhere", "alpha", two.key("alpha")).status == 404


def test_a_shared_endpoint_takes_the_other_teams_key_and_a_revoked_key_stops_at_once(two: Suite) -> None:
    two.declare("quiet", "beta", concurrency={"min": 1, "max": 64}, access={"teams": ["alpha"]})
    two.up("quiet")
    wait_until(lambda: ask_once(two, "quiet", "beta", two.key("alpha")).status == 200, 10, "the other team's access")
    made = two.must("keys", "create", "--team", "beta")
    key, key_id = made.out.strip(), made.err.split("Key ")[1].split()[0]
    wait_until(lambda: ask_once(two, "quiet", "beta", key).status == 200, 10, "a new key works")
    two.must("keys", "revoke", key_id)
    wait_until(lambda: ask_once(two, "quiet", "beta", key).status == 401, 10, "a revoked key stops")


def test_with_one_endpoint_in_overload_every_answer_of_the_other_is_200(two: Suite) -> None:
    before = longest_queue(two, "quiet", "beta")  # a back end keeps the mark of the endpoint that had it earlier
    with two.load("crowded", clients=40, sleep_s=0.2) as overload:
        wait_until(lambda: overload.statuses[429] > 20, 30, "refusals at the crowded endpoint")
        with two.load("quiet", clients=2, sleep_s=0.0, team="beta", pause_s=0.02) as calm:
            time.sleep(10)
    # On a node this busy the one replica's limit may be learnt to be 1, for which one of the two clients waits.
    assert longest_queue(two, "quiet", "beta") <= max(before, 1) < longest_queue(two, "crowded", "alpha")
    assert set(overload.statuses) <= {200, 429}, (overload.statuses, overload.failures)
    assert calm.total > 50 and not calm.failed, calm.failures
