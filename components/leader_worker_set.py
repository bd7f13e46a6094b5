"""Owns the component `LeaderWorkerSets`: what makes groups of pods on the embedded cluster, where an endpoint has some.

One idea: its webhooks come last, since from then on no pod of a group is made without it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from components.manifests import leader_worker_set as manifests
from components.objects import declare


class LeaderWorkerSets(pulumi.ComponentResource):
    def __init__(
        self,
        name: str,
        image: str,
        authority_pem: bytes,
        teams: Mapping[str, pulumi.Resource],
        after: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`image` is named by its digest; `authority_pem` is the CA of its certificate, `teams` the namespaces by team,
        `after` what must stand before."""
        super().__init__("knobless:serving:LeaderWorkerSets", name, None, opts)
        account = declare(manifests.account(), self, after=after)
        rights: list[pulumi.Resource] = [declare(right, self, after=[*after, account]) for right in manifests.rights()]
        for team, place in teams.items():
            declare(manifests.writ(team), self, after=[place, *rights], gone_with=place)
        beside = [manifests.settings(), manifests.service(), manifests.doors(), manifests.disruption_budget()]
        ready = [*rights, *(declare(obj, self, after=after) for obj in beside)]
        process = declare(manifests.deployment(image), self, after=ready)
        for webhook in manifests.webhooks(authority_pem):
            declare(webhook, self, after=[process])
        self.register_outputs({})
