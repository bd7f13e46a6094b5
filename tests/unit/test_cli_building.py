"""Which models `knobless build` reads, and which it knows already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from runtimes.selection_card import Card
from spec.model_reference import parse_model_reference
from stacks.cli import building, mlflow_env, model_facts
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
