"""Owns the rules over all resources of a stack: what must stand beside what.

Leaves single resources to the other rules. One idea: a namespace of a team starts closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.declared import UNKNOWN, Declared, Field, Violation
from spec import names

DEFAULT_DENY = "default-deny"


def default_deny(resources: Iterable[Declared]) -> Iterator[Violation]:
    """Each team namespace of a stack has a NetworkPolicy that selects every pod and permits nothing."""
    everything = list(resources)
    closed = {policy.namespace for policy in everything if _denies_all(policy)}
    for resource in everything:
        name = resource.root.at("metadata", "name")
        if resource.kind != "Namespace" or (name.text is not None and names.team_of_namespace(name.text) is None):
            continue
        if name.text is None or name.text not in closed:
            yield Violation(DEFAULT_DENY, resource.label, name.path, _advice(name))


def _advice(name: Field) -> str:
    if name.value is UNKNOWN or name.absent:
        return "state the namespace's name: what stands beside it can't be checked"
    return (
        "declare a NetworkPolicy here with podSelector {}, policyTypes [Ingress, Egress] and no rule: "
        "a team's namespace starts closed"
    )


def _denies_all(resource: Declared) -> bool:
    if resource.kind != "NetworkPolicy" or not isinstance(resource.namespace, str):
        return False
    spec = resource.root.at("spec")
    types = {entry.text for entry in spec.at("policyTypes").items()}
    selects_all = spec.at("podSelector").value in ({}, {"matchLabels": {}}, {"matchExpressions": []})
    empty = all(spec.at(way).value in (None, []) for way in ("ingress", "egress"))
    return selects_all and types == {"Ingress", "Egress"} and empty
