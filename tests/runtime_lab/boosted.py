"""Runs in the flavors' environment: log a LightGBM model with the real MLflow; prints what it predicts for X as JSON.

python boosted.py FOLDER TREES
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lightgbm
import mlflow
from mlflow.models import infer_signature
from sklearn.datasets import load_diabetes


def main(folder: Path, trees: int) -> None:
    patients, progress = load_diabetes(return_X_y=True, as_frame=True)
    model = lightgbm.LGBMRegressor(n_estimators=trees, verbose=-1).fit(patients, progress)
    rows = patients.head(2)
    signature = infer_signature(patients, model.predict(patients))
    mlflow.lightgbm.save_model(model, folder / "model", signature=signature, input_example=rows)
    asked = {"dataframe_split": rows.to_dict(orient="split", index=False)}
    print(json.dumps({"asked": asked, "expected": model.predict(rows).tolist()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
