"""The one door to the Kubernetes API: asyncio, plain dict objects, typed errors.

Owns credentials, requests, and watches that never end. Leaves to its callers what the objects mean.
Its one idea: an outage of the API server is weather. A watch waits it out in silence; a request says
`Unreachable` at once, and the caller's loop decides what to do next.
"""

from controllers.kube.client import KubeClient, Propagation
from controllers.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from controllers.kube.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEADER_WORKER_SETS,
    LEASES,
    MODEL_ENDPOINTS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICES,
    Gvr,
    Object,
)
from controllers.kube.watch import Event

__all__ = [
    "CONFIG_MAPS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DEPLOYMENTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "LEADER_WORKER_SETS",
    "LEASES",
    "MODEL_ENDPOINTS",
    "NAMESPACES",
    "PODS",
    "RESOURCE_QUOTAS",
    "SECRETS",
    "SERVICES",
    "AlreadyExists",
    "ApiError",
    "Conflict",
    "Event",
    "Forbidden",
    "Gone",
    "Gvr",
    "Invalid",
    "KubeClient",
    "KubeError",
    "NotFound",
    "Object",
    "Propagation",
    "Throttled",
    "Unauthorized",
    "Unreachable",
]
