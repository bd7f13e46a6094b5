"""What is said of an endpoint while it is applied, and after: when waiting is pointless, who failed, who is served.

The controllers say the first two. The last is asked of the gateway itself: after a cluster's restart every object still
tells of the life before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from controllers.kube import MODEL_ENDPOINTS, KubeClient, KubeError, Object
from spec import names
from stacks.cli import planning, status
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.predict import Answer
from stacks.cli.session import Session
from stacks.cluster import ClusterFacts

SERVED_BOUND_S: Final = 120.0
POLL_S: Final = 0.5
# What a gateway answers that has not seen a key, a route or a ready pod yet.
ON_ITS_WAY: Final = frozenset({401, 403, 404, 502, 503})


def watch(session: Session, facts: ClusterFacts, plan: planning.StackPlan) -> Callable[[], str | None]:
    """Asked while an endpoint's stack is applied: the controllers' word on why waiting is pointless.

    Only a word about the very spec that is applied counts: before it has arrived, the object may still tell of
    an earlier one.
    """
    parsed, digest = names.parse_stack(plan.stack), plan.spec_digest
    if not isinstance(parsed, names.EndpointStack) or digest is None:
        return lambda: None
    namespace, name = names.team_namespace(parsed.team), parsed.endpoint

    async def look(kube: KubeClient) -> str | None:
        try:
            found = await kube.get(MODEL_ENDPOINTS, namespace, name)
        except KubeError:
            return None  # not there yet, or no answer: not a word about the endpoint
        carried = (found["metadata"].get("annotations") or {}).get(names.ANNOTATION_SPEC_DIGEST)
        return refusal(found, parsed.file) if carried == digest else None

    def ask() -> str | None:
        try:
            return session.with_kube(facts, look)
        except CliError:
            return None

    return ask


def refusal(endpoint: Object, file: str) -> str | None:
    """Why the declared revision can't serve, and the way back where another one still does; None while it may."""
    failed = status.failure(endpoint)
    if failed is None:
        return None
    told = endpoint["status"]
    serving, revisions = told.get("trafficRevision"), told.get("revisions") or ()
    if not serving or serving == told.get("declaredRevision"):
        return failed
    version = next((each.get("modelVersion") for each in revisions if each.get("name") == serving), None)
    return f"{failed}\n{serving} (version {version}) still serves. To go back: undo the change of {file}, `knobless up`"


def check_ready(session: Session, plans: tuple[planning.StackPlan, ...]) -> None:
    """An endpoint that nothing had to be applied to may fail all the same; a run must not end well over it."""
    stacks = [names.parse_stack(plan.stack) for plan in plans if not plan.removed]
    files = {stack.endpoint: stack.file for stack in stacks if isinstance(stack, names.EndpointStack)}
    found = [item for item in session.endpoints() if item["metadata"]["name"] in files]
    refusals = ((name := item["metadata"]["name"], refusal(item, files[name])) for item in found)
    failed = [f"{name}: {told}" for name, told in refusals if told]
    if failed:
        raise CliError("\n".join(failed), hint="`knobless logs ENDPOINT` shows more", code=ExitCode.NOT_READY)
    for read in map(status.read, found):
        if not read.ready:
            session.console.note(f"    {read.endpoint} is not ready at the moment: {read.reason}: {read.message}")


def served(send: Callable[[], Answer], console: Console, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """The first answer that is more than "not yet", or the last one within the bound."""
    deadline_s = console.clock() + SERVED_BOUND_S
    while True:
        is_last = console.clock() >= deadline_s
        try:
            answer = send()
            if answer.status not in ON_ITS_WAY or is_last:
                return answer
            console.progress(f"not yet: HTTP {answer.status}")
        except CliError as error:
            if is_last or error.code is not ExitCode.NOT_FOUND:
                raise
            console.progress(f"not yet: {error.message}")
        sleep(POLL_S)
