"""Runs in MLflow's environment: download one model and print what the platform must know of it, as one JSON line.

    python inspect_model.py models:/NAME/VERSION FOLDER

The files go to FOLDER; the line holds `sha256`, the digest of all files, and `card`, by which its runtime is chosen. A
model that is not there, or that says nothing of use, is one line too: `{"error": "...", "versions": [...]}`.
"""

import json
import sys
from pathlib import Path

from runtimes.digest import tree_digest
from runtimes.selection_card import Card, UnreadableModelError, read_card


def versions(name: str) -> list[str]:
    """Versions that the registry has of a name, oldest first."""
    import mlflow

    found = mlflow.MlflowClient().search_model_versions(f"name='{name}'")
    return sorted((str(v.version) for v in found), key=int)


def card(folder: Path) -> Card:
    """The card of a downloaded model."""
    import yaml

    try:
        mlmodel = yaml.safe_load((folder / "MLmodel").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UnreadableModelError(f"the model's MLmodel file can't be read: {type(error).__name__}") from None
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    return read_card(mlmodel if isinstance(mlmodel, dict) else {}, names)


def main(uri: str, folder: Path) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        path = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))
    except MlflowException as error:
        name = uri.removeprefix("models:/").partition("/")[0]
        print(json.dumps({"error": str(error).splitlines()[0], "versions": versions(name)}))
        return
    try:
        print(json.dumps({"path": str(path), "sha256": tree_digest(path), "card": card(path).text}))
    except UnreadableModelError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
