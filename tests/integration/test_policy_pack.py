"""The real policy pack in its own process: what the engine would send, and the verdicts that come back."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE

from components.manifests import endpoint, team
from components.manifests.served import ServedModel
from runtimes.selection import Wish, select
from runtimes.selection_card import Card
from spec.endpoint import load_endpoint
from spec.platform import Rollout

pytestmark = pytest.mark.process

PACK = Path(__file__).parents[2] / "policies" / "pack"
IMAGE = f"registry:5000/mlflow@sha256:{'a' * 64}"
START_WITHIN_S = 30


@pytest.fixture(scope="module")
def pack() -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    """The pack as the engine starts it; its first line is the port that it listens on."""
    environment = os.environ | {"PULUMI_PROJECT": "knobless", "PULUMI_STACK": "t", "PULUMI_DRY_RUN": "true"}
    command = [sys.executable, "-u", "-m", "pulumi.policy", "127.0.0.1:1", str(PACK)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process, ThreadPoolExecutor(1) as reader:
        try:
            assert process.stdout is not None
            port = int(reader.submit(process.stdout.readline).result(START_WITHIN_S))
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield analyzer_pb2_grpc.AnalyzerStub(channel)
        finally:
            process.kill()


def struct(value: dict[str, Any]) -> struct_pb2.Struct:
    message = struct_pb2.Struct()
    message.update(value)
    return message


def urn(obj: dict[str, Any]) -> str:
    return f"urn:pulumi:t::knobless::{token(obj)}::{obj['metadata']['name']}"


def token(obj: dict[str, Any]) -> str:
    return f"kubernetes:{obj['apiVersion']}:{obj['kind']}"


def analyze(pack: analyzer_pb2_grpc.AnalyzerStub, obj: dict[str, Any], protect: bool = True) -> dict[str, str]:
    """Messages by policy."""
    request = analyzer_pb2.AnalyzeRequest(
        type=token(obj),
        properties=struct(obj),
        urn=urn(obj),
        name=obj["metadata"]["name"],
        options=analyzer_pb2.AnalyzerResourceOptions(protect=protect),
    )
    diagnostics = pack.Analyze(request, timeout=20).diagnostics
    assert all(found.enforcementLevel == analyzer_pb2.MANDATORY for found in diagnostics)
    return {found.policyName: found.message for found in diagnostics}


def analyze_stack(pack: analyzer_pb2_grpc.AnalyzerStub, *objects: dict[str, Any]) -> list[str]:
    resources = [
        analyzer_pb2.AnalyzerResource(
            type=token(obj), properties=struct(obj), urn=urn(obj), name=obj["metadata"]["name"]
        )
        for obj in objects
    ]
    request = analyzer_pb2.AnalyzeStackRequest(resources=resources)
    return [found.policyName for found in pack.AnalyzeStack(request, timeout=20).diagnostics]


@pytest.fixture
def model_endpoint() -> dict[str, Any]:
    text = "endpoint: iris\nmodel: models:/iris/1\nconcurrency: {min: 1, max: 64}\n"
    served = ServedModel("models:/iris/1", "1", "a" * 64, IMAGE, IMAGE, select(Card("sklearn", pyfunc=True), Wish()))
    spec = load_endpoint(text, "iris.yaml", "alpha")
    return copy.deepcopy(endpoint.endpoint_object(spec, served, "http://mlflow:5500", Rollout()))


def server(obj: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = obj["spec"]["podTemplate"]["spec"]["containers"][0]
    return found


@pytest.mark.case("pulumi-H3")
def test_the_pack_starts_and_names_its_policies(pack: analyzer_pb2_grpc.AnalyzerStub) -> None:
    info = pack.GetAnalyzerInfo(empty_pb2.Empty(), timeout=20)
    assert info.name == "knobless"
    assert {"image-digest", "unprivileged", "default-deny"} <= {policy.name for policy in info.policies}


def test_an_endpoint_of_the_platform_passes(
    pack: analyzer_pb2_grpc.AnalyzerStub, model_endpoint: dict[str, Any]
) -> None:
    assert analyze(pack, model_endpoint) == {}


def test_a_violation_stops_the_run_and_names_field_and_remedy(
    pack: analyzer_pb2_grpc.AnalyzerStub, model_endpoint: dict[str, Any]
) -> None:
    server(model_endpoint)["image"] = "mlflow:latest"
    messages = analyze(pack, model_endpoint)
    assert list(messages) == ["image-digest"]
    assert "ModelEndpoint team-alpha/iris: spec.podTemplate.spec.containers[0].image" in messages["image-digest"]


@pytest.mark.case("pulumi-H5")
def test_an_unknown_value_in_a_gated_field_is_a_violation_and_not_a_note(
    pack: analyzer_pb2_grpc.AnalyzerStub, model_endpoint: dict[str, Any]
) -> None:
    server(model_endpoint)["image"] = UNKNOWN_STRING_VALUE
    assert "is not known before the run" in analyze(pack, model_endpoint)["image-digest"]


def test_an_unknown_value_in_a_field_that_no_rule_gates_is_none(
    pack: analyzer_pb2_grpc.AnalyzerStub, model_endpoint: dict[str, Any]
) -> None:
    model_endpoint["spec"]["model"]["version"] = UNKNOWN_STRING_VALUE
    assert analyze(pack, model_endpoint) == {}


def test_an_endpoint_that_is_not_protected_is_a_violation(
    pack: analyzer_pb2_grpc.AnalyzerStub, model_endpoint: dict[str, Any]
) -> None:
    assert list(analyze(pack, model_endpoint, protect=False)) == ["protected"]


def test_a_stack_is_judged_as_a_whole(pack: analyzer_pb2_grpc.AnalyzerStub) -> None:
    assert analyze_stack(pack, team.namespace("alpha"), team.default_deny("alpha")) == []
    assert analyze_stack(pack, team.namespace("alpha"), team.default_deny("beta")) == ["default-deny"]
