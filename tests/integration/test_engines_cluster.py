"""The other engines on the running platform: LightGBM, a tiny language model on vLLM, and a network on Triton come from
files by one command, answer their official clients through the gateway, and change their version under load.

Their images take gigabytes and are built for it, so it has a target of its own: `make test-engines`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from controllers.kube.fields import condition, seconds
from spec import names
from stacks import images
from stacks.cli import mlflow_env, workspace
from tests.gateway_lab.client import Client
from tests.platform_lab.command import HOME, ROOT, must, wait_until
from tests.platform_lab.load import Load, Target
from tests.platform_lab.suite import ENVIRONMENT, INSTANCE, Suite
from tests.runtime_lab import environments

pytestmark = [pytest.mark.cluster, pytest.mark.engines, pytest.mark.timeout(3600)]

BUILD_S = 3000.0  # the first `up` installs 6 GB into images
START_S = 900
JSON = {"content-type": "application/json"}
CHAT = "v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16, "temperature": 0}
HELLO |= {"ignore_eos": True}
ROWS = [[1, 2, 3, 4], [4, 3, 2, 1]]
Y = [[1.5, 10.5, 10.0], [9.5, 8.5, 0.0]]  # ROWS W + b
INFER = "v2/models/net/infer"
TENSOR = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": ROWS}


@dataclass(frozen=True)
class Asked:
    """A request: its body, and by which path; `ends` as a whole answer does."""

    body: bytes
    part: str = "invocations"
    path: str | None = None
    ends: bytes = b""

    def of(self, target: Target) -> Target:
        return replace(target, part=self.part, path=self.path, ends=self.ends)


@dataclass(frozen=True)
class Served:
    """An endpoint of two versions of a model, what clients ask all the time, and what in an answer is the model's."""

    endpoint: str
    fields: dict[str, Any]
    asked: list[Asked]
    read: Callable[[Any], Any]
    model: str = ""  # where it has another name

    def declare(self, suite: Suite, version: int) -> None:
        # A replaced version's pod ends once the longest request that it may have is over.
        rollout = {"hold_s": 0, "start_timeout_s": START_S}
        limits: dict[str, Any] = {"concurrency": {"min": 1, "max": 16}, "deadline_s": 60, "rollout": rollout}
        model = f"models:/{self.model or self.endpoint}/{version}"
        suite.declare(self.endpoint, model=model, **limits, **self.fields)

    def answer(self, suite: Suite) -> Any:
        """What the model says to the first of the questions."""
        target = self.asked[0].of(suite.target(self.endpoint))

        async def ask() -> Any:
            client = Client(target.port, target.key, target.tls, target.host)
            reply = await client.call(target.endpoint, target.part, body=self.asked[0].body, headers=JSON)
            await client.leave()
            assert reply.status == 200, reply.body
            return self.read(reply.json)

        return asyncio.run(ask())


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


DONE = b"data: [DONE]\n\n"


def chatting(endpoint: str, model: str = "", **fields: Any) -> Served:
    """A language model that is asked for whole answers, and for streams by its own path and by the platform's."""
    whole = HELLO | {"model": endpoint}
    streamed = encoded(whole | {"stream": True})
    asked = [
        Asked(encoded(whole), CHAT),
        Asked(streamed, CHAT, ends=DONE),
        Asked(streamed, path=f"/{CHAT}", ends=DONE),
    ]
    return Served(endpoint, fields, asked, lambda told: told["choices"][0]["message"]["content"], model)


TALK = chatting("talk")
NET = Served(
    "net",
    {"runtime": "triton"},
    [Asked(encoded({"inputs": [TENSOR]}), INFER), Asked(encoded({"inputs": {"x": ROWS}}))],
    lambda told: next(output["data"] for output in told["outputs"] if output["name"] == "y"),
)


@pytest.fixture(scope="module")
def boosted(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> tuple[Served, list[Any]]:
    """LightGBM's endpoint, and what the library itself predicts with each version."""
    folders = [tmp_path_factory.mktemp("boosted") / "made" for _ in range(2)]
    python = environments.flavors_python()
    told = [environments.told(python, "boosted.py", *each) for each in zip(folders, ("20", "40"), strict=True)]
    register(suite, "boosted", [folder / "model" for folder in folders])
    served = Served("boosted", {}, [Asked(encoded(told[0]["asked"]))], lambda answer: answer["predictions"])
    return served, [each["expected"] for each in told]


@pytest.fixture(scope="module")
def running(suite: Suite, boosted: tuple[Served, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    """All three, of their first versions, from files by one command."""
    folders = [tmp_path_factory.mktemp("engine") / "made" for _ in range(4)]
    for folder, seed in zip(folders[:2], ("7", "8"), strict=True):
        environments.run(environments.vllm_python(), "tiny_llm.py", folder, seed)
    for folder, added in zip(folders[2:], ("0", "10"), strict=True):
        environments.run(environments.triton_python(), "tiny_networks.py", folder, added)
    register(suite, "talk", [folder / "model" for folder in folders[:2]])
    register(suite, "net", [folder / "line" for folder in folders[2:]])
    served = [boosted[0], TALK, NET]
    for each in served:
        each.declare(suite, 1)
    said = must(suite.knobless("up", "--no-demo", *only(served), bound_s=BUILD_S))
    print(said.text, *(start(suite, each.endpoint) for each in served), sep="\n")
    return served


def only(served: list[Served]) -> list[str]:
    return [part for each in served for part in ("--only", each.endpoint)]


def register(suite: Suite, name: str, folders: list[Path]) -> None:
    place = workspace.from_process(ENVIRONMENT, INSTANCE)
    script = ROOT / "tests" / "platform_lab" / "engine_models.py"
    mlflow_env.run_script(place, script, suite.instance.mlflow_uri, name, *map(str, folders))


def start(suite: Suite, endpoint: str) -> str:
    """How long the newest pod took: until its model was there, and until it served."""
    pod = max(suite.pods(endpoint), key=lambda each: str(each["metadata"]["creationTimestamp"]))
    made_s = seconds(pod["metadata"]["creationTimestamp"]) or 0.0
    there_s, ready_s = (
        (seconds(condition(pod, kind)["lastTransitionTime"]) or 0.0) - made_s for kind in ("Initialized", "Ready")
    )
    return f"{endpoint}: the model was there {there_s:.0f} s after its pod was made, and served after {ready_s:.0f} s"


def test_each_engine_is_the_one_that_its_model_asks_for(suite: Suite, running: list[Served]) -> None:
    found = {}
    for each in running:
        (pod,) = suite.pods(each.endpoint)
        found[each.endpoint] = pod["spec"]["containers"][0]["image"].partition("@")[0].rpartition("/")[2]
    assert found == {"boosted": "model", "talk": images.VLLM, "net": images.TRITON}


def test_lightgbm_answers_what_the_library_predicts(
    suite: Suite, running: list[Served], boosted: tuple[Served, list[Any]]
) -> None:
    assert boosted[0].answer(suite) == pytest.approx(boosted[1][0])


@pytest.mark.parametrize("below", ["/serving-endpoints/talk/v1", "/v1"])
def test_the_official_openai_client_chats_and_streams(
    suite: Suite, running: list[Served], below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = trusted(suite, "talk", monkeypatch)
    base_url = f"https://{target.host}:{target.port}{below}"
    found = environments.told(environments.vllm_python(), "chat_client.py", base_url, "talk")
    assert "talk" in found["models"]
    assert found["whole"] == found["streamed"] != ""
    assert found["pieces"] > 4


def test_the_official_triton_client_infers(
    suite: Suite, running: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = trusted(suite, "net", monkeypatch)
    address = f"{target.host}:{target.port}/serving-endpoints/net"
    found = environments.told(environments.triton_python(), "triton_client.py", "gateway", address, "net")
    assert found == {"ready": True, "versions": ["1"], "y": Y}


def trusted(suite: Suite, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Target:
    target = suite.target(endpoint)
    for name, value in {"API_KEY": target.key, "OPENAI_API_KEY": target.key}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SSL_CERT_FILE", str(HOME / "ca" / "ca.crt"))
    return target


def test_a_network_takes_and_gives_bodies_of_megabytes(suite: Suite, running: list[Served]) -> None:
    """Each instance of Triton's has the largest that it met in shared memory."""
    rows = 600_000
    target = NET.asked[0].of(suite.target("net"))
    body = encoded({"inputs": [TENSOR | {"shape": [rows, 4], "data": [0.25] * (4 * rows)}], "outputs": [{"name": "y"}]})

    async def ask() -> int:
        client = Client(target.port, target.key, target.tls, target.host)
        reply = await client.call(target.endpoint, target.part, body=body, headers=JSON)
        await client.leave()
        assert reply.status == 200, reply.body[:300]
        return len(reply.json["outputs"][0]["data"])

    async def many() -> list[int]:
        return await asyncio.gather(*(ask() for _ in range(4)))

    assert asyncio.run(many()) == [3 * rows] * 4


@pytest.mark.parametrize("place", [0, 1, 2], ids=["boosted", "talk", "net"])
def test_a_version_is_switched_under_load_without_a_failed_request(
    suite: Suite, running: list[Served], place: int
) -> None:
    served = running[place]
    before = served.answer(suite)
    first = {pod["metadata"]["name"] for pod in suite.pods(served.endpoint)}
    with contextlib.ExitStack() as stack:
        target = suite.target(served.endpoint)
        loads = [Load(each.of(target), each.body, 2, pause_s=0.1, bound_s=START_S) for each in served.asked]
        tallies = [stack.enter_context(load) for load in loads]
        served.declare(suite, 2)
        said = must(suite.knobless("up", "--no-demo", "--only", served.endpoint, bound_s=BUILD_S))
        print(start(suite, served.endpoint))
        wait_until(lambda: first.isdisjoint(running_pods(suite, served.endpoint)), 240, "the first version's pod ended")
    assert "new revision" in said.text
    print(served.endpoint, [tally.total for tally in tallies], "requests")
    assert not any(tally.failed for tally in tallies), [(tally.failed, tally.failures) for tally in tallies]
    assert all(tally.total > 50 for tally in tallies)
    assert served.answer(suite) != before
    assert suite.status(served.endpoint)["modelVersion"] == "2"


def running_pods(suite: Suite, endpoint: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in suite.pods(endpoint)}


def test_afterwards_all_are_ready_and_nothing_is_left_to_do(
    suite: Suite, running: list[Served], boosted: tuple[Served, list[Any]]
) -> None:
    rows = [line.split() for line in suite.must("status").out.splitlines()]
    states = {row[0]: (row[2], "Ready" in row) for row in rows if row and row[0] in ("boosted", "talk", "net")}
    assert states == dict.fromkeys(("boosted", "talk", "net"), ("2", True))
    assert boosted[0].answer(suite) == pytest.approx(boosted[1][1])
    before = {each.endpoint: suite.status(each.endpoint)["trafficRevision"] for each in running}
    said = must(suite.knobless("up", "--no-demo", *only(running)))
    for each in running:
        assert f"{names.EndpointStack(ENVIRONMENT, 'alpha', each.endpoint).name}: no change" in said.text
        assert suite.status(each.endpoint)["trafficRevision"] == before[each.endpoint]


@pytest.fixture(scope="module")
def doubles(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """An exported network of PyTorch's, for which Triton's image has PyTorch in it."""
    folder = tmp_path_factory.mktemp("torch") / "model"
    environments.run(environments.vllm_python(), "torch_network.py", folder)
    register(suite, "doubles", [folder])
    tensor = {"name": "INPUT__0", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}
    asked = Asked(encoded({"inputs": [tensor]}), "v2/models/doubles/infer")
    served = Served("doubles", {"runtime": "triton"}, [asked], lambda told: told["outputs"][0]["data"])
    served.declare(suite, 1)
    said = must(suite.knobless("up", "--no-demo", *only([served]), bound_s=BUILD_S))
    print(said.text, start(suite, "doubles"), sep="\n")
    return served


def test_an_exported_network_of_pytorch_runs_on_triton(suite: Suite, doubles: Served) -> None:
    (pod,) = suite.pods("doubles")
    assert f"/{images.TRITON_TORCH}@" in pod["spec"]["containers"][0]["image"]
    assert doubles.answer(suite) == [2, 4, 6, 8]


@pytest.fixture(scope="module")
def wide(suite: Suite, running: list[Served]) -> Served:
    """The model of `talk`, a replica of which is two pods here, each with a layer of it; both of them on the one node
    that there is."""
    served = chatting("wide", "talk", resources={"cpu": "600m", "memory": "4Gi", "nodes": 2})
    served.declare(suite, int(suite.status("talk")["modelVersion"]))
    said = must(suite.knobless("up", "--no-demo", *only([served]), bound_s=BUILD_S))
    print(said.text, start(suite, "wide"), sep="\n")
    return served


def test_a_model_over_two_pods_says_what_it_says_in_one(suite: Suite, wide: Served) -> None:
    places = {pod["metadata"]["labels"][names.LABEL_WORKER_INDEX] for pod in suite.pods("wide")}
    assert places == {"0", "1"}
    assert wide.answer(suite) == TALK.answer(suite) != ""


def test_a_model_over_two_pods_streams(suite: Suite, wide: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    target = trusted(suite, "wide", monkeypatch)
    base_url = f"https://{target.host}:{target.port}/serving-endpoints/wide/v1"
    found = environments.told(environments.vllm_python(), "chat_client.py", base_url, "wide")
    assert found["whole"] == found["streamed"] != ""
    assert found["pieces"] > 4
