"""What the watches tell makes a pass due only where it says something new."""

from __future__ import annotations

import copy

import pytest

from controllers.gateway.observation import Observation
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS, Event
from tests.gateway_lab.cluster import Object, endpoint_object, keys_object, revision, slice_object
from tests.gateway_lab.pods import Pod, takes

REV = revision("iris")


class Heard:
    """An observation that has seen everything once, and how often it called since."""

    def __init__(self) -> None:
        self.times = 0
        self.observation = Observation(self._hear)
        self.observation.load([endpoint_object()], [pods("a")], [keys_object({"k": "alpha"})])
        self.times = 0

    def _hear(self) -> None:
        self.times += 1


def pods(*letters: str) -> Object:
    return slice_object("iris", REV, [Pod(f"{REV}-{each}", takes(0), port=8080) for each in letters])


def rewritten(obj: Object, **status: object) -> Object:
    found = copy.deepcopy(obj)
    found["status"] |= status
    return found


def test_a_status_of_other_writers_is_no_change() -> None:
    heard = Heard()
    said = rewritten(endpoint_object(), conditions=[{"type": "Ready", "status": "True"}], note="x")
    heard.observation.take(MODEL_ENDPOINTS, Event("MODIFIED", (said,)))
    heard.observation.take(ENDPOINT_SLICES, Event("MODIFIED", (pods("a"),)))
    assert heard.times == 0
    assert list(heard.observation.objects.values()) == [said]


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (MODEL_ENDPOINTS, Event("MODIFIED", (endpoint_object(limits={REV: 2}),))),
        (MODEL_ENDPOINTS, Event("MODIFIED", (endpoint_object(generation=2),))),
        (MODEL_ENDPOINTS, Event("ADDED", (endpoint_object("rose"),))),
        (MODEL_ENDPOINTS, Event("DELETED", (endpoint_object(),))),
        (MODEL_ENDPOINTS, Event("SYNC", (endpoint_object(),))),
        (ENDPOINT_SLICES, Event("MODIFIED", (pods("a", "b"),))),
        (ENDPOINT_SLICES, Event("DELETED", (pods("a"),))),
        (SECRETS, Event("MODIFIED", (keys_object({"other": "alpha"}),))),
    ],
)
def test_what_says_something_new_is_a_change(kind: object, event: Event) -> None:
    heard = Heard()
    heard.observation.take(kind, event)  # type: ignore[arg-type]
    assert heard.times == 1


def test_the_same_fault_in_a_later_generation_is_a_change_since_its_condition_names_it() -> None:
    heard = Heard()
    for generation in (2, 3, 3):
        bad = endpoint_object(limits={REV: 0}, generation=generation)
        heard.observation.take(MODEL_ENDPOINTS, Event("MODIFIED", (bad,)))
    assert heard.times == 2
