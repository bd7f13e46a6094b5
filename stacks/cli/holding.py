"""A person's hold on an endpoint's replicas, written: one annotation, applied under the command line's own manager.

Leaves its meaning to the controllers. One idea: the time when a hold ends is told by the API server's clock, whatever
this machine's says; a Pulumi run neither sees the annotation nor takes it away.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable

from controllers.autoscaler.control import Control, Mode, control_text
from controllers.kube import MODEL_ENDPOINTS, KubeClient, Object
from controllers.kube.fields import at, items, key_of, mapping, seconds, timestamp
from spec import names
from spec.sizing import ceiling_replicas, floor_replicas
from stacks.cli.console import duration
from stacks.cli.session import Session
from stacks.cli.status import declared_target

LENGTH_LEAST_S, LENGTH_MOST_S = 10.0, 30 * 86_400.0
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SKEW_S = 2.0


def seconds_of(text: str) -> float:
    """`90s`, `30m`, `2h`, `1d`. Raises ValueError with a sentence."""
    match = re.fullmatch(r"([0-9]{1,7})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no length of time: 90s, 30m, 2h, 1d")
    length_s = float(int(match[1]) * _UNITS[match[2]])
    if not LENGTH_LEAST_S <= length_s <= LENGTH_MOST_S:
        raise ValueError(f"{text} is not from 10s to 30d")
    return length_s


def hold(session: Session, name: str, mode: Mode, replicas: int | None, length_s: float | None) -> None:
    endpoint = session.endpoint(name)
    control = session.with_kube(session.facts(), lambda kube: write(kube, endpoint, mode, replicas, length_s))
    session.console.result(said(name, control, length_s))
    if replicas is not None and (bound := bounded(endpoint, replicas)) is not None:
        session.console.note(bound)


def resume(session: Session, name: str) -> None:
    endpoint = session.endpoint(name)
    if names.ANNOTATION_CONTROL not in mapping(endpoint, "metadata", "annotations"):
        session.console.result(f"{name} is not held; the load decides")
        return
    session.with_kube(session.facts(), lambda kube: release(kube, endpoint))
    session.console.result(f"{name} is held no longer; the load decides from the next cycle on")


async def write(
    kube: KubeClient,
    endpoint: Object,
    mode: Mode,
    replicas: int | None,
    length_s: float | None,
    wall: Callable[[], float] = time.time,
) -> Control:
    """What was written. Twice where this machine's clock is not the API server's."""
    sent_s = wall()
    control = Control(mode, replicas, sent_s + length_s if length_s is not None else None)
    written_s = _written_s(await _apply(kube, endpoint, {names.ANNOTATION_CONTROL: control_text(control)}))
    if length_s is not None and written_s is not None and abs(written_s - sent_s) > _SKEW_S:
        control = Control(mode, replicas, written_s + length_s)
        await _apply(kube, endpoint, {names.ANNOTATION_CONTROL: control_text(control)})
    return control


async def release(kube: KubeClient, endpoint: Object) -> None:
    """Takes the annotation over first: another hand's would stay otherwise."""
    own = mapping(endpoint, "metadata", "annotations")[names.ANNOTATION_CONTROL]
    await _apply(kube, endpoint, {names.ANNOTATION_CONTROL: own})
    await _apply(kube, endpoint, {})


def _apply(kube: KubeClient, endpoint: Object, annotations: dict[str, str]) -> Awaitable[Object]:
    """With the uid: an apply makes no new endpoint of one that is gone, and touches none that came after it."""
    namespace, name = key_of(endpoint)
    body: Object = {"metadata": {"uid": endpoint["metadata"]["uid"], "annotations": annotations}}
    return kube.apply(MODEL_ENDPOINTS, namespace, name, names.MANAGER_CONTROL, body)


def _written_s(written: Object) -> float | None:
    """When the API server says that we wrote."""
    ours = (
        entry for entry in items(written, "metadata", "managedFields") if at(entry, "manager") == names.MANAGER_CONTROL
    )
    return next((seconds(at(entry, "time")) for entry in ours), None)


def said(name: str, control: Control, length_s: float | None) -> str:
    until = f" until {timestamp(control.until_s)} ({duration(length_s)})" if control.until_s and length_s else ""
    if control.mode is Mode.SCALE:
        return f"{name} gets {control.replicas} replicas{until}"
    ends = until or f" until `knobless resume {name}`"
    if control.mode is Mode.PAUSE:
        return f"{name} keeps its replicas{ends}"
    return f"{name} keeps its replicas{ends}; `knobless explain {name}` tells what they would be"


def bounded(endpoint: Object, replicas: int) -> str | None:
    """What the range makes of so many replicas, where that is another number."""
    target = declared_target(endpoint)
    if not target:
        return None
    least, most = (int(at(endpoint, "spec", "concurrency", bound)) for bound in ("min", "max"))
    low, high = floor_replicas(least, target), ceiling_replicas(most, target)
    if low <= replicas <= high:
        return None
    return f"its range of {least} to {most} requests allows {low} to {high} replicas at {target:g} each"
