"""Runs in MLflow's environment: download one model and print what the platform must know of it, as one JSON line.

    python inspect_model.py models:/NAME/VERSION FOLDER

The files go to FOLDER; the line holds `sha256`, the digest of all files. A model that is not there is one line too:
`{"error": "...", "versions": [...]}`.
"""

import json
import sys
from pathlib import Path

from runtimes.digest import tree_digest


def versions(name: str) -> list[str]:
    """Versions that the registry has of a name, oldest first."""
    import mlflow

    found = mlflow.MlflowClient().search_model_versions(f"name='{name}'")
    return sorted((str(v.version) for v in found), key=int)


def main(uri: str, folder: Path) -> None:
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        path = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))
    except MlflowException as error:
        name = uri.removeprefix("models:/").partition("/")[0]
        print(json.dumps({"error": str(error).splitlines()[0], "versions": versions(name)}))
        return
    print(json.dumps({"path": str(path), "sha256": tree_digest(path)}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
