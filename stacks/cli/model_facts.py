"""What the platform must know of a model before it can be declared: digest, card, environment, input example.

`knobless build` reads a model once, keeps the few small files that matter below KNOBLESS_HOME, and notes digest, card
and environment on the model in its registry, where the Pulumi program finds them without a download.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from runtimes.selection_card import Card, parse_card
from spec.model_reference import ModelReference
from stacks.cli import mlflow_env
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace
from stacks.model_registry import TAG_CARD, TAG_ENVIRONMENT, TAG_SHA256

API = "/api/2.0/mlflow"
KEPT = ("MLmodel", "requirements.txt", "python_env.yaml", "serving_input_example.json")
CARD = "knobless-card.json"
EXAMPLE = "serving_input_example.json"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ModelFacts:
    """One model's digest, its card, and the folder with its small files."""

    reference: ModelReference
    sha256: str
    card: Card
    folder: Path

    @property
    def example(self) -> Path | None:
        """The request body that MLflow saved with the model, if it did."""
        path = self.folder / EXAMPLE
        return path if path.is_file() else None


def index_file(workspace: Workspace, tracking_uri: str, reference: ModelReference) -> Path:
    """Where the digest of a model that was read before is noted; a registry is told apart by its address."""
    place = "".join(c if c.isalnum() else "-" for c in f"{tracking_uri}-{reference}")
    return workspace.home / "models" / "by-reference" / f"{workspace.instance}-{place}.json"


def known(workspace: Workspace, tracking_uri: str, reference: ModelReference) -> ModelFacts | None:
    """The facts of a model that was read before."""
    index = index_file(workspace, tracking_uri, reference)
    if not index.is_file():
        return None
    sha256 = str(json.loads(index.read_text())["sha256"])
    folder = workspace.home / "models" / sha256
    try:
        card = parse_card((folder / CARD).read_text())
    except (OSError, ValueError):
        return None  # another version read it
    return ModelFacts(reference, sha256, card, folder) if (folder / "MLmodel").is_file() else None


def read(workspace: Workspace, tracking_uri: str, reference: ModelReference) -> ModelFacts:
    """Download the model, digest it, keep its small files. Raises CliError where the registry has no such model."""
    (workspace.home / "models").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="model-", dir=workspace.home / "models") as scratch:
        script = Path(__file__).with_name("inspect_model.py")
        output = mlflow_env.run_script(workspace, script, tracking_uri, str(reference), scratch)
        answer = mlflow_env.last_json(output)
        if "error" in answer:
            raise CliError(str(answer["error"]), code=ExitCode.NOT_FOUND)
        sha256, card = str(answer["sha256"]), parse_card(str(answer["card"]))
        facts = ModelFacts(reference, sha256, card, workspace.home / "models" / sha256)
        _keep(Path(str(answer["path"])), facts)
    index = index_file(workspace, tracking_uri, reference)
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(json.dumps({"sha256": facts.sha256}))
    return facts


def _keep(model: Path, facts: ModelFacts) -> None:
    facts.folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (model / name).is_file():
            shutil.copyfile(model / name, facts.folder / name)
    (facts.folder / CARD).write_text(facts.card.text)


def note(client: httpx.Client, facts: ModelFacts, environment: str | None) -> None:
    """Write digest, card and (where it needs one) environment on the model in its registry. `client` has the registry's
    address as base URL."""
    tags = {TAG_SHA256: facts.sha256, TAG_CARD: facts.card.text}
    tags |= {TAG_ENVIRONMENT: environment} if environment is not None else {}
    if facts.reference.model_id is not None:
        rows = [{"key": key, "value": value} for key, value in tags.items()]
        path = f"{API}/logged-models/{facts.reference.model_id}/tags"
        _checked(client.patch(path, json={"tags": rows}))
        return
    version = {"name": facts.reference.name, "version": str(facts.reference.version)}
    for key, value in tags.items():
        _checked(client.post(f"{API}/model-versions/set-tag", json={**version, "key": key, "value": value}))


def _checked(answer: httpx.Response) -> None:
    if answer.is_error:
        raise CliError(f"the model registry answers {answer.status_code} to {answer.url.path}: {answer.text[:300]}")
