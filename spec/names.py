"""Owns every name, label, annotation, path and stack name, and the way back from each.

Leaves to others what the named things contain. One idea: a name is a function, and each length limit is computed
from everything that Kubernetes or we add to the name, so that no name is found too long by a cluster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

GROUP: Final = "knobless.dev"
API_VERSION_NAME: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{API_VERSION_NAME}"
KIND: Final = "ModelEndpoint"
SINGULAR: Final = "modelendpoint"
PLURAL: Final = "modelendpoints"
SHORT_NAME: Final = "mep"
CRD: Final = f"{PLURAL}.{GROUP}"

LABEL_ENDPOINT: Final = f"{GROUP}/endpoint"
LABEL_REVISION: Final = f"{GROUP}/revision"
LABEL_TEAM: Final = f"{GROUP}/team"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
MANAGED_BY: Final = "knobless"
# What LeaderWorkerSet says of a pod: the number of its group, and its own in the group, of which 0 leads.
LABEL_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LABEL_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_INDEX: Final = "0"
ANNOTATION_SPEC_DIGEST: Final = f"{GROUP}/spec-digest"
ANNOTATION_CONTROL: Final = f"{GROUP}/autoscaler-control"  # a person's hold on replicas, by the command line

SYSTEM_NAMESPACE: Final = "knobless-system"
COMPONENT_GATEWAY: Final = "gateway"
COMPONENT_CONTROLLERS: Final = "controllers"
COMPONENT_MODEL: Final = "model"
COMPONENT_CHECKPOINTS: Final = "autoscaler-checkpoint"
CHECKPOINTS_MAX: Final = 64  # so many objects at most; the right to write them names each
SECRET_GATEWAY_KEYS: Final = "gateway-keys"
SECRET_GATEWAY_TLS: Final = "gateway-tls"
CONFIG_MAP_PLATFORM_SETTINGS: Final = "platform-settings"
PLATFORM_SETTINGS_KEY: Final = "settings.json"
LEASE_CONTROLLERS: Final = "knobless-controllers"
MANAGER_ROLLOUT: Final = "knobless-rollout"
MANAGER_AUTOSCALER: Final = "knobless-autoscaler"
MANAGER_GATEWAY: Final = "knobless-gateway"
MANAGER_CONTROL: Final = "knobless-control"
PORT_HEALTH: Final = "health"
TARGETS_PATH: Final = "/targets"  # of the controllers: the pods that Prometheus is to read

# A URL's path as a file declares it: as it is sent, so nothing is encoded, and no segment is empty or of dots alone.
_SEGMENT: Final = r"\.*[A-Za-z0-9_~!$&'()*+,;=:@-][A-Za-z0-9._~!$&'()*+,;=:@-]*"
URL_PATH: Final = rf"/(?:{_SEGMENT}(?:/{_SEGMENT})*)?"
URL_PATH_MAX: Final = 256
AFFINITY_PREFIX: Final = "prefix"  # of requests whose prompts begin alike, to one replica

PROJECT: Final = "knobless"
STACKS_FOLDER: Final = "stacks"
ENDPOINTS_FOLDER: Final = "endpoints"
PLATFORM_FILE: Final = "platform.yaml"
DEFAULT_ENVIRONMENT: Final = "local"

DNS_LABEL_MAX: Final = 63  # also the longest label value
STACK_NAME_MAX: Final = 100
ENDPOINT_MAX: Final = 36
TEAM_MAX: Final = 20
ENVIRONMENT_MAX: Final = 16
REVISION_HASH_LENGTH: Final = 8
REPLICA_SET_SUFFIX_MAX: Final = 11  # "-" and a 32 bit hash in at most ten safe characters
GENERATED_SUFFIX: Final = 6  # "-" and five random characters: pods, EndpointSlices

_TEAM_NAMESPACE_PREFIX: Final = "team-"
# A Service takes an endpoint's name as its first part, and a Service starts with a letter (RFC 1035).
_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_HASH = re.compile(f"[0-9a-f]{{{REVISION_HASH_LENGTH}}}")
_LIMITS: Final = {"endpoint": ENDPOINT_MAX, "team": TEAM_MAX, "environment": ENVIRONMENT_MAX}
LABEL_RULE: Final = "lower-case letters, digits and '-', first a letter, last a letter or digit"
# What names an object in general: labels apart by dots (RFC 1123).
_OBJECT = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
OBJECT_RULE: Final = "lower-case letters, digits, '-' and '.', first and last a letter or digit"


def name_problem(what: str, text: str) -> str | None:
    """Why `text` can't name an endpoint, a team or an environment (`what`), or None where it can."""
    limit = _LIMITS[what]
    if not _LABEL.fullmatch(text):
        return f"{text!r} is no name for the {what}: {LABEL_RULE}"
    if len(text) > limit:
        return f"{text!r} has {len(text)} characters, the name of the {what} at most {limit}"
    return None


def is_object_name(text: str) -> bool:
    """Whether any object, a Secret for example, can have this name."""
    return _OBJECT.fullmatch(text) is not None


def _checked(what: str, text: str) -> str:
    problem = name_problem(what, text)
    if problem is not None:
        raise ValueError(problem)
    return text


def team_namespace(team: str) -> str:
    return _TEAM_NAMESPACE_PREFIX + _checked("team", team)


def team_of_namespace(namespace: str) -> str | None:
    """The team whose namespace this is, or None for any other namespace."""
    team = namespace.removeprefix(_TEAM_NAMESPACE_PREFIX)
    return team if team != namespace and name_problem("team", team) is None else None


def revision_name(endpoint: str, template_sha256: str) -> str:
    """`<endpoint>-<first 8 hex>`: the name of a revision's Deployment (LeaderWorkerSet) and of its headless Service."""
    digest = template_sha256[:REVISION_HASH_LENGTH]
    if not _HASH.fullmatch(digest):
        raise ValueError(f"{template_sha256!r} is not a SHA-256 in lower-case hex digits")
    return f"{_checked('endpoint', endpoint)}-{digest}"


def endpoint_of_revision(revision: str) -> str | None:
    """The endpoint that a revision belongs to, or None where the name is no revision's."""
    endpoint, _, digest = revision.rpartition("-")
    return endpoint if _HASH.fullmatch(digest) and name_problem("endpoint", endpoint) is None else None


def longest_pod_name(endpoint: str) -> int:
    """Characters of the longest name that a pod of this endpoint can get."""
    return len(endpoint) + 1 + REVISION_HASH_LENGTH + REPLICA_SET_SUFFIX_MAX + GENERATED_SUFFIX


def managed_labels(component: str) -> dict[str, str]:
    """Labels of everything that the platform makes."""
    return {LABEL_MANAGED_BY: MANAGED_BY, LABEL_COMPONENT: component}


def endpoint_labels(endpoint: str, team: str) -> dict[str, str]:
    """Labels of every object of an endpoint that belongs to no single revision."""
    own = {LABEL_ENDPOINT: _checked("endpoint", endpoint), LABEL_TEAM: _checked("team", team)}
    return managed_labels(COMPONENT_MODEL) | own


def revision_labels(endpoint: str, team: str, revision: str) -> dict[str, str]:
    """Labels of a revision's pods, Deployment or LeaderWorkerSet, Service and EndpointSlices."""
    return endpoint_labels(endpoint, team) | {LABEL_REVISION: revision}


def checkpoint_object(number: int) -> str:
    """The ConfigMap of one shard of the autoscaler's checkpoints."""
    return f"{COMPONENT_CHECKPOINTS}-{number}"


def checkpoint_number(name: str) -> int | None:
    """The way back; None where the name is no checkpoint's."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == COMPONENT_CHECKPOINTS and number.isdecimal() else None


@dataclass(frozen=True)
class PlatformStack:
    """The one stack of an environment that owns what all endpoints share."""

    environment: str

    def __post_init__(self) -> None:
        _checked("environment", self.environment)

    @property
    def name(self) -> str:
        return f"{self.environment}.platform"

    @property
    def file(self) -> str:
        """Path of the file that declares it, relative to the repository's root, with `/`."""
        return f"{environment_folder(self.environment)}/{PLATFORM_FILE}"


@dataclass(frozen=True)
class EndpointStack:
    """The small stack of one endpoint file."""

    environment: str
    team: str
    endpoint: str

    def __post_init__(self) -> None:
        _checked("environment", self.environment)
        _checked("team", self.team)
        _checked("endpoint", self.endpoint)

    @property
    def name(self) -> str:
        return f"{self.environment}.{self.team}.{self.endpoint}"

    @property
    def file(self) -> str:
        """Path of the file that declares it, relative to the repository's root, with `/`."""
        return f"{environment_folder(self.environment)}/{ENDPOINTS_FOLDER}/{self.team}/{self.endpoint}.yaml"


Stack = PlatformStack | EndpointStack


def environment_folder(environment: str) -> str:
    return f"{STACKS_FOLDER}/{_checked('environment', environment)}"


def parse_stack(name: str) -> Stack:
    """`<environment>.platform` or `<environment>.<team>.<endpoint>`; anything else is a ValueError."""
    match name.split("."):
        case [environment, "platform"]:
            return PlatformStack(environment)
        case [environment, team, endpoint]:
            return EndpointStack(environment, team, endpoint)
    raise ValueError(f"{name!r} names no stack: stacks are <environment>.platform and <environment>.<team>.<endpoint>")


def stack_of_file(path: str) -> Stack:
    """The stack that a file declares; `path` is relative to the repository's root. Else a ValueError."""
    match PurePosixPath(path).parts:
        case (folder, environment, file) if (folder, file) == (STACKS_FOLDER, PLATFORM_FILE):
            return PlatformStack(environment)
        case (folder, environment, endpoints, team, file) if (folder, endpoints) == (
            STACKS_FOLDER,
            ENDPOINTS_FOLDER,
        ) and file.endswith(".yaml"):
            return EndpointStack(environment, team, file.removesuffix(".yaml"))
    raise ValueError(
        f"{path!r} declares no stack: files are {STACKS_FOLDER}/<environment>/{PLATFORM_FILE} and "
        f"{STACKS_FOLDER}/<environment>/{ENDPOINTS_FOLDER}/<team>/<endpoint>.yaml"
    )


def stack_reference(stack: Stack) -> str:
    """How one stack of ours names another; a self-managed backend knows one organization."""
    return f"organization/{PROJECT}/{stack.name}"
