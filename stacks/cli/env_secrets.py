"""Secrets that endpoints' variables name: whether they are there, before pods would wait for them.

Leaves their values to whoever writes them; none is read into a file, a plan or a state. One idea: a pod whose Secret is
missing does not start, and says so only minutes later, so it is looked for before anything is applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controllers.kube import NAMESPACES, SECRETS, KubeClient, NotFound
from spec import names
from spec.endpoint import EndpointSpec
from spec.variables import SecretKey
from stacks.cli.errors import CliError, ExitCode

MANAGER: Final = "knobless-env-secrets"
LABELS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
REMEDY: Final = (
    "`kubectl -n NAMESPACE create secret generic NAME --from-file=KEY=FILE` writes one, with the kubectl and the "
    "KUBECONFIG of `knobless env`; the namespaces are there now"
)


def wanted(specs: Iterable[EndpointSpec]) -> dict[tuple[str, str], dict[str, str]]:
    """(namespace, Secret) -> its keys, each with the first endpoint's variable that names it."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for spec in specs:
        for variable, value in spec.env.items():
            if isinstance(value, SecretKey):
                keys = found.setdefault((names.team_namespace(spec.team), value.secret), {})
                keys.setdefault(value.key, f"{spec.endpoint}: env.{variable}")
    return found


async def problems(kube: KubeClient, specs: Iterable[EndpointSpec]) -> list[str]:
    """What keeps pods from starting; nothing is changed, and of a Secret only the names of its keys are looked at."""
    found = []
    for (namespace, secret), keys in sorted(wanted(specs).items()):
        try:
            present = set((await kube.get(SECRETS, namespace, secret)).get("data") or {})
        except NotFound:
            found.append(f"{next(iter(keys.values()))}: Secret {secret} is missing in {namespace}")
            continue
        found += [
            f"{place}: Secret {secret} in {namespace} has no key {key!r}"
            for key, place in sorted(keys.items())
            if key not in present
        ]
    return found


async def check(kube: KubeClient, specs: Iterable[EndpointSpec]) -> None:
    """Make the namespaces that need a Secret, so that it can be put there; CliError where one is missing."""
    specs = list(specs)
    for namespace in sorted({namespace for namespace, _ in wanted(specs)}):
        await kube.apply(NAMESPACES, None, namespace, MANAGER, {"metadata": {"labels": LABELS}}, force=False)
    found = await problems(kube, specs)
    if found:
        lines = "\n".join(f"- {line}" for line in found)
        raise CliError(f"pods could not start:\n{lines}", hint=REMEDY, code=ExitCode.NOT_FOUND)
