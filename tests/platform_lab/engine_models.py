"""Registers models that were saved to folders, one version each in their order, in MLflow's environment.

    python engine_models.py NAME FOLDER...   (with MLFLOW_TRACKING_URI)

A name that has versions already is left alone.
"""

from __future__ import annotations

import sys

import mlflow


def main(name: str, folders: list[str]) -> None:
    if name in {model.name for model in mlflow.MlflowClient().search_registered_models()}:
        return
    mlflow.set_experiment("suite")
    for folder in folders:
        with mlflow.start_run(run_name=name) as run:
            mlflow.log_artifacts(folder, "model")
        made = mlflow.register_model(f"runs:/{run.info.run_id}/model", name)
        print(f"models:/{name}/{made.version}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
