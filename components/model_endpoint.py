"""Owns the component `ModelEndpoint`: one endpoint's stack.

Leaves Deployments, replicas and routes to the controllers. One idea: the endpoint object comes last and goes first,
so that its pods have their identity and their open doors from the first to the last request.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from components.manifests import endpoint as manifests
from components.manifests.served import Served
from components.objects import declare
from spec.endpoint import EndpointSpec
from spec.platform import Rollout


class ModelEndpoint(pulumi.ComponentResource):
    """The endpoint object (protected, waited for) and what carries the endpoint's name beside it."""

    def __init__(
        self,
        name: str,
        spec: EndpointSpec,
        served: Served,
        model_registry: str,
        rollout: Rollout,
        pull_secrets: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`model_registry` is the address that pods use; `rollout` and `pull_secrets` are what is in force."""
        super().__init__("knobless:serving:ModelEndpoint", name, None, opts)
        beside: list[pulumi.Resource] = [
            declare(obj, self)
            for obj in (
                manifests.service_account(spec, pull_secrets),
                manifests.service(spec),
                manifests.doors(spec, model_registry),
                manifests.disruption_budget(spec),
            )
        ]
        obj = manifests.endpoint_object(spec, served, model_registry, rollout)
        declare(obj, self, after=beside, protect=True)
        self.register_outputs({})
