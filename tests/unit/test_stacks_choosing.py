"""What an endpoint's file names becomes what serves it, or a problem of the field that keeps it from being served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from components.manifests.served import ServedImage, ServedModel
from runtimes.selection_card import Card
from spec.endpoint import EndpointSpec, load_endpoint
from spec.image_reference import ImageReference, parse_image_reference
from spec.model_reference import ModelReference
from spec.problems import SpecError
from stacks import lookup
from stacks.choosing import Place, served, told_choice
from stacks.cluster import ClusterFacts
from stacks.images import Image, ImageError
from stacks.model_registry import ModelRegistryError, RegisteredModel

ROOT = Path(__file__).parents[2]
FILE = "stacks/local/endpoints/alpha/one.yaml"
MODEL = "endpoint: one\nmodel: models:/one/1\nconcurrency: {min: 1, max: 8}\n"
IMAGE = "endpoint: one\nimage: r.io/one:1\ncontainer: {protocol: v2}\nconcurrency: {min: 1, max: 8}\n"
SKLEARN = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)
LLM = Card("transformers", pyfunc=True, python="3.13.1", task="llm/v1/chat", size_bytes=300_000)
DIGEST = "sha256:" + "0" * 64


@dataclass
class Answers:
    """Registries that answer, or refuse with the given error."""

    card: Card = SKLEARN
    environment: str = "e1"
    refusal: Exception | None = None

    def model(self, reference: ModelReference) -> RegisteredModel:
        if self.refusal is not None:
            raise self.refusal
        return RegisteredModel(reference.uri, reference.version_text, "ab" * 32, self.card, self.environment)

    def digest(self, image: Image) -> str:
        return f"{image.repository}@{DIGEST}"

    def own(self, reference: ImageReference) -> str:
        if self.refusal is not None:
            raise self.refusal
        return reference.at(DIGEST)


def spec_of(text: str) -> EndpointSpec:
    return load_endpoint(text, FILE, "alpha")


def place(answers: Answers) -> Place:
    return Place(ROOT, "local", "registry:5000", answers)


def problems(text: str, answers: Answers) -> list[str]:
    with pytest.raises(SpecError) as caught:
        served(place(answers), spec_of(text))
    return [str(problem) for problem in caught.value.problems]


def test_a_classic_model_is_brought_and_served_by_the_image_of_its_own_environment() -> None:
    found = served(place(Answers()), spec_of(MODEL))
    assert isinstance(found, ServedModel)
    assert found.image == found.fetch_image == f"knobless/model@{DIGEST}"
    assert told_choice(spec_of(MODEL), found) == (
        "mlflow, 500m CPU, 1Gi, first limit 64 (scikit-learn of 12.1 KiB, whose waiting requests are batched)"
    )


def test_a_replica_over_several_nodes_is_told_so_and_one_that_can_not_be_is_refused_at_its_field() -> None:
    spec = spec_of(MODEL + "resources: {nodes: 2}\n")
    found = served(place(Answers(LLM)), spec)
    assert (found.nodes, told_choice(spec, found).partition(", first")[0]) == (
        2,
        "vllm, 2 nodes a replica, each 2 CPU, 5376Mi",
    )
    (text,) = problems(MODEL + "resources: {nodes: 2}\n", Answers(SKLEARN))
    assert text.startswith(f"{FILE}: resources.nodes: ")


def test_an_image_of_one_s_own_comes_with_the_interface() -> None:
    spec = spec_of(IMAGE)
    found = served(place(Answers()), spec)
    assert found == ServedImage("r.io/one:1", "1", f"r.io/one@{DIGEST}", f"knobless/proxy@{DIGEST}", 8)
    assert told_choice(spec, found) == (
        "an image of its own behind the interface (v2), first limit 8 (no parallelism is stated)"
    )


@pytest.mark.parametrize(
    ("text", "answers", "told"),
    [
        (MODEL, Answers(refusal=ModelRegistryError("not there")), ["model: not there"]),
        (MODEL, Answers(environment=""), ["model: models:/one/1 has no image yet for its own environment: run"]),
        (IMAGE, Answers(refusal=ImageError("not there")), ["image: not there"]),
        (MODEL, Answers(card=Card("sklearn", pyfunc=True, python="3.9.1")), ["model: it was logged with Python 3.9.1"]),
        (
            MODEL + "runtime: triton\naccelerator: {gpus: 2}\n",
            Answers(),
            ["accelerator.gpus: triton uses one GPU a replica", "runtime: Triton takes ONNX models"],
        ),
    ],
)
def test_what_can_not_be_served_is_a_problem_of_its_field(text: str, answers: Answers, told: list[str]) -> None:
    found = problems(text, answers)
    assert len(found) == len(told)
    assert all(line.startswith(f"{FILE}: {start}") for line, start in zip(found, told, strict=True))


def test_an_image_by_digest_is_taken_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpx, "Client", None)
    cluster = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry="http://m:5500")
    reference = parse_image_reference("r.io/one:1@sha256:" + "a" * 64)
    assert lookup.HttpLookup(cluster, True).own(reference) == "r.io/one@sha256:" + "a" * 64
