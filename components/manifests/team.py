"""Owns what a team has before it has an endpoint: a namespace, a quota, closed doors, and the controllers' writ.

Leaves to `endpoint` which doors an endpoint opens. One idea: a namespace begins with nothing allowed, and the
controllers may write in the namespaces of teams and nowhere else, because the right comes with the team.
"""

from __future__ import annotations

from components.manifests.access import granted_in
from components.manifests.objects import Manifest, manifest, service_account
from spec import names
from spec.platform import Quota

POD_SECURITY = "pod-security.kubernetes.io"
ROLE_CONTROLLERS_IN_TEAM = "knobless-controllers-team"
DEFAULT_DENY = "default-deny"
QUOTA = "quota"


def restricted() -> dict[str, str]:
    """Labels that hold a namespace's pods to the strictest of the three Pod Security Standards."""
    return {f"{POD_SECURITY}/{mode}": "restricted" for mode in ("enforce", "warn", "audit")} | {
        f"{POD_SECURITY}/enforce-version": "latest"
    }


def team_labels(team: str) -> dict[str, str]:
    return {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_TEAM: team}


def namespace(team: str) -> Manifest:
    labels = team_labels(team) | restricted()
    return manifest("v1", "Namespace", names.team_namespace(team), labels=labels)


def quota(team: str, limit: Quota) -> Manifest | None:
    """The team's share of the cluster, or None where the platform sets it none.

    CPU counts as requested, memory as limited: a core that is asked for twice makes both slow, memory that is
    promised twice ends one of the two. No LimitRange stands beside it: every pod of ours states all four numbers, and
    for another's container the quota's refusal, which names it, is better than a guess that ends it later.
    """
    hard = {"requests.cpu": limit.cpu, "limits.memory": limit.memory, "pods": limit.pods}
    stated = {key: str(value) for key, value in hard.items() if value is not None}
    if not stated:
        return None
    place = names.team_namespace(team)
    return manifest("v1", "ResourceQuota", QUOTA, namespace=place, labels=team_labels(team), spec={"hard": stated})


def default_deny(team: str) -> Manifest:
    """Nothing in and nothing out for every pod that no other policy speaks of."""
    return manifest(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        DEFAULT_DENY,
        namespace=names.team_namespace(team),
        labels=team_labels(team),
        spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    )


def controllers_writ(team: str) -> Manifest:
    """Lets the controllers make, change and remove what revisions are made of, in this namespace."""
    place = names.team_namespace(team)
    account = service_account(
        names.COMPONENT_CONTROLLERS,
        names.SYSTEM_NAMESPACE,
        names.managed_labels(names.COMPONENT_CONTROLLERS),
    )
    return granted_in(place, "ClusterRole", ROLE_CONTROLLERS_IN_TEAM, account, team_labels(team))
