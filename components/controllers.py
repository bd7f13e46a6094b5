"""Owns the component `Controllers`: the rollout and autoscaling process, with its settings and its rights.

One idea: the process comes last, when all that it reads and may do is there.
"""

from __future__ import annotations

import pulumi

from components.manifests import controllers as manifests
from components.objects import declare
from spec.platform import PlatformSpec


class Controllers(pulumi.ComponentResource):
    """`rights` are what a team's namespace binds to."""

    def __init__(
        self,
        name: str,
        platform: PlatformSpec,
        image: str,
        prometheus: str | None,
        after: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`image` is named by its digest; `after` is what must stand before."""
        super().__init__("knobless:serving:Controllers", name, None, opts)
        account = declare(manifests.account(platform.pull_secrets), self, after=after)
        self.rights: list[pulumi.Resource] = [
            declare(right, self, after=[*after, account]) for right in manifests.rights()
        ]
        settings = declare(manifests.settings(platform, prometheus), self, after=after)
        doors = declare(manifests.doors(), self, after=after)
        declare(manifests.disruption_budget(), self, after=after)
        declare(manifests.metrics_service(), self, after=after)
        ready = [*after, account, *self.rights, settings, doors]
        declare(manifests.deployment(platform, image, prometheus), self, after=ready)
        self.register_outputs({})
