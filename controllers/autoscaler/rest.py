"""When an endpoint may go without a decision, and what is known of it afterwards. Pure.

Its one idea: where no load comes and nothing is to be done, a decision would say once more what the last one said. So
the endpoint is left alone for a while, and what its samples told meanwhile, that nothing came, is remembered when it is
looked at again: the windows are then as if it had been looked at all the time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from controllers.autoscaler.circuit import Circuit
from controllers.autoscaler.core import Decision, State, Verdict
from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.fleet import has_load
from controllers.autoscaler.load import LoadSample
from controllers.autoscaler.recent import SPAN_S
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.view import Endpoint
from spec.sizing import floor_replicas

REST_S = 60.0
DOUBT_S = 15.0  # while the load is unknown there may be something to tell
LOOK_S = 300.0  # one decision at least, whatever the samples say


def rest_s(endpoint: Endpoint, verdict: Verdict, circuits: Mapping[str, Circuit]) -> float:
    """From this decision to the next; 0 where the usual cycle holds. What ends by itself, a person's hold or a circuit,
    is not slept over, nor a decrease that only waits for its window to be known."""
    settled = all(_is_settled(decision, endpoint) for decision in verdict.decisions)
    if verdict.peak != 0 or not settled or circuits or endpoint.control is not None:
        return 0.0
    return REST_S if verdict.demand.requests == 0 and verdict.demand.complete else DOUBT_S


def _is_settled(decision: Decision, endpoint: Endpoint) -> bool:
    waits = decision.reason is Reason.HISTORY
    return decision.desired == (floor_replicas(endpoint.concurrency_min, decision.target) if waits else decision.issued)


def rested(remembered: Remembered, samples: Sequence[LoadSample], settings: Settings, now_s: float) -> Remembered:
    """With every span of the time since the last decision in which the samples tell of no load at all."""
    known_at_s = remembered.state.demands.known_at_s
    if known_at_s is None or now_s - known_at_s <= DOUBT_S + settings.cycle_s:
        return remembered
    spans = range(1, int((now_s - known_at_s) / SPAN_S) + 1)
    ends = takewhile(lambda end_s: _is_silent(samples, end_s), (known_at_s + n * SPAN_S for n in spans))
    return replace(remembered, state=_with_silence(remembered.state, ends, settings))


def is_filled(remembered: Remembered, now_s: float) -> bool:
    """Whether silence is known up to now, but for a span that has not ended."""
    known_at_s = remembered.state.demands.known_at_s
    return known_at_s is not None and now_s - known_at_s <= SPAN_S


def _is_silent(samples: Iterable[LoadSample], end_s: float) -> bool:
    """As a window's mean has it: seconds that are not known say nothing, where others are known in full."""
    within = [sample for sample in samples if end_s - SPAN_S < sample.at_s <= end_s and sample.load is not None]
    loads = [sample.load for sample in within if sample.load is not None]
    return any(sample.complete for sample in within) and not any(map(has_load, loads))


def _with_silence(state: State, ends: Iterable[float], settings: Settings) -> State:
    for at_s in ends:
        demands = state.demands.add(at_s, 0.0, True, settings.down_window_s, settings.gap_s)
        recent = state.recent.add(at_s, 0.0, state.recent.limit, settings.recent_s)
        state = replace(state, demands=demands, recent=recent, known_at_s=at_s)
    return state
