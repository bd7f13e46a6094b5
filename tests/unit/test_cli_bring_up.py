"""What `up` shows at its end, and what of the files a command needs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from spec.endpoint import EndpointSpec, load_endpoint
from stacks.cli import bring_up, model_facts, views
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.session import Session
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts

FACTS = ClusterFacts(kubeconfig="", registry="registry:5000", model_registry="http://mlflow:5500")
PLATFORM = "environment: local\ncluster: embedded\nteams: {alpha: {}}\n"


def endpoint(name: str) -> EndpointSpec:
    text = f"endpoint: {name}\nmodel: models:/{name}/1\nconcurrency: {{min: 1, max: 64}}\n"
    return load_endpoint(text, f"stacks/local/endpoints/alpha/{name}.yaml", "alpha")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    return Session(workspace, Console(err=io.StringIO(), out=io.StringIO()))


def read_before(session: Session, spec: EndpointSpec, *, example: bool) -> None:
    assert spec.model is not None
    index = model_facts.index_file(session.workspace, FACTS.model_registry, spec.model)
    folder = session.workspace.home / "models" / spec.endpoint
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({"sha256": spec.endpoint}))
    folder.mkdir()
    (folder / model_facts.CARD).write_text('{"flavor": "sklearn", "pyfunc": true}')
    for name in ("MLmodel", *([model_facts.EXAMPLE] if example else [])):
        (folder / name).touch()


@pytest.fixture
def shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(Session, "with_kube", lambda *_: None)
    monkeypatch.setattr(views, "first_prediction", lambda _, name: found.append(name))
    monkeypatch.setattr(views, "point", lambda *_: None)
    return found


def test_the_prediction_is_from_the_first_model_that_has_an_input_example(session: Session, shown: list[str]) -> None:
    first, second = endpoint("first"), endpoint("second")
    read_before(session, first, example=False)
    read_before(session, second, example=True)
    bring_up._first_prediction(session, (first, second), FACTS)
    assert shown == ["second"]


def test_models_without_an_input_example_are_no_failure(session: Session, shown: list[str]) -> None:
    first = endpoint("first")
    read_before(session, first, example=False)
    bring_up._first_prediction(session, (first,), FACTS)
    assert shown == []


def write(session: Session, file: str, text: str) -> None:
    path = session.workspace.stacks / "local" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_broken_endpoint_file_is_in_the_way_of_nobody_who_looks_at_what_runs(session: Session) -> None:
    write(session, "platform.yaml", PLATFORM)
    write(session, "endpoints/alpha/wine.yaml", "endpoint: wine\n")
    session.workspace.cluster_file.parent.mkdir(parents=True)
    session.workspace.cluster_file.write_text(FACTS.model_dump_json())
    assert session.facts() == FACTS.model_copy(update={"registry_plain_http": True})
    assert sorted(session.platform().teams) == ["alpha"]
    with pytest.raises(CliError, match="2 problems in stacks/local"):
        session.declared()


@pytest.mark.parametrize(("text", "said"), [(None, "the file is missing"), ("teams: [", "not readable as YAML")])
def test_without_the_platforms_file_nobody_knows_which_cluster_is_meant(
    session: Session, text: str | None, said: str
) -> None:
    if text is not None:
        write(session, "platform.yaml", text)
    with pytest.raises(CliError, match=f"stacks/local/platform.yaml.*{said}") as caught:
        session.facts()
    assert caught.value.code is ExitCode.SPEC
