"""A real API server for tests: a client, a namespace of one's own. A pytest plug-in.

It is the suite's own cluster, or, for whoever works on the controllers, the one that KNOBLESS_TEST_KUBECONFIG names
(never the user's KUBECONFIG: these tests install a kind and delete namespaces).
"""

import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.kube import NAMESPACES, KubeClient
from controllers.kube.credentials import from_kubeconfig
from embedded import pause

OWN_CLUSTER = "KNOBLESS_TEST_KUBECONFIG"
OWN_IMAGE = "KNOBLESS_TEST_IMAGE"


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    own = os.environ.get(OWN_CLUSTER)
    return Path(own or request.getfixturevalue("suite").instance.kubeconfig)


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> str:
    """An image whose process only waits."""
    return os.environ.get(OWN_IMAGE) or pause.reference(request.getfixturevalue("suite").instance)


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient(from_kubeconfig(kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    name = f"controllers-{uuid.uuid4().hex[:8]}"
    await kube.create(NAMESPACES, None, {"metadata": {"name": name}})
    yield name
    await kube.delete(NAMESPACES, None, name)
