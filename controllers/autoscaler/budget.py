"""How many replicas a namespace's quota has room for: what there is, and what may still be made. Pure.

Owns the arithmetic of ResourceQuotas. Leaves the cluster's own room to its scheduler: nodes may be on their way, a
quota is not. Its one idea: a quota's books and a revision's lag behind each other, so the budget bounds growth and
never goes below what was asked for already: it takes no pod away.
"""

from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation

from controllers.kube.fields import at, items, mapping, number
from controllers.kube.resources import Object
from controllers.workloads import pods_each, template_of

_DECIMAL = {"m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SUFFIXES = {suffix: Decimal(10) ** power for suffix, power in _DECIMAL.items()}
_SUFFIXES |= {suffix: Decimal(2) ** power for suffix, power in _BINARY.items()}


def budget_of(quotas: Iterable[Object], workload: Object, issued: int) -> int | None:
    """Replicas. None where no quota speaks of these pods, or none can be read. `issued`: what was asked for."""
    quotas = list(quotas)
    if not quotas:
        return None
    each = _needed(mapping(template_of(workload), "spec"), pods_each(workload))
    rooms = [room for quota in quotas for room in _rooms(quota, each)]
    return max(number(workload, "status", "replicas") + max(min(rooms), 0), issued) if rooms else None


def _rooms(quota: Object, each: dict[str, Decimal]) -> Iterator[int]:
    """Replicas that fit, by each resource that the quota bounds. Quotas of certain pods only are left to admission."""
    if at(quota, "spec", "scopes") or at(quota, "spec", "scopeSelector"):
        return
    used = mapping(quota, "status", "used")
    for resource, bound in mapping(quota, "status", "hard").items():
        limit, taken = amount(bound), amount(used.get(resource, "0"))
        needed = each.get(resource)
        if limit is not None and taken is not None and needed:
            yield int((limit - taken) // needed)


def _needed(pod: Object, pods: int) -> dict[str, Decimal]:
    """What so many pods count for; each: all containers that stay, or a larger init container and the sidecars before
    it.

    A sidecar is an init container that is always restarted; it stays beside the containers.
    """
    sidecars = [each for each in items(pod, "initContainers") if each.get("restartPolicy") == "Always"]
    once = [each for each in items(pod, "initContainers") if each.get("restartPolicy") != "Always"]
    found = {"pods": Decimal(pods), "count/pods": Decimal(pods)}
    for kind in ("requests", "limits"):
        for resource in ("cpu", "memory", "nvidia.com/gpu"):
            beside = sum(_amounts(sidecars, kind, resource), Decimal(0))
            running = beside + sum(_amounts(items(pod, "containers"), kind, resource), Decimal(0))
            needed = pods * max([running, *(beside + each for each in _amounts(once, kind, resource))])
            found[f"{kind}.{resource}"] = needed
            if kind == "requests" and resource != "nvidia.com/gpu":
                found[resource] = needed
    return found


def _amounts(containers: Iterable[Object], kind: str, resource: str) -> Iterator[Decimal]:
    for container in containers:
        stated = at(container, "resources", kind, resource)
        if stated is None and kind == "requests":  # the API's default: what is limited is asked for
            stated = at(container, "resources", "limits", resource)
        if stated is not None and (found := amount(stated)) is not None:
            yield found


def amount(stated: object) -> Decimal | None:
    """`500m`, `2`, `1.5Gi`, `1e3`; None where it is no amount."""
    text = str(stated)
    digits = text.rstrip("mkMGTPEi")
    try:
        return Decimal(digits) * _SUFFIXES.get(text[len(digits) :], 1) if digits != text else Decimal(text)
    except InvalidOperation:
        return None
