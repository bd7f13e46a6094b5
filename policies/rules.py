"""Owns the list of rules and the one way to apply them; the pack, the plan and the tests all come through here.

Leaves each rule to its module. One idea: a rule is a row (name, what it demands, function); a new rule is a new row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from policies import object_rules, pod_rules
from policies.declared import Declared, Finding, Violation
from policies.pods import PodDeclared, pods_of
from policies.stack_rules import DEFAULT_DENY, default_deny

PodRule = Callable[[PodDeclared], Iterator[Finding]]
ObjectRule = Callable[[Declared], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """One rule on single resources."""

    name: str
    demands: str
    find: ObjectRule

    def violations(self, resource: Declared) -> Iterator[Violation]:
        for finding in self.find(resource):
            yield Violation(self.name, resource.label, finding.field.path or "spec", finding.text)


def on_pods(rule: PodRule) -> ObjectRule:
    """A rule on pods as a rule on every resource that declares some."""

    def find(resource: Declared) -> Iterator[Finding]:
        for pod in pods_of(resource):
            yield from rule(pod)

    return find


RULES: Final = (
    Rule("resources", "Every container states requests and limits of CPU and memory.", on_pods(pod_rules.resources)),
    Rule("probes", "A serving pod has a readiness probe, its containers startup probes.", on_pods(pod_rules.probes)),
    Rule("image-digest", "Images are named by digest.", on_pods(pod_rules.images)),
    Rule("host-access", "No pod reaches into its node.", on_pods(pod_rules.host_access)),
    Rule("unprivileged", "No root, no capability, read-only, under seccomp.", on_pods(pod_rules.unprivileged)),
    Rule("graceful-end", "A pod outlives its preStop and its longest answer.", on_pods(pod_rules.graceful_end)),
    Rule("plain-secrets", "No secret stands as text in a variable.", on_pods(pod_rules.plain_secrets)),
    Rule("replicas", "Only the autoscaler states replicas of models.", object_rules.replicas),
    Rule("concurrency", "An endpoint's range is 0 < min <= max.", object_rules.concurrency),
    Rule("exposure", "Only the gateway opens a port to the outside.", object_rules.exposure),
    Rule("rights", "Rights are spelled out.", object_rules.rights),
    Rule("visible", "Every object is declared whole.", object_rules.visible),
    Rule("protected", "Endpoints, their kind and namespaces are protected.", object_rules.protected),
)
STACK_RULES: Final = {DEFAULT_DENY: ("Every team namespace denies all traffic by default.", default_deny)}


def check_resource(resource: Declared) -> list[Violation]:
    """Every violation of one resource, in the order of the rules."""
    return [violation for rule in RULES for violation in rule.violations(resource)]


def check_stack(resources: Iterable[Declared]) -> list[Violation]:
    """Every violation of a stack: of each resource, then of all together."""
    everything = list(resources)
    single = [violation for resource in everything for violation in check_resource(resource)]
    return single + [violation for _, rule in STACK_RULES.values() for violation in rule(everything)]
