"""An image of one's own on the cluster: refused until its Secret is there, served, and replaced without a lost request
although its server drops whatever is in flight when it is told to end."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded import debian, images
from tests.gateway_lab.client import Client
from tests.platform_lab.command import HOME, wait_until
from tests.platform_lab.load import Target
from tests.platform_lab.suite import Suite, sleeping

LONGER_THAN_LEAVING_S = 25
STUB = Path(__file__).parent / "own_image"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def image(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stub in the suite's registry, by a tag."""
    context = tmp_path_factory.mktemp("stub") / "context"
    shutil.copytree(STUB, context)
    arguments = {"BASE": debian.build(HOME)}
    recipe = images.recipe("own-stub", context / "Containerfile", context, [context / "server.pl"], arguments)
    images.push(suite.instance, recipe)
    return str(recipe.published(suite.instance))


def declare(suite: Suite, image: str, mode: str) -> None:
    content: dict[str, Any] = {
        "endpoint": "own",
        "image": image,
        "container": {"protocol": "mlflow", "port": 19413, "paths": ["/own/path"]},
        "concurrency": {"min": 1, "max": 32},
        "resources": {"cpu": "200m", "memory": "128Mi"},
        "deadline_s": 40,
        "rollout": {"hold_s": 0},
        "env": {"MODE": mode, "TOKEN": {"secret": "of-own", "key": "token"}},
    }
    file = suite.file("alpha", "own")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content, sort_keys=False))


async def predicted(target: Target, seconds: float = 0, part: str = "invocations") -> list[Any]:
    """The stub's answer after this long: the variable, the length of the secret, its user."""
    client = Client(target.port, target.key, target.tls, target.host)
    reply = await client.call("own", part, body=sleeping(seconds), headers={"content-type": "application/json"})
    await client.leave()
    assert reply.status == 200, reply.body
    found: list[Any] = json.loads(reply.body)["predictions"]
    return found


async def predicted_while_its_pod_ends(suite: Suite, pod: str) -> list[Any]:
    """The answer to a request that is in flight when the pod's containers are told to end, 15 s after it is deleted."""
    answering = asyncio.create_task(predicted(suite.target("own"), LONGER_THAN_LEAVING_S))
    await asyncio.sleep(1)
    gone = await asyncio.to_thread(suite.kubectl, "-n", "team-alpha", "delete", "pod", pod, "--wait=false")
    assert gone.code == 0, gone.text
    return await answering


def running(suite: Suite) -> set[str]:
    return {pod["metadata"]["name"] for pod in suite.pods("own")}


def test_an_image_is_served_with_its_secret_and_replaced_without_a_lost_request(suite: Suite, image: str) -> None:
    declare(suite, image, "first")
    refused = suite.knobless("up", "--no-demo", "--only", "own")
    assert refused.code == 6
    assert "own: env.TOKEN: Secret of-own is missing in team-alpha" in refused.text
    made = suite.kubectl("-n", "team-alpha", "create", "secret", "generic", "of-own", "--from-literal=token=abcdefg")
    assert made.code == 0, made.text
    said = suite.up("own")
    assert "behind the interface" in said.text

    target = suite.target("own")
    assert asyncio.run(predicted(target)) == ["first", 7, 1000]
    (pod,) = suite.pods("own")
    assert pod["spec"]["initContainers"][0]["image"].startswith(image.rpartition(":")[0] + "@sha256:")

    first = pod["metadata"]["name"]
    assert asyncio.run(predicted_while_its_pod_ends(suite, first)) == ["first", 7, 1000]
    wait_until(lambda: first not in running(suite), 60, "the deleted pod has ended")
    (first,) = running(suite)

    with suite.load("own", clients=6, sleep_s=0.2, pause_s=0.02) as tally:
        declare(suite, image, "second")
        suite.up("own")
        wait_until(lambda: first not in running(suite), 120, "the first revision's pod has ended")
    assert not tally.failed, (tally.failed, tally.failures)
    assert tally.total > 50
    assert {asyncio.run(predicted(target, part=part))[0] for part in ("invocations", "own/path")} == {"second"}
