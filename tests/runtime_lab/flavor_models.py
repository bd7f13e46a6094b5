"""Runs in the flavors' environment: log one model of each flavor that the differential test compares with pyfunc.

python flavor_models.py FOLDER
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import mlflow
import numpy as np
import pandas as pd
import xgboost
from mlflow.models import infer_signature
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def main(folder: Path) -> None:
    warnings.filterwarnings("ignore")
    iris, kinds = load_iris(return_X_y=True, as_frame=True)
    iris.columns = ["sl", "sw", "pl", "pw"]
    patients, progress = load_diabetes(return_X_y=True, as_frame=True)
    two = kinds < 2
    words = kinds.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    rounds = {"n_estimators": 20}
    quiet: dict[str, Any] = {**rounds, "verbose": -1}
    silent: dict[str, Any] = {"verbose": 0, "allow_writing_files": False}

    sklearn: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("labels", LogisticRegression(max_iter=500).fit(iris, words), iris, {}),
        ("scores", LogisticRegression(max_iter=500).fit(iris, kinds), iris, {"pyfunc_predict_fn": "predict_proba"}),
        ("linear", make_pipeline(StandardScaler(), LinearRegression()).fit(patients, progress), patients, {}),
        ("forest", RandomForestRegressor(20, n_jobs=-1, random_state=0).fit(patients, progress), patients, {}),
        ("mixed", *_mixed(), {}),
        ("array", LinearRegression().fit(patients.to_numpy(), progress), patients.to_numpy(), {}),
    ]
    for name, model, x, options in sklearn:
        _save(mlflow.sklearn, model, folder / name, x, serialization_format="cloudpickle", **options)
    boosted: list[tuple[Any, str, Any, Any]] = [
        (mlflow.xgboost, "xgb-regressor", xgboost.XGBRegressor(**rounds).fit(patients, progress), patients),
        (mlflow.xgboost, "xgb-classes", xgboost.XGBClassifier(**rounds).fit(iris, kinds), iris),
        (mlflow.xgboost, "xgb-binary", xgboost.XGBClassifier(**rounds).fit(iris[two], kinds[two]), iris),
        (mlflow.lightgbm, "lgb-regressor", lightgbm.LGBMRegressor(**quiet).fit(patients, progress), patients),
        (mlflow.lightgbm, "lgb-classes", lightgbm.LGBMClassifier(**quiet).fit(iris, words), iris),
        (mlflow.lightgbm, "lgb-binary", lightgbm.LGBMClassifier(**quiet).fit(iris[two], kinds[two]), iris),
        (
            mlflow.lightgbm, "lgb-booster",
            lightgbm.LGBMRegressor(**quiet).fit(patients, progress).booster_, patients,
        ),
        (mlflow.catboost, "cat-regressor", catboost.CatBoostRegressor(20, **silent).fit(patients, progress), patients),
        (mlflow.catboost, "cat-classes", catboost.CatBoostClassifier(20, **silent).fit(iris, kinds), iris),
    ]  # fmt: skip
    for flavor, name, model, x in boosted:
        _save(flavor, model, folder / name, x)
    single = iris.to_numpy().astype(np.float32)
    network = to_onnx(LogisticRegression(max_iter=500).fit(single, kinds), single[:1], options={"zipmap": False})
    signature = infer_signature(single, {"label": np.array([1])})
    mlflow.onnx.save_model(network, folder / "onnx", signature=signature, input_example=single[:2])


def _save(flavor: Any, model: Any, path: Path, x: Any, **options: Any) -> None:
    signature = infer_signature(x, model.predict(x))
    flavor.save_model(model, path, signature=signature, input_example=x[:2], **options)


def _mixed() -> tuple[Any, pd.DataFrame]:
    table = pd.DataFrame(
        {
            "age": [30, 40, 50, 60] * 10,
            "income": [1.5, 2.5, 3.5, 4.5] * 10,
            "city": ["Oslo", "Rome", "Oslo", "Bern"] * 10,
            "member": [True, False, True, False] * 10,
        }
    )
    columns = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(columns, LinearRegression())
    return model.fit(table, table.age * table.income + (table.city == "Oslo") * 7), table


if __name__ == "__main__":
    main(Path(sys.argv[1]))
