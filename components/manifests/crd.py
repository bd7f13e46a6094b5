"""Owns the kind `ModelEndpoint`: schema, validation rules, printer columns.

Leaves to `endpoint` what an object of it says and to the controllers what its status means. One idea: each part of
the status is shaped so that its one writer can apply it without touching a neighbour's (records merge field by
field, lists that two writers share are maps by key).
"""

from __future__ import annotations

from typing import Final

from components.manifests.objects import Manifest, manifest
from components.manifests.schema import (
    Schema,
    anything,
    by_name,
    flag,
    label,
    moment,
    number,
    record,
    rows,
    rule,
    text,
    whole,
    words,
)
from spec import names
from spec.container import PATHS_MOST
from spec.endpoint import NODES_MOST

PHASES: Final = ("Starting", "Ready", "Serving", "Draining", "Held", "Failed")
TEAMS_MOST: Final = 64
CONCURRENCY_MOST: Final = 1_000_000
REVISION_LONGEST: Final = names.ENDPOINT_MAX + 1 + names.REVISION_HASH_LENGTH
# The waiting room of a rollout; a model that needs a day to load is a mistake, not a wish.
DURATION_MOST_S: Final = 86_400


def _spec() -> Schema:
    fields = record(
        ("team", "model", "runtime", "podTemplate", "concurrency", "routing", "access", "rollout"),
        team=label(longest=names.TEAM_MAX),
        model=record(
            ("uri", "version", "sha256"),
            uri=text(longest=512, minLength=1),
            version=text(longest=64, minLength=1),
            sha256=text(longest=64, pattern="^[0-9a-f]{64}$"),
        ),
        runtime=record(("name", "initialLimit"), name=label(), initialLimit=whole(1, CONCURRENCY_MOST)),
        podTemplate=record(
            ("metadata", "spec"),
            metadata=record(labels=by_name(text()), annotations=by_name(text(longest=4096))),
            spec=anything(),
        ),
        nodes=whole(1, NODES_MOST),
        concurrency=record(("min", "max"), min=whole(1, CONCURRENCY_MOST), max=whole(1, CONCURRENCY_MOST)),
        routing=record(
            ("deadlineMs", "queueMax", "queueTimeoutMs"),
            deadlineMs=whole(1, 297_000),
            queueMax=whole(0, CONCURRENCY_MOST),
            queueTimeoutMs=whole(0, 297_000),
            paths=words(text(longest=names.URL_PATH_MAX, pattern=f"^{names.URL_PATH}$"), most=PATHS_MOST),
            affinity=text(longest=16, enum=[names.AFFINITY_PREFIX]),
        ),
        latency=record(("p95Ms",), p95Ms=whole(1, 297_000)),
        access=record(("teams",), teams=words(label(longest=names.TEAM_MAX), most=TEAMS_MOST, least=1)),
        rollout=record(
            ("holdS", "startTimeoutS"), holdS=whole(0, DURATION_MOST_S), startTimeoutS=whole(1, DURATION_MOST_S)
        ),
    )
    return fields | {"x-kubernetes-validations": _rules()}


def _rules() -> list[Schema]:
    return [
        rule(
            "self.concurrency.min <= self.concurrency.max",
            "concurrency.min may not be above concurrency.max",
            ".concurrency.min",
        ),
        rule(
            "self.team in self.access.teams",
            "access.teams must hold the endpoint's own team",
            ".access.teams",
        ),
        rule("self.team == oldSelf.team", "an endpoint belongs to its team for life", ".team"),
    ]


def _condition() -> Schema:
    return record(
        ("type", "status", "lastTransitionTime", "reason"),
        type=text(longest=64, minLength=1),
        status=text(longest=16, enum=["True", "False", "Unknown"]),
        observedGeneration=whole(0),
        lastTransitionTime=moment(),
        reason=text(longest=128, minLength=1),
        message=text(longest=4096),
    )


def _revision() -> Schema:
    return record(
        ("name", "phase"),
        name=text(longest=REVISION_LONGEST),
        phase=text(longest=16, enum=list(PHASES)),
        modelVersion=text(longest=64),
        since=moment(),
        reason=text(longest=128),
        message=text(longest=4096),
    )


def _autoscaler() -> Schema:
    probe = record(("pod", "limit"), pod=text(), limit=whole(1), weight=whole(1, 256))
    learnt = {"knee": number(0), "baselineMs": number(0), "why": text(longest=256), "probe": probe}
    sized = record(limit=whole(0), target=number(0), declared=number(0), desired=whole(0), sized=flag(), **learnt)
    decision = record(
        at=moment(),
        revision=text(longest=REVISION_LONGEST),
        **{"from": whole(0), "to": whole(0)},
        reason=text(longest=128),
        detail=text(longest=1024),
    )
    seen = ("inFlight", "queued", "arrivedRps", "refusedRps", "serviceTimeS", "peak")
    return record(
        desiredReplicas=whole(0),
        readyReplicas=whole(0),
        targetConcurrency=number(0),
        demand=number(0),
        load=record(**{name: number(0) for name in seen}),
        reason=text(longest=128),
        rules=text(longest=1024),
        lastDecision=text(longest=256),
        decidedAt=moment(),
        revisions=by_name(sized),
        decisions=rows(decision, most=10),
    )


def _gateway() -> Schema:
    return record(
        generation=whole(0),
        trafficRevision=text(longest=REVISION_LONGEST),
        backends=by_name(text(longest=32)),
        limits=by_name(whole(0)),
        readyServers=by_name(whole(0)),
        probes=by_name(record(pod=text(), limit=whole(0))),
        at=moment(),
    )


def _status() -> Schema:
    return record(
        observedGeneration=whole(0),
        declaredRevision=text(longest=REVISION_LONGEST),
        trafficRevision=text(longest=REVISION_LONGEST),
        modelVersion=text(longest=64),
        readySpecDigest=text(longest=64),
        revisions=rows(_revision(), most=32, key="name"),
        conditions=rows(_condition(), most=16, key="type"),
        autoscaler=_autoscaler(),
        gateway=_gateway(),
    )


def _schema() -> Schema:
    named = rule(
        f"self.metadata.name.size() <= {names.ENDPOINT_MAX}",
        f"the name of an endpoint has at most {names.ENDPOINT_MAX} characters",
    )
    fields = record(
        ("spec",),
        apiVersion={"type": "string"},
        kind={"type": "string"},
        metadata={"type": "object"},
        spec=_spec(),
        status=_status(),
    )
    return fields | {"x-kubernetes-validations": [named]}


def _column(name: str, path: str, *, kind: str = "string", wide: bool = False, about: str) -> Manifest:
    # Priority 1 is shown by `-o wide` only.
    column = {"name": name, "type": kind, "jsonPath": path, "description": about}
    return column | ({"priority": 1} if wide else {})


def _columns() -> list[Manifest]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    scaled = ".status.autoscaler"
    return [
        _column("Version", ".status.modelVersion", about="Model version that gets the traffic"),
        _column("Ready", f"{scaled}.readyReplicas", kind="integer", about="Replicas that take requests"),
        _column("Desired", f"{scaled}.desiredReplicas", kind="integer", about="Replicas asked for"),
        _column("Target", f"{scaled}.targetConcurrency", kind="number", about="Requests a replica should hold"),
        _column("Decision", f"{scaled}.lastDecision", about="What the autoscaler did last, and why"),
        _column("Status", f"{ready}.status", about="Whether the declared revision serves at its floor"),
        _column("Age", ".metadata.creationTimestamp", kind="date", about="Time since it was declared"),
        _column("Model", ".spec.model.uri", wide=True, about="Declared model"),
        _column("Reason", f"{ready}.reason", wide=True, about="Why the status is what it is"),
    ]


def endpoint_kind() -> Manifest:
    """The CustomResourceDefinition; the stack waits until the API server has established it."""
    version = {
        "name": names.API_VERSION_NAME,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {"status": {}},
        "additionalPrinterColumns": _columns(),
    }
    return manifest(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        names.CRD,
        labels={names.LABEL_MANAGED_BY: names.MANAGED_BY},
        annotations={"pulumi.com/waitFor": "condition=Established"},
        spec={
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": ["knobless"],
            },
            "versions": [version],
        },
    )
