"""What is told of each endpoint before a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimes.selection_card import Card
from spec.endpoint import EndpointSpec, load_endpoint
from spec.image_reference import ImageReference
from spec.model_reference import ModelReference
from stacks.choosing import Place
from stacks.cli import choices
from stacks.cli.errors import CliError, ExitCode
from stacks.images import Image, ImageError
from stacks.model_registry import RegisteredModel

CARD = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)


class Answers:
    def model(self, reference: ModelReference) -> RegisteredModel:
        return RegisteredModel(reference.uri, reference.version_text, "ab" * 32, CARD, "e1")

    def digest(self, image: Image) -> str:
        return image.at("sha256:" + "0" * 64)

    def own(self, reference: ImageReference) -> str:
        raise ImageError(f"{reference} is not there")


def endpoint(name: str, source: str) -> EndpointSpec:
    text = f"endpoint: {name}\n{source}\nconcurrency: {{min: 1, max: 8}}\n"
    return load_endpoint(text, f"stacks/local/endpoints/alpha/{name}.yaml", "alpha")


PLACE = Place(Path(__file__).parents[2], "local", "registry:5000", Answers())
GOOD = endpoint("good", "model: models:/good/1")


def test_the_choice_and_its_reason_are_one_line_an_endpoint() -> None:
    assert choices.lines(PLACE, [GOOD, endpoint("other", "model: models:/other/2\nparallelism: 8")]) == [
        "good         models:/good/1: mlflow, 500m CPU, 1Gi, first limit 64 (scikit-learn of 12.1 KiB, whose waiting "
        "requests are batched)",
        "other        models:/other/2: mlflow, 500m CPU, 1Gi, first limit 8 (scikit-learn of 12.1 KiB, whose waiting "
        "requests are batched)",
    ]


def test_nothing_is_told_where_nothing_is_declared() -> None:
    assert choices.lines(PLACE, []) == []


def test_the_problems_of_all_endpoints_are_told_at_once() -> None:
    wrong = endpoint("wrong", "model: models:/wrong/1\nruntime: vllm\naccelerator: {gpus: 3}")
    gone = endpoint("gone", "image: r.io/x:1\ncontainer: {protocol: v2}")
    with pytest.raises(CliError) as caught:
        choices.lines(PLACE, [GOOD, wrong, gone])
    assert caught.value.code is ExitCode.SPEC
    assert [line.split(": ")[:2] for line in caught.value.message.splitlines()] == [
        ["stacks/local/endpoints/alpha/gone.yaml", "image"],
        ["stacks/local/endpoints/alpha/wrong.yaml", "accelerator.gpus"],
        ["stacks/local/endpoints/alpha/wrong.yaml", "runtime"],
    ]
