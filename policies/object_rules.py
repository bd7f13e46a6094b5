"""Owns the rules on objects that are no pods: who writes a field, who is let in, who may do what.

Leaves pods to `pod_rules` and whole stacks to `stack_rules`. One idea: as there, a rule that meets an unknown in a
field that it must gate reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.declared import Declared, Finding
from spec import names

_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"})
_ENTRIES: Final = frozenset({"Ingress", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"})
_RBAC_WORDS: Final = ("verbs", "resources", "apiGroups", "nonResourceURLs")
_POWERS: Final = frozenset({"escalate", "bind", "impersonate"})
_TOO_MANY: Final = frozenset({"system:anonymous", "system:unauthenticated", "system:authenticated", "system:masters"})


def in_team_namespace(resource: Declared) -> bool:
    """Whether it lies, or may lie, in a team's namespace: one that is not stated counts as one."""
    namespace = resource.namespace
    return not isinstance(namespace, str) or names.team_of_namespace(namespace) is not None


def replicas(resource: Declared) -> Iterator[Finding]:
    """The autoscaler owns replicas of models: nothing else states them or scales."""
    spec = resource.root.at("spec")
    stated = spec.at("replicas")
    template = spec.at("podTemplate", "spec", "replicas")
    if resource.kind in _SCALED and in_team_namespace(resource) and not stated.absent:
        yield Finding(stated, "remove it: the autoscaler owns replicas, and two owners would fight")
    if resource.kind == names.KIND and not stated.absent:
        yield Finding(stated, "remove it: state spec.concurrency, the autoscaler derives replicas from it")
    if resource.kind == names.KIND and template.value is not None and not template.unknown:
        yield Finding(template, "remove it: a pod template has no replicas")
    if resource.kind == "HorizontalPodAutoscaler" and in_team_namespace(resource):
        yield Finding(resource.root.at("kind"), "remove it: it would fight the platform's autoscaler")


def concurrency(resource: Declared) -> Iterator[Finding]:
    """An endpoint's range: 0 < min <= max."""
    if resource.kind != names.KIND:
        return
    low, high = (resource.root.at("spec", "concurrency", name) for name in ("min", "max"))
    for field in (low, high):
        if field.number is None or field.number < 1 or not field.number.is_integer():
            yield Finding(field, "must be a whole number of at least 1")
    if low.number is not None and high.number is not None and low.number > high.number:
        yield Finding(low, f"must be at most spec.concurrency.max, {high.number:g}")


def exposure(resource: Declared) -> Iterator[Finding]:
    """The gateway is the only way in: no other Service opens a port to the outside."""
    if resource.kind in _ENTRIES and resource.namespace != names.SYSTEM_NAMESPACE:
        yield Finding(resource.root.at("kind"), f"remove it: {resource.kind} opens a way in beside the gateway")
    if resource.kind != "Service":
        return
    spec = resource.root.at("spec")
    kind = spec.at("type")
    outside = kind.unknown or kind.text in ("LoadBalancer", "NodePort", "ExternalName")
    if outside and resource.namespace != names.SYSTEM_NAMESPACE:
        yield Finding(kind, f"{kind.value} is for {names.SYSTEM_NAMESPACE} alone: remove it, clients use the gateway")
    addresses = spec.at("externalIPs")
    if not (addresses.absent or addresses.value == []):
        yield Finding(addresses, "remove it: it takes traffic that is meant for others")


def rights(resource: Declared) -> Iterator[Finding]:
    """Rights are spelled out: no wildcard, no right to give oneself more, nothing for everybody."""
    if resource.kind in ("Role", "ClusterRole"):
        yield from _rules(resource)
    if resource.kind in ("RoleBinding", "ClusterRoleBinding"):
        role = resource.root.at("roleRef", "name")
        if role.unknown or role.text in ("cluster-admin", "admin"):
            yield Finding(role, "bind a role that names what is needed")
        for subject in resource.root.at("subjects").items():
            name = subject.at("name")
            if name.unknown or name.text in _TOO_MANY:
                yield Finding(name, "name the account that needs the right")


def _rules(resource: Declared) -> Iterator[Finding]:
    aggregation = resource.root.at("aggregationRule")
    if not aggregation.absent:
        yield Finding(aggregation, "write the rules out: aggregated ones can grow without a review")
    for rule in resource.root.at("rules").items():
        for word in _RBAC_WORDS:
            for entry in rule.at(word).items():
                if entry.unknown or "*" in (entry.text or ""):
                    yield Finding(entry, "name each one instead of *")
                elif word == "verbs" and entry.text in _POWERS:
                    yield Finding(entry, f"remove it: {entry.text} lets an account take rights that it wasn't given")


def visible(resource: Declared) -> Iterator[Finding]:
    """Every object is declared whole: no patch of another's object, no release that hides what it makes."""
    token = resource.type.rsplit(":", 1)[-1]
    here = resource.root.at("kind")
    if resource.type.startswith("kubernetes:") and token.endswith("Patch"):
        yield Finding(here, f"declare the object itself: {token} takes fields of an object that something else owns")
    if resource.type.startswith("kubernetes:helm.sh/v3:Release"):
        yield Finding(here, "declare the objects: a release hides them from the plan and from these rules")


def protected(resource: Declared) -> Iterator[Finding]:
    """What a careless `pulumi destroy` must not take along is protected."""
    if resource.protect is not False:
        return
    namespace = resource.kind == "Namespace" and resource.root.at("metadata", "name").value
    team = isinstance(namespace, str) and names.team_of_namespace(namespace) is not None
    if resource.kind in (names.KIND, "CustomResourceDefinition") or team or namespace == names.SYSTEM_NAMESPACE:
        yield Finding(resource.root.at("metadata", "name"), "protect it (ResourceOptions(protect=True))")
