"""Rules over a whole stack, and the platform's own manifests against every rule."""

from __future__ import annotations

from typing import Any

import pytest

from components.manifests import controllers, crd, endpoint, gateway, system, team
from components.manifests import leader_worker_set as groups
from components.manifests.served import ServedModel, wish_of
from policies.declared import UNKNOWN, declared_manifest
from policies.rules import check_stack
from runtimes.selection import select
from runtimes.selection_card import Card
from spec.endpoint import load_endpoint
from spec.platform import load_platform

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-alpha"}}


def network_policy(namespace: Any = "team-alpha", **spec: Any) -> dict[str, Any]:
    closed = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    metadata = {"name": "default-deny", "namespace": namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": closed | spec}


def rules_broken(*objects: dict[str, Any]) -> list[str]:
    return [violation.rule for violation in check_stack(map(declared_manifest, objects))]


def test_a_team_namespace_that_starts_closed_is_no_violation() -> None:
    assert rules_broken(NAMESPACE, network_policy()) == []


def test_another_namespace_needs_no_closing() -> None:
    assert rules_broken({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knobless-system"}}) == []


@pytest.mark.parametrize(
    "policy",
    [
        network_policy("team-beta"),
        network_policy(UNKNOWN),
        network_policy(policyTypes=["Ingress"]),
        network_policy(policyTypes=UNKNOWN),
        network_policy(podSelector={"matchLabels": {"a": "b"}}),
        network_policy(podSelector=UNKNOWN),
        network_policy(ingress=[{}]),
        network_policy(egress=[{"ports": [{"port": 53}]}]),
        network_policy(egress=UNKNOWN),
    ],
)
def test_a_team_namespace_without_a_policy_that_denies_all_is_a_violation(policy: dict[str, Any]) -> None:
    assert rules_broken(NAMESPACE, policy) == ["default-deny"]


def test_a_namespace_whose_name_is_unknown_is_a_violation() -> None:
    unnamed = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": UNKNOWN}}
    assert rules_broken(unnamed, network_policy()) == ["default-deny"]


def test_everything_that_the_platform_declares_itself_holds_to_every_rule() -> None:
    platform = load_platform("environment: local\nteams: {alpha: {}}\n", "platform.yaml", "local")
    image = f"registry:5000/platform@sha256:{'a' * 64}"
    text = "endpoint: iris\nmodel: models:/iris/1\nconcurrency: {min: 1, max: 64}\ndeadline_s: 297\n"
    spec = load_endpoint(text, "iris.yaml", "alpha")
    choice = select(Card("sklearn", pyfunc=True, python="3.11.9"), wish_of(spec))
    model = ServedModel("models:/iris/1", "1", "a" * 64, image, image, choice)
    registry = "http://mlflow:5500"
    manifests = [
        *(crd.endpoint_kind(), system.namespace()),
        *(gateway.account(), *gateway.rights(), gateway.service(platform), gateway.stats_service()),
        *(gateway.doors(), gateway.disruption_budget(), gateway.deployment(platform, image)),
        *(controllers.account(), *controllers.rights(), controllers.settings(platform)),
        *(controllers.deployment(platform, image), controllers.metrics_service()),
        *(groups.account(), *groups.rights(), groups.settings(), groups.service(), groups.doors()),
        *(
            groups.disruption_budget(),
            groups.deployment(image),
            *groups.webhooks(b"a certificate"),
            groups.writ("alpha"),
        ),
        *(team.namespace("alpha"), team.default_deny("alpha"), team.controllers_writ("alpha")),
        endpoint.endpoint_object(spec, model, registry, platform.rollout),
        *(endpoint.service_account(spec), endpoint.service(spec), endpoint.doors(spec, registry)),
        endpoint.disruption_budget(spec),
    ]
    assert [str(violation) for violation in check_stack(map(declared_manifest, manifests))] == []
