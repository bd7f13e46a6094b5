"""Owns the pod template of an image of one's own: the user's container, and the platform's interface before it.

Leaves to `runtimes.proxy` what the interface does. One idea: the user's container is a sidecar of the interface (an
init container that goes on running), so the kubelet tells it to end only after the interface has answered its last
request and has gone; a server that stops at once on SIGTERM then loses nothing.
"""

from __future__ import annotations

from typing import Final

from components.manifests.objects import USER, Manifest, container, probe, scratch, variables
from components.manifests.pod import (
    FRONT_PYTHON,
    LEAVE_S,
    PROBE_MARGIN_S,
    amounts,
    arguments,
    environment,
    frame,
    load_s,
)
from components.manifests.served import PROXY, ServedImage
from spec.container import PROXY_CPU, PROXY_CPU_REQUEST, PROXY_MEMORY, PROXY_PORT, Container
from spec.endpoint import CPU_DEFAULT, MEMORY_DEFAULT, EndpointSpec
from spec.platform import Rollout

_SCRATCH, _OWN_SCRATCH = "tmp", "own-tmp"
# A server that says nothing for a minute hangs: a new process is started, and meanwhile no request comes to it.
_HANGS: Final = {"period_s": 10, "failures": 6, "timeout_s": 5}


def pod_template(spec: EndpointSpec, image: ServedImage, rollout: Rollout) -> Manifest:
    """The whole template, without the label of the revision that it will make."""
    assert spec.container is not None  # a file with an image states it
    gpus = (spec.accelerator.gpus or 0) if spec.accelerator is not None else 0
    return frame(
        spec,
        gpus,
        # Not the user: an image of one's own brings its own, and the kubelet refuses root.
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        initContainers=[_own(spec, spec.container, image, gpus, load_s(rollout))],
        containers=[_proxy(spec, spec.container, image, load_s(rollout))],
        volumes=[scratch(_SCRATCH, "64Mi"), scratch(_OWN_SCRATCH, "1Gi"), *_writable(spec.container)],
    )


def _own(spec: EndpointSpec, own: Container, image: ServedImage, gpus: int, most_s: int) -> Manifest:
    """The user's container, as strict as any of ours. Nothing reaches it but the interface and the kubelet: no Service,
    no route, no opened port leads to it. The interface starts once it is healthy, and says when requests may come."""
    folders = {_folder(number): path for number, path in enumerate(own.writable)}
    return container(
        "server",
        image.image,
        [],
        env=environment({"HOME": "/tmp"}, spec),
        mounts={_OWN_SCRATCH: "/tmp", **folders},
        user=own.user,
        restartPolicy="Always",
        startupProbe=probe(own.health_path, own.port, period_s=1, failures=most_s),
        livenessProbe=probe(own.health_path, own.port, **_HANGS),
        terminationMessagePolicy="FallbackToLogsOnError",
        **amounts(spec.resources.cpu or CPU_DEFAULT, spec.resources.memory or MEMORY_DEFAULT, gpus),
    )


def _proxy(spec: EndpointSpec, own: Container, image: ServedImage, most_s: int) -> Manifest:
    flags = {
        "--upstream-port": str(own.port),
        "--protocol": own.protocol,
        "--health-path": own.health_path,
        "--path": own.paths,
        "--port": str(PROXY_PORT),
        "--deadline-s": str(spec.deadline_s),
        "--load-timeout-s": str(most_s),
        "--name": spec.endpoint,
        "--version": image.version,
    }
    memory = str(PROXY_MEMORY)
    return container(
        PROXY,
        image.proxy_image,
        [FRONT_PYTHON, "-m", f"runtimes.{PROXY}"],
        args=arguments(flags),
        env=variables({"HOME": "/tmp"}),
        ports=[{"name": "http", "containerPort": PROXY_PORT, "protocol": "TCP"}],
        requests={"cpu": str(PROXY_CPU_REQUEST), "memory": memory},
        limits={"cpu": str(PROXY_CPU), "memory": memory},
        mounts={_SCRATCH: "/tmp"},
        user=USER,
        startupProbe=probe("/health", "http", period_s=1, failures=most_s + PROBE_MARGIN_S),
        readinessProbe=probe("/health", "http", period_s=1, failures=3),
        livenessProbe=probe("/live", "http", period_s=10, failures=6, timeout_s=5),
        lifecycle={"preStop": {"sleep": {"seconds": LEAVE_S}}},
        terminationMessagePolicy="FallbackToLogsOnError",
    )


def _folder(number: int) -> str:
    return f"own-{number}"


def _writable(own: Container) -> list[Manifest]:
    return [scratch(_folder(number), "1Gi") for number in range(len(own.writable))]
