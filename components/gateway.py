"""Owns the component `Gateway`: the one way in.

One idea: its pod comes last, when all that it reads and may do is there.
"""

from __future__ import annotations

import pulumi

from components.manifests import gateway as manifests
from components.objects import declare
from spec.platform import PlatformSpec


class Gateway(pulumi.ComponentResource):
    def __init__(
        self,
        name: str,
        platform: PlatformSpec,
        image: str,
        after: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`image` is named by its digest; `after` is what must stand before."""
        super().__init__("knobless:serving:Gateway", name, None, opts)
        account = declare(manifests.account(platform.pull_secrets), self, after=after)
        rights = [declare(right, self, after=[*after, account]) for right in manifests.rights()]
        doors = declare(manifests.doors(), self, after=after)
        for obj in (manifests.service(platform), manifests.stats_service(), manifests.disruption_budget()):
            declare(obj, self, after=after)
        ready = [*after, account, *rights, doors]
        declare(manifests.deployment(platform, image), self, after=ready)
        self.register_outputs({})
