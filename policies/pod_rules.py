"""Owns the rules on pods: what keeps one model from harming another, and a request from being lost.

Leaves finding pods to `pods`. One idea: each rule is a plain function from a pod to findings; a rule demands what it
wants to see, so an absent field and an unknown one fail it alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from policies.declared import Field, Finding
from policies.pods import PodDeclared
from spec import names
from spec.variables import SECRET_NAME, USER_IN_URL

_DIGEST = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
_HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC")
_SECCOMP: Final = ("RuntimeDefault", "Localhost")


def resources(pod: PodDeclared) -> Iterator[Finding]:
    """Requests and limits of CPU and memory on every container."""
    for container in pod.containers("initContainers", "containers"):
        for part in ("requests", "limits"):
            for amount in ("cpu", "memory"):
                field = container.at("resources", part, amount)
                if field.unknown or field.absent:
                    yield Finding(field, f"state the {amount} that the container {_asks(part)}")


def _asks(part: str) -> str:
    return "asks for" if part == "requests" else "may use at most"


def probes(pod: PodDeclared) -> Iterator[Finding]:
    """A serving pod says when it is ready, and each of its containers when it has started."""
    if not pod.serving:
        return
    containers = list(pod.staying())
    ready = [container.at("readinessProbe") for container in containers]
    if not any(isinstance(probe.value, dict) for probe in ready):
        field = ready[0] if ready else pod.spec.at("containers")
        yield Finding(field, "give the container that answers requests a readiness probe")
    for container in containers:
        started = container.at("startupProbe")
        if started.unknown or started.absent:
            yield Finding(
                started, "give the container a startup probe, so that a slow start is not taken for a failure"
            )


def images(pod: PodDeclared) -> Iterator[Finding]:
    """Images are named by digest: a tag can mean another image tomorrow."""
    for container in pod.containers():
        image = container.at("image")
        if not _DIGEST.fullmatch(image.text or ""):
            yield Finding(image, f"{image.value!r} can change: name the image by its digest, <image>@sha256:<64 hex>")


def host_access(pod: PodDeclared) -> Iterator[Finding]:
    """No pod reaches into its node: no host namespaces, paths or ports."""
    containers = pod.spec.at("containers")
    if not (isinstance(containers.value, list) and containers.value):
        yield Finding(containers, "state the pod's containers")
    for name in _HOST_FIELDS:
        field = pod.spec.at(name)
        if not (field.absent or field.is_(False)):
            yield Finding(field, "remove it: a pod of the platform shares nothing with its node")
    for volume in pod.spec.at("volumes").items():
        path = volume.at("hostPath")
        if not path.absent:
            yield Finding(path, "use an emptyDir, a ConfigMap or a Secret: a path of the node is out of bounds")
    for container in pod.containers():
        for port in container.at("ports").items():
            on_node = port.at("hostPort")
            if not (on_node.absent or on_node.number == 0):
                yield Finding(on_node, "remove it: Services open ports")


def unprivileged(pod: PodDeclared) -> Iterator[Finding]:
    """Non-root, without capabilities, on a read-only file system, under seccomp."""
    for container in pod.containers():
        own = container.at("securityContext")
        yield from _not_root(pod, own)
        for name, wanted in (
            ("privileged", False),
            ("allowPrivilegeEscalation", False),
            ("readOnlyRootFilesystem", True),
        ):
            field = own.at(name)
            if not (field.is_(wanted) or (name == "privileged" and field.absent)):
                yield Finding(field, f"set it to {str(wanted).lower()}")
        yield from _capabilities(own.at("capabilities"))
        seccomp = _own_or_shared(pod, own, "seccompProfile").at("type")
        if seccomp.text not in _SECCOMP:
            yield Finding(seccomp, "set it to RuntimeDefault, here or for the whole pod")


def _not_root(pod: PodDeclared, own: Field) -> Iterator[Finding]:
    non_root = _own_or_shared(pod, own, "runAsNonRoot")
    if not non_root.is_(True):
        yield Finding(non_root, "set it to true, here or for the whole pod")
    user = _own_or_shared(pod, own, "runAsUser")
    if user.unknown or user.number == 0:
        yield Finding(user, "name a user other than root (0)")


def _own_or_shared(pod: PodDeclared, own: Field, name: str) -> Field:
    """A container's setting, or else the pod's."""
    field = own.at(name)
    shared = pod.spec.at("securityContext", name)
    return shared if field.absent and not shared.absent else field


def _capabilities(capabilities: Field) -> Iterator[Finding]:
    drop, add = capabilities.at("drop"), capabilities.at("add")
    if "ALL" not in [entry.text for entry in drop.items()]:
        yield Finding(drop, "drop ALL")
    if not (add.absent or add.value in ([], ())):
        yield Finding(add, "remove it: no container of the platform needs a capability")


def graceful_end(pod: PodDeclared) -> Iterator[Finding]:
    """A pod lives longer than its preStop pause and the longest answer together, or answers are cut off."""
    grace = pod.spec.at("terminationGracePeriodSeconds")
    pause_s = 0.0
    for container in pod.containers("containers"):
        sleep = container.at("lifecycle", "preStop", "sleep", "seconds")
        if sleep.unknown:
            yield Finding(sleep, "")
        pause_s = max(pause_s, sleep.number or 0.0)
    deadline = pod.owner.at("spec", "routing", "deadlineMs") if pod.kind == names.KIND else Field("", 0)
    if deadline.number is None:
        yield Finding(deadline, "state how long an answer may take")
        return
    needed_s = pause_s + deadline.number / 1000
    if pod.kind == names.KIND and pause_s == 0 and not grace.unknown:
        yield Finding(pod.spec.at("containers"), "give the server a preStop sleep, so that routes go before it ends")
    granted_s = 30.0 if grace.absent else grace.number
    if granted_s is None or granted_s <= needed_s:
        yield Finding(grace, f"must be more than {needed_s:g} s: the preStop sleep and the longest answer")


def plain_secrets(pod: PodDeclared) -> Iterator[Finding]:
    """No secret stands in an environment variable as text: everybody who may read pods could read it."""
    for container in pod.containers():
        for variable in container.at("env").items():
            value, name = variable.at("value"), variable.at("name")
            if value.absent or value.value == "":
                continue
            if variable.unknown or name.unknown or SECRET_NAME.search(name.text or ""):
                yield Finding(value, f"{name.value} holds a secret as text: take it from a Secret (valueFrom, volume)")
            elif value.unknown or USER_IN_URL.search(value.text or ""):
                yield Finding(value, f"{name.value} holds a password in an address: take it from a Secret")
