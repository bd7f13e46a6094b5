"""Owns the component `Team`: one team's namespace and what holds in it.

Leaves to the endpoints' own stacks what serves there. One idea: a team that leaves the platform's file takes its
namespace along, so the namespace is protected until somebody has been told.
"""

from __future__ import annotations

import pulumi

from components.manifests import team as manifests
from components.objects import declare
from spec.platform import Team as TeamSpec


class Team(pulumi.ComponentResource):
    """Namespace (protected), quota, closed doors, and the controllers' writ there."""

    def __init__(
        self, name: str, team: TeamSpec, writers: list[pulumi.Resource], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """`name` is the team's; `writers` are the rights that the controllers' writ refers to."""
        super().__init__("knobless:serving:Team", name, None, opts)
        self.namespace = declare(manifests.namespace(name), self, protect=True)
        place = self.namespace
        declare(manifests.default_deny(name), self, after=[place], gone_with=place)
        declare(manifests.controllers_writ(name), self, after=[place, *writers], gone_with=place)
        quota = manifests.quota(name, team.quota)
        if quota is not None:
            declare(quota, self, after=[place], gone_with=place)
        self.register_outputs({"namespace": self.namespace.id})
