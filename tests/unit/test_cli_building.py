"""Which models `knobless build` reads, and which it knows already."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from spec.endpoint import EndpointSpec, load_endpoint
from stacks.cli import building, mlflow_env, model_facts
from stacks.cli.model_facts import ModelFacts
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.model_registry import ModelMissingError

KNOWN, OTHER = "ab" * 32, "cd" * 32
REGISTRY = "http://mlflow:5500"
WINE = load_endpoint(
    "endpoint: wine\nmodel: models:/wine/1\nconcurrency: {min: 1, max: 64}\n",
    "stacks/local/endpoints/alpha/wine.yaml",
    "alpha",
)


@pytest.fixture
def facts_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[httpx.Response], str]:
    """The digest that is taken for the model, where its registry gives this answer; reading it gives OTHER."""
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    index = model_facts.index_file(workspace, REGISTRY, WINE.model)
    index.parent.mkdir(parents=True)
    index.write_text(json.dumps({"sha256": KNOWN}))
    (workspace.home / "models" / KNOWN).mkdir()
    (workspace.home / "models" / KNOWN / "MLmodel").touch()

    def read(*_: object) -> ModelFacts:
        return ModelFacts(WINE.model, OTHER, workspace.home / "models" / OTHER)

    monkeypatch.setattr(mlflow_env, "ensure", lambda *_: None)
    monkeypatch.setattr(model_facts, "read", read)
    facts = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry=REGISTRY)
    site = building.Site(workspace, facts, True, lambda _: None)

    def ask(answer: httpx.Response, spec: EndpointSpec = WINE) -> str:
        transport = httpx.MockTransport(lambda _: answer)
        with httpx.Client(base_url=REGISTRY, transport=transport) as client:
            return building._facts(site, spec, client).sha256

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
