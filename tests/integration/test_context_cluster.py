"""The same commands on a cluster that is somebody's own: named by its context, with its registry and its MLflow.

An embedded node stands for it. The command is told nothing of that: it gets a kubeconfig and three addresses. The
tests are one life of one environment, in this order.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest
import yaml

import embedded
from embedded.instance import Instance
from spec import names
from stacks.cli import mlflow_env, workspace
from tests.platform_lab import command
from tests.platform_lab.command import HOME, ROOT, Said, must, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

INSTANCE: Final = Instance("foreign", HOME, 7)
ENVIRONMENT: Final = "foreign"
CONTEXT: Final = INSTANCE.node_name
PORT: Final = 30443
REGISTRY: Final = f"{INSTANCE.registry}/foreign"
URL: Final = f"https://{INSTANCE.node_address}:{PORT}"
PLATFORM: Final = {
    "environment": ENVIRONMENT,
    "cluster": {"context": CONTEXT},
    "registry": f"http://{REGISTRY}",
    "model_registry": INSTANCE.mlflow_uri,
    "gateway": {"expose": "NodePort", "port": PORT},
    "teams": {"alpha": {}},
}
ENDPOINT: Final = {"endpoint": "wine", "model": "models:/wine/1", "concurrency": {"min": 1, "max": 32}}
PASSING: Final = ("event", "endpointslice", "lease")  # objects that come and go on any cluster


@dataclass(frozen=True)
class Foreign:
    """The cluster, the folder of declarations, and what stood on the cluster before."""

    stacks: Path
    before: frozenset[str]

    def knobless(self, *arguments: str) -> Said:
        # As people have it: several files, and the current context is another cluster's.
        files = f"{self.stacks / 'elsewhere'}:{INSTANCE.kubeconfig}"
        return command.knobless(self.stacks, "-e", ENVIRONMENT, *arguments, KUBECONFIG=files)

    def must(self, *arguments: str) -> Said:
        return must(self.knobless(*arguments))

    def declare(self, **changed: object) -> None:
        folder = self.stacks / ENVIRONMENT
        wine = folder / names.ENDPOINTS_FOLDER / "alpha" / "wine.yaml"
        wine.parent.mkdir(parents=True, exist_ok=True)
        wine.write_text(yaml.safe_dump(ENDPOINT))
        (folder / names.PLATFORM_FILE).write_text(yaml.safe_dump({**PLATFORM, **changed}))


def kubectl(*arguments: str) -> str:
    argv = ["kubectl", f"--kubeconfig={INSTANCE.kubeconfig}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout


def everything() -> frozenset[str]:
    """Every object of every kind, but those that come and go by themselves."""
    kinds = kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kept = ",".join(kind for kind in kinds if not kind.startswith(PASSING))
    template = "{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}".replace("'", '"')
    return frozenset(kubectl("get", kept, "-A", "-o", f"jsonpath={template}").splitlines())


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foreign]:
    place = workspace.from_process(ENVIRONMENT, "default")
    python = mlflow_env.ensure(place, print)
    tools = shutil.which("kube-apiserver")
    assert tools is not None
    embedded.down(INSTANCE)  # what an interrupted run left
    shutil.rmtree(place.cluster_dir, ignore_errors=True)
    try:
        embedded.up(INSTANCE, Path(tools).parent, python)
        mlflow_env.run_script(place, ROOT / "examples" / "train.py", INSTANCE.mlflow_uri)
        stacks = tmp_path_factory.mktemp("stacks")
        elsewhere = {"contexts": [{"name": "elsewhere", "context": {}}], "current-context": "elsewhere"}
        (stacks / "elsewhere").write_text(yaml.safe_dump(elsewhere))
        yield Foreign(stacks, everything())
    finally:
        embedded.down(INSTANCE)


def test_a_wrong_context_is_one_message_with_those_that_there_are(foreign: Foreign) -> None:
    foreign.declare(cluster={"context": "prod"})
    said = foreign.knobless("up")
    assert said.code == 6
    assert "no context 'prod'" in said.err and "elsewhere" in said.err


def test_a_build_leaves_every_image_in_the_named_registry_and_a_second_one_pushes_nothing(foreign: Foreign) -> None:
    foreign.declare()
    said = foreign.must("build")
    assert f"platform     {REGISTRY}/knobless/platform@sha256:" in said.text
    assert f"model        {REGISTRY}/knobless/model:" in said.text
    assert "models:/wine/1: mlflow" in said.text
    assert "pushing" not in foreign.must("build").text


def test_behind_a_load_balancer_a_missing_certificate_is_one_message_and_down_clears_what_began(
    foreign: Foreign,
) -> None:
    foreign.declare(gateway={"expose": "LoadBalancer"})
    said = foreign.knobless("up")
    assert said.code == 6
    assert "create secret tls gateway-tls --cert FILE --key FILE" in said.err
    assert "No stack of 'foreign' is known here" in foreign.must("down").err
    wait_until(lambda: not everything() - foreign.before, 30, "the namespace is gone")
    foreign.declare()


def test_a_plan_comes_before_anything_is_there(foreign: Foreign) -> None:
    assert "new endpoint" in foreign.must("plan").text
    assert everything() - foreign.before == set()


def test_up_serves_and_says_where(foreign: Foreign) -> None:
    said = foreign.must("up")
    assert URL in said.out
    assert "made the gateway's certificate" in said.err
    assert foreign.must("plan", "--expect-no-changes").code == 0


def test_what_serves_is_seen_asked_and_read_with_the_same_commands(foreign: Foreign) -> None:
    (status,) = json.loads(foreign.must("status", "--json").out)
    assert (status["endpoint"], status["ready"]) == ("wine", True)
    assert f"gateway {URL}" in foreign.must("status").out
    key = foreign.must("keys", "create", "--team", "alpha").out.strip()
    assert key.startswith("kn_")
    answer = foreign.must("predict", "wine").out
    assert answer.startswith("HTTP 200") and f"{URL}/serving-endpoints/wine/invocations" in answer
    assert "wine" in foreign.must("logs", "wine").out


def test_images_are_named_in_pods_without_a_scheme(foreign: Foreign) -> None:
    images = kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}").split()
    ours = {image for image in images if "knobless/" in image}
    assert ours and all(image.startswith(f"{REGISTRY}/knobless/") and "@sha256:" in image for image in ours)


def test_down_asks_first(foreign: Foreign) -> None:
    said = foreign.knobless("down")
    assert said.code == 1 and "knobless down --yes" in said.err
    assert "foreign.alpha.wine" in said.err and "knobless-system, team-alpha" in said.err
    assert kubectl("get", "mep", "-A", "-o", "name")


def test_down_leaves_the_cluster_as_it_was_and_keeps_images_and_models(foreign: Foreign) -> None:
    foreign.must("down", "--yes")
    assert everything() - foreign.before == set()
    listed = httpx.get(f"http://{INSTANCE.registry}/v2/foreign/knobless/platform/tags/list", trust_env=False)
    assert listed.json()["tags"]
    asked = {"name": "wine", "version": "1"}
    found = httpx.get(f"{INSTANCE.mlflow_uri}/api/2.0/mlflow/model-versions/get", params=asked, trust_env=False)
    assert found.is_success
