"""Endpoints are read when they change, and one that can't be read harms none and is told once."""

import pytest

from controllers.autoscaler.roster import Roster
from controllers.kube import Object


def endpoint(name: str, **metadata: str) -> Object:
    spec = {"concurrency": {"min": 1, "max": 9}, "runtime": {"initialLimit": 8}}
    return {"metadata": {"namespace": "t", "name": name, "uid": name, **metadata}, "spec": spec}


def test_an_object_is_read_again_only_when_it_changed(caplog: pytest.LogCaptureFixture) -> None:
    roster, good, broken = Roster(), endpoint("good"), {"metadata": {"namespace": "t", "name": "bad", "uid": "b"}}
    objects = {("t", "good"): good, ("t", "bad"): broken}
    (first,) = roster.endpoints(objects)
    (again,) = roster.endpoints(objects)
    assert again[0] is first[0]
    assert len(caplog.records) == 1, "said once"
    ((changed, _),) = roster.endpoints(objects | {("t", "good"): endpoint("good")})
    assert changed is not first[0]


def test_one_that_is_being_deleted_or_is_gone_is_not_among_them() -> None:
    roster = Roster()
    assert roster.endpoints({("t", "a"): endpoint("a", deletionTimestamp="now")}) == []
    assert len(roster.endpoints({("t", "b"): endpoint("b")})) == 1
    assert roster.endpoints({}) == []
