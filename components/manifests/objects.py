"""Owns the shape that every manifest shares: identity, metadata, and the security settings of a container.

Leaves to the modules beside it what each object is for. One idea: what must hold for every container and every
object of the platform is written once, here, and a manifest can't be made without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spec import names

Manifest = dict[str, Any]

USER = 10001  # the user of every image that we build
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
TAKE_BACK = {"pulumi.com/patchForce": "true"}
# Of the settings of a controller: a changed one is a new pod.
ANNOTATION_SETTINGS = f"{names.GROUP}/settings-digest"


def manifest(
    api_version: str,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    **content: Any,
) -> Manifest:
    """One object; `content` are its other top-level fields (`spec`, `data`, `rules`, ...).

    In a namespace of the platform Git has the last word: a field that it states and a person changed is taken back.
    What all of a cluster share is never taken by force; there a conflict is an error that names field and owner.
    """
    metadata: Manifest = {"name": name, "labels": dict(labels)}
    noted = dict(annotations or {})
    if namespace is not None:
        metadata["namespace"] = namespace
    if namespace == names.SYSTEM_NAMESPACE or names.team_of_namespace(namespace or "") is not None:
        noted |= TAKE_BACK
    if noted:
        metadata["annotations"] = noted
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def identity(obj: Manifest) -> str:
    """`<namespace>/<name>`, or the name of what lives in no namespace: unique within a kind."""
    metadata = obj["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def pod_security() -> Manifest:
    """Security of a pod: the `restricted` profile, and every file of a volume readable by the one user."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def controller_pod(account: str, running: Manifest, volumes: list[Manifest]) -> Manifest:
    """The pod of one process that watches the API server and acts; it has 20 s to stop."""
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": "system-cluster-critical",
        "securityContext": pod_security(),
        "terminationGracePeriodSeconds": 20,
        "containers": [running],
        "volumes": [api_access(), *volumes],
    }


def container(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    requests: Mapping[str, str],
    limits: Mapping[str, str],
    mounts: Mapping[str, str],
    read_only: Sequence[str] = (),
    user: int | None = None,
    **content: Any,
) -> Manifest:
    """A container that owns nothing: no root, no capability, no writable root file system, bounded resources.

    `mounts` maps a volume's name to its path; the volumes named in `read_only` can't be written. Without a `command`
    it is the image's own, without a `user` the pod's or the image's.
    """
    return {
        "name": name,
        "image": image,
        **({"command": list(command)} if command else {}),
        "resources": {"requests": dict(requests), "limits": dict(limits)},
        "volumeMounts": [
            {"name": volume, "mountPath": path} | ({"readOnly": True} if volume in read_only else {})
            for volume, path in mounts.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            **({"runAsUser": user, "runAsGroup": user} if user is not None else {}),
        },
        **content,
    }


def scratch(name: str, size: str, *, in_memory: bool = False) -> Manifest:
    """An empty volume that dies with its pod, never larger than `size`."""
    medium: Manifest = {"medium": "Memory"} if in_memory else {}
    return {"name": name, "emptyDir": {**medium, "sizeLimit": size}}


def probe(path: str, port: str | int, *, period_s: int, failures: int, timeout_s: int = 2) -> Manifest:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "failureThreshold": failures,
        "timeoutSeconds": timeout_s,
    }


def variables(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def own_field(name: str, path: str) -> Manifest:
    """An environment variable that takes its value from a field of the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def service_account(name: str, namespace: str, labels: Mapping[str, str], pull_secrets: Sequence[str] = ()) -> Manifest:
    """An identity whose token reaches only pods that ask for it.

    Its pods pull images with the Secrets named in `pull_secrets`: those that are made from now on, so that another
    login restarts nothing.
    """
    pulling: Manifest = {"imagePullSecrets": [{"name": secret} for secret in pull_secrets]} if pull_secrets else {}
    return manifest(
        "v1",
        "ServiceAccount",
        name,
        namespace=namespace,
        labels=labels,
        automountServiceAccountToken=False,
        **pulling,
    )


def one_at_a_time(name: str, namespace: str, labels: Mapping[str, str], selector: Mapping[str, str]) -> Manifest:
    """A PodDisruptionBudget that lets a node's drain take one pod after another, and never wait for ever."""
    return manifest(
        "policy/v1",
        "PodDisruptionBudget",
        name,
        namespace=namespace,
        labels=labels,
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )


API_ACCESS = "kube-api-access"
API_ACCESS_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def api_access() -> Manifest:
    """The pod's own credentials for the API server, as a volume that only some of its containers mount."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    place = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    return {
        "name": API_ACCESS,
        "projected": {"defaultMode": 0o440, "sources": [token, authority, place]},
    }
