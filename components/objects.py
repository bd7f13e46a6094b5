"""Owns the step from one plain manifest to one Pulumi resource of the provider's own type.

Leaves to the components which manifests there are and in what order. One idea: a resource's logical name is its
object's name in the cluster, so renaming a thing in the code can't make the engine create it under a new logical
name and then delete, under the old one, the very object that it has just made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, ResourceQuota, Service, ServiceAccount
from pulumi_kubernetes.networking.v1 import NetworkPolicy
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget
from pulumi_kubernetes.rbac.v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding

from components.manifests.objects import Manifest, identity
from spec import names

_RBAC: Final = "rbac.authorization.k8s.io/v1"
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_TYPES: Final[dict[tuple[str, str], Callable[..., pulumi.CustomResource]]] = {
    (_ADMISSION, "MutatingWebhookConfiguration"): MutatingWebhookConfiguration,
    (_ADMISSION, "ValidatingWebhookConfiguration"): ValidatingWebhookConfiguration,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): CustomResourceDefinition,
    ("apps/v1", "Deployment"): Deployment,
    ("networking.k8s.io/v1", "NetworkPolicy"): NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): PodDisruptionBudget,
    (_RBAC, "ClusterRole"): ClusterRole,
    (_RBAC, "ClusterRoleBinding"): ClusterRoleBinding,
    (_RBAC, "Role"): Role,
    (_RBAC, "RoleBinding"): RoleBinding,
    ("v1", "ConfigMap"): ConfigMap,
    ("v1", "Namespace"): Namespace,
    ("v1", "ResourceQuota"): ResourceQuota,
    ("v1", "Service"): Service,
    ("v1", "ServiceAccount"): ServiceAccount,
}


def declare(
    obj: Manifest,
    parent: pulumi.ComponentResource,
    *,
    after: list[pulumi.Resource] | None = None,
    protect: bool = False,
    gone_with: pulumi.Resource | None = None,
) -> pulumi.CustomResource:
    """One resource below `parent`.

    `after` are made before it and removed after it. `protect` forbids to delete it. With `gone_with`, the namespace
    it lies in, it is not deleted by itself where that is: if the one may not go, the other stays too.
    """
    options = pulumi.ResourceOptions(
        parent=parent, depends_on=after or [], protect=protect or None, deleted_with=gone_with
    )
    content = _arguments(obj)
    if obj["apiVersion"] == names.API_VERSION:
        kind = {"api_version": obj["apiVersion"], "kind": obj["kind"]}
        return CustomResource(identity(obj), opts=options, **kind, **content)
    return _TYPES[obj["apiVersion"], obj["kind"]](identity(obj), opts=options, **content)


def _arguments(obj: Manifest) -> dict[str, Any]:
    """A manifest's top-level fields as the SDK's keywords: `automountServiceAccountToken` has underscores there."""
    return {_snake(key): value for key, value in obj.items() if key not in ("apiVersion", "kind")}


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
