"""Which resources we speak to and where they live in the API. Pure; its one idea: a path is a function."""

from dataclasses import dataclass
from typing import Any

from spec import names

Object = dict[str, Any]
Objects = list[Object]


@dataclass(frozen=True)
class Gvr:
    """Group, version, resource; and the kind, which server-side apply wants in the body."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """`/apis/apps/v1/namespaces/ns/deployments/name/scale`; without a namespace: all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None and self.namespaced:
            parts += ["namespaces", namespace]
        elif name is not None and self.namespaced:
            raise ValueError(f"{self.plural} {name}: a namespace is needed")
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/".join(parts)


MODEL_ENDPOINTS = Gvr(names.GROUP, names.API_VERSION_NAME, names.PLURAL, names.KIND)
CUSTOM_RESOURCE_DEFINITIONS = Gvr(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
NAMESPACES = Gvr("", "v1", "namespaces", "Namespace", namespaced=False)
ENDPOINT_SLICES = Gvr("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DEPLOYMENTS = Gvr("apps", "v1", "deployments", "Deployment")
LEADER_WORKER_SETS = Gvr("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
LEASES = Gvr("coordination.k8s.io", "v1", "leases", "Lease")
SECRETS = Gvr("", "v1", "secrets", "Secret")
SERVICES = Gvr("", "v1", "services", "Service")
PODS = Gvr("", "v1", "pods", "Pod")
CONFIG_MAPS = Gvr("", "v1", "configmaps", "ConfigMap")
EVENTS = Gvr("", "v1", "events", "Event")
RESOURCE_QUOTAS = Gvr("", "v1", "resourcequotas", "ResourceQuota")
