"""Owns the policy pack: the rules as Pulumi calls them. Constructing a pack serves it and never returns.

Leaves every rule to `policies`. One idea: this file alone knows Pulumi's policy library; it turns what the engine
sends into plain values, with what is not known yet marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.policy import Policy
from pulumi_policy.proxy import UnknownValueError

from policies.declared import UNKNOWN, Declared
from policies.rules import RULES, STACK_RULES, Rule
from policies.stack_rules import default_deny


def plain(value: Any) -> Any:
    """A value of the engine as plain data; looking at an unknown one raises inside the library."""
    if isinstance(value, Mapping):
        return {key: _looked_at(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_looked_at(value, index) for index in range(len(value))]
    return value


def _looked_at(values: Any, key: Any) -> Any:
    try:
        return plain(values[key])
    except UnknownValueError:
        return UNKNOWN


def declared(resource: ResourceValidationArgs | PolicyResource) -> Declared:
    return Declared(resource.resource_type, resource.name, plain(resource.props), bool(resource.opts.protect))


def _validation(rule: Rule) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if args.resource_type.startswith("kubernetes:"):
            for violation in rule.violations(declared(args)):
                report(violation.told, None)

    return validate


def _default_deny(args: StackValidationArgs, report: ReportViolation) -> None:
    objects = [declared(each) for each in args.resources if each.resource_type.startswith("kubernetes:")]
    for violation in default_deny(objects):
        report(violation.told, None)


def _policies() -> list[Policy]:
    single = [ResourceValidationPolicy(rule.name, rule.demands, _validation(rule)) for rule in RULES]
    whole = [StackValidationPolicy(name, demands, _default_deny) for name, (demands, _) in STACK_RULES.items()]
    return [*single, *whole]


if __name__ == "__main__":
    PolicyPack("knobless", policies=_policies(), enforcement_level=EnforcementLevel.MANDATORY)
