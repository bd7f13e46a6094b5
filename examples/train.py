"""Train the example models and register them, twice each, in the model registry named by MLFLOW_TRACKING_URI.

Runs in the environment of requirements/mlflow.txt. The data ships with scikit-learn. Registration looks up by
content: a version whose tag `knobless.example` equals the recipe's digest is taken as it is, so a second run trains
nothing and makes no new version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAG = "knobless.example"


@dataclass(frozen=True)
class Recipe:
    """What is trained: a registered name, a loader of scikit-learn's, and one set of parameters a version."""

    name: str
    loader: str
    versions: tuple[dict[str, Any], ...]


RECIPES = (
    Recipe("wine", "load_wine", ({"n_estimators": 40, "max_depth": 4}, {"n_estimators": 80, "max_depth": 6})),
    Recipe(
        "breast-cancer",
        "load_breast_cancer",
        ({"n_estimators": 30, "max_depth": 4}, {"n_estimators": 60, "max_depth": 6}),
    ),
)


def digest(recipe: Recipe, parameters: dict[str, Any]) -> str:
    """Identity of a version: this file, the parameters, and the library that trains it."""
    import mlflow
    import sklearn

    libraries = [sklearn.__version__, mlflow.__version__]
    parts = [Path(__file__).read_text(), recipe.name, json.dumps(parameters, sort_keys=True), *libraries]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def train(recipe: Recipe, parameters: dict[str, Any]) -> tuple[Any, Any, float]:
    """Fit on 80 % of the data; returns (model, held-out frame, accuracy on it)."""
    from sklearn import datasets
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    data = getattr(datasets, recipe.loader)(as_frame=True)
    x_train, x_test, y_train, y_test = train_test_split(data.data, data.target, test_size=0.2, random_state=7)
    model = RandomForestClassifier(random_state=7, n_jobs=1, **parameters).fit(x_train, y_train)
    return model, x_test, float(model.score(x_test, y_test))


def register(recipe: Recipe, parameters: dict[str, Any], identity: str) -> str:
    """Log model, signature, input example and accuracy; returns the new version."""
    import mlflow
    from mlflow.models import infer_signature

    model, held_out, accuracy = train(recipe, parameters)
    with mlflow.start_run(run_name=recipe.name):
        mlflow.log_params(parameters)
        mlflow.log_metric("accuracy", accuracy)
        info = mlflow.sklearn.log_model(
            model,
            name=recipe.name,
            signature=infer_signature(held_out, model.predict(held_out)),
            input_example=held_out.head(2),
            registered_model_name=recipe.name,
            skops_trusted_types=["sklearn.tree._tree.Tree"],  # trained two lines above, not received
        )
    version = str(info.registered_model_version)
    mlflow.MlflowClient().set_model_version_tag(recipe.name, version, TAG, identity)
    return version


def existing(client: Any, name: str) -> dict[str, str]:
    """Recipe digest -> version, of what the registry holds under this name."""
    return {v.tags[TAG]: v.version for v in client.search_model_versions(f"name='{name}'") if TAG in v.tags}


def main(say: Callable[[str], None]) -> int:
    import mlflow

    mlflow.set_experiment("knobless-examples")
    client = mlflow.MlflowClient()
    for recipe in RECIPES:
        known = existing(client, recipe.name)
        for parameters in recipe.versions:
            identity = digest(recipe, parameters)
            made = "registered" if identity in known else "trained and registered"
            version = known.get(identity) or register(recipe, parameters, identity)
            say(f"models:/{recipe.name}/{version} {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main(lambda text: print(text, flush=True)))
