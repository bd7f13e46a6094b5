"""What the platform declares around the gateway, so that whole kinds of failures have no place."""

from __future__ import annotations

import re

import pytest

from components.manifests import gateway
from controllers.gateway import render
from runtimes.interface.settings import KEEP_ALIVE_S
from spec.platform import load_platform
from tests.goldens.gateway.write import DESIRED, SETTINGS

IMAGE = f"registry:5000/platform@sha256:{'a' * 64}"


@pytest.mark.case("gateway-A6")
@pytest.mark.case("gateway-A11")
def test_one_gateway_owns_every_pod() -> None:
    """Two would each grant a pod's limit, and clients would have to be spread over them: neither is built yet."""
    platform = load_platform("environment: local\nteams: {alpha: {}}\n", "platform.yaml", "local")
    declared = gateway.deployment(platform, IMAGE)["spec"]
    assert declared.get("replicas", 1) == 1


@pytest.mark.case("gateway-C2")
def test_no_pod_closes_a_connection_that_the_gateway_still_keeps() -> None:
    """No gap between two requests meets the pod's idle limit, so the race for the last moment has no runner.

    HAProxy closes what it does not need by a part every `pool-purge-delay` (5 s where nothing is said): of 32 idle
    connections none was left after 40 s, and a pod keeps one for an hour.
    """
    assert KEEP_ALIVE_S >= 3600
    config = render.files(DESIRED, SETTINGS)["haproxy.cfg"]
    assert not re.search(r"pool-purge-delay|pool-low-conn|http-reuse never", config)
