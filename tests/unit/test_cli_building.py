"""Which models `knobless build` reads, and which it knows already."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from runtimes.selection_card import Card
from spec.endpoint import load_endpoint
from spec.model_reference import ModelReference, parse_model_reference
from stacks.cli import building, mlflow_env, model_facts
from stacks.cli.errors import CliError
from stacks.cli.model_facts import ModelFacts
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.model_registry import ModelMissingError

KNOWN, OTHER = "ab" * 32, "cd" * 32
REGISTRY = "http://mlflow:5500"
MODEL = parse_model_reference("models:/wine/1")
CARD = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)


@pytest.fixture
def facts_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[httpx.Response], str]:
    """The digest that is taken for the model, where its registry gives this answer; reading it gives OTHER."""
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    index = model_facts.index_file(workspace, REGISTRY, MODEL)
    index.parent.mkdir(parents=True)
    index.write_text(json.dumps({"sha256": KNOWN}))
    (workspace.home / "models" / KNOWN).mkdir()
    (workspace.home / "models" / KNOWN / "MLmodel").touch()
    (workspace.home / "models" / KNOWN / model_facts.CARD).write_text(CARD.text)

    def read(*_: object) -> ModelFacts:
        return ModelFacts(MODEL, OTHER, CARD, workspace.home / "models" / OTHER)

    monkeypatch.setattr(mlflow_env, "ensure", lambda *_: None)
    monkeypatch.setattr(model_facts, "read", read)
    facts = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry=REGISTRY)
    site = building.Site(workspace, facts, True, lambda _: None)

    def ask(answer: httpx.Response) -> str:
        transport = httpx.MockTransport(lambda _: answer)
        with httpx.Client(base_url=REGISTRY, transport=transport) as client:
            return building._facts(site, MODEL, client).sha256

    return ask


def version(*tags: dict[str, str]) -> httpx.Response:
    return httpx.Response(200, json={"model_version": {"name": "wine", "version": "1", "tags": list(tags)}})


def noted(sha256: str) -> httpx.Response:
    return version({"key": "knobless.sha256", "value": sha256})


def test_a_model_that_was_read_before_is_not_read_again(facts_of: Callable[[httpx.Response], str]) -> None:
    assert facts_of(noted(KNOWN)) == KNOWN


@pytest.mark.parametrize("answer", [version(), noted(OTHER)], ids=["no note", "another's note"])
def test_another_model_under_the_same_name_and_number_is_read(
    facts_of: Callable[[httpx.Response], str], answer: httpx.Response
) -> None:
    assert facts_of(answer) == OTHER


def test_a_model_that_is_gone_is_missing_however_well_it_was_known(facts_of: Callable[[httpx.Response], str]) -> None:
    with pytest.raises(ModelMissingError):
        facts_of(httpx.Response(404, json={}))


SKLEARN = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)
LLM = Card("transformers", pyfunc=True, python="3.13.1", task="llm/v1/chat", size_bytes=300_000)
MLMODEL = "flavors:\n  python_function:\n    python_version: 3.11.9\n"


@pytest.fixture
def choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., building._Wanted]:
    """What is to be built for endpoints by their files; `cards` are those of the models by name."""
    (tmp_path / "MLmodel").write_text(MLMODEL)
    (tmp_path / "requirements.txt").write_text("mlflow==3.17.2\n")
    monkeypatch.setattr(building, "recipe_digest", lambda _: "recipe")
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    facts = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry=REGISTRY)
    site = building.Site(workspace, facts, True, lambda _: None)

    def chosen(files: dict[str, str], cards: dict[str, Card], noted: dict[str, str | None]) -> building._Wanted:
        def read(_: object, reference: ModelReference, client: object) -> ModelFacts:
            return ModelFacts(reference, "ab" * 32, cards[str(reference.name)], tmp_path)

        def note(client: object, model: ModelFacts, environment: str | None) -> None:
            noted[str(model.reference.name)] = environment

        monkeypatch.setattr(building, "_facts", read)
        monkeypatch.setattr(model_facts, "note", note)
        common = "\nconcurrency: {min: 1, max: 8}\n"
        specs = [
            load_endpoint(f"endpoint: {name}\n{text}{common}", f"{name}.yaml", "alpha") for name, text in files.items()
        ]
        return building._choose(site, specs)

    return chosen


def test_only_what_an_endpoint_needs_is_built(choose: Callable[..., building._Wanted]) -> None:
    noted: dict[str, str | None] = {}
    plain = choose({"a": "model: models:/a/1", "b": "model: models:/b/1"}, {"a": SKLEARN, "b": SKLEARN}, noted)
    assert plain.own == ["platform"]
    assert len(plain.models) == 1, "two models of one environment share an image"
    assert noted["a"] == noted["b"] == next(iter(plain.models))
    assert plain.lines[0].startswith("a            models:/a/1: mlflow, 500m CPU, 1Gi, first limit 64 (scikit-learn")


def test_an_engine_and_an_image_of_one_s_own_bring_their_images(choose: Callable[..., building._Wanted]) -> None:
    noted: dict[str, str | None] = {}
    own = {"c": "model: models:/c/1", "i": "image: r.io/i:1\ncontainer: {protocol: v2}"}
    found = choose(own, {"c": LLM}, noted)
    assert found.own == ["platform", "vllm", "fetch", "proxy"]
    assert found.models == {}
    assert noted == {"c": None}
    with_gpus = choose({"c": "model: models:/c/1\naccelerator: {gpus: 1}"}, {"c": LLM}, noted)
    assert with_gpus.own == ["platform", "vllm-gpu", "fetch"]


def test_what_makes_groups_of_pods_is_built_where_some_are_declared_and_only_for_the_embedded_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_push_own", lambda _, name: name)
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    facts = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry=REGISTRY)

    def built(context: str | None, groups: bool) -> list[str]:
        monkeypatch.setattr(building, "recipe_digest", lambda _: "recipe")
        return building.build(workspace, facts, [], context, lambda _: None, groups=groups)

    assert built(None, False) == ["platform"]
    assert built(None, True) == ["platform", "leaderworkerset"]
    assert built("prod", True) == ["platform"]


def test_every_problem_of_every_model_is_told_and_nothing_is_noted_on_it(
    choose: Callable[..., building._Wanted],
) -> None:
    noted: dict[str, str | None] = {}
    files = {"a": "model: models:/a/1\nruntime: vllm", "b": "model: models:/b/1", "c": "model: models:/c/1"}
    with pytest.raises(CliError) as caught:
        choose(files, {"a": SKLEARN, "b": replace(SKLEARN, python="3.9.0"), "c": SKLEARN}, noted)
    assert [line.split(": ")[:2] for line in caught.value.message.splitlines()] == [["a", "runtime"], ["b", "model"]]
    assert set(noted) == {"c"}
