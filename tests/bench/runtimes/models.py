"""Runs in a models' environment: log the two models that are served, with their signatures and examples.

python models.py FOLDER
"""

import sys
from pathlib import Path

import lightgbm
import mlflow
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

NAMES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]


def main(folder: Path) -> None:
    x, y = load_iris(as_frame=True, return_X_y=True)
    x.columns = NAMES
    linear = LogisticRegression(max_iter=500).fit(x, y)
    boosted = lightgbm.LGBMClassifier(n_estimators=100, num_leaves=7, n_jobs=1, verbosity=-1).fit(x, y)
    about = {"signature": infer_signature(x, linear.predict(x)), "input_example": x.head(1)}
    mlflow.sklearn.save_model(linear, str(folder / "scikit-learn"), **about)
    mlflow.lightgbm.save_model(boosted, str(folder / "lightgbm"), **about)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
