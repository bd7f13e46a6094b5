"""What must be known of a model before its pod can be planned, on one card.

Owns reading an MLmodel document (parsed YAML) with the names of the files beside it, and the card's spelling as a
text, which is noted on the model in its registry. Leaves choosing to selection. Pure, of the standard library alone.
One idea: a plan reads this card and never a model, so it needs no download; what a card doesn't say, no choice
depends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

PYFUNC = "python_function"
# Where a model has several flavors, the first of these is what it is.
_NATIVE = (
    *("transformers", "sentence_transformers", "diffusers", "onnx", "pytorch", "tensorflow", "keras"),
    *("sklearn", "xgboost", "lightgbm", "catboost", "statsmodels", "prophet", "pmdarima", "spacy", "paddle"),
    *("langchain", "llama_index", "dspy", "openai", "h2o", "spark", "johnsnowlabs", "crate"),
)
# How their authors write them, where the flavor's name is another.
_SPELT = {
    "python_function": "Python function",
    "sklearn": "scikit-learn",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "onnx": "ONNX",
    "pytorch": "PyTorch",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "sentence_transformers": "sentence-transformers",
    "langchain": "LangChain",
    "llama_index": "LlamaIndex",
    "dspy": "DSPy",
    "prophet": "Prophet",
    "spark": "Spark",
    "h2o": "H2O",
}


class UnreadableModelError(ValueError):
    """An MLmodel that says nothing of use; the text is one line."""


@dataclass(frozen=True)
class Card:
    """One model. None and "" stand for what its MLmodel does not say.

    ``flavor`` is the native one, python_function for a model that has no other. ``takes`` is what its signature says
    that it takes: tensors, columns, types (type hints of its code), or nothing. ``stored`` is how a network's weights
    are saved where it matters: pt2, pickle, onnx.
    """

    flavor: str
    pyfunc: bool
    python: str = ""
    mlflow: str = ""
    task: str = ""
    architecture: str = ""
    takes: str = ""
    stored: str = ""
    streams: bool = False
    size_bytes: int | None = None

    @property
    def name(self) -> str:
        """What a person calls this kind of model."""
        return _SPELT.get(self.flavor, self.flavor)

    @property
    def text(self) -> str:
        """One line of JSON with what is known, in a fixed order."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        return json.dumps(known, separators=(",", ":"), sort_keys=True)


def parse_card(text: str) -> Card:
    """The way back from `Card.text`; a ValueError where the text is no card of this version."""
    found = json.loads(text)
    if not isinstance(found, dict) or not {"flavor", "pyfunc"} <= set(found) <= {field.name for field in fields(Card)}:
        raise ValueError("this is no card of a model")
    return Card(**found)


def read_card(mlmodel: Mapping[str, Any], files: Iterable[str]) -> Card:
    """The card of an MLmodel document and of all files in its folder, whichever of MLflow's versions wrote them."""
    flavors = _mapping(mlmodel.get("flavors"))
    if not flavors:
        raise UnreadableModelError("the model's MLmodel file names no flavor")
    flavor = next((name for name in _NATIVE if name in flavors), None)
    flavor = flavor or next((name for name in sorted(flavors) if name != PYFUNC), PYFUNC)
    native, pyfunc = _mapping(flavors.get(flavor)), _mapping(flavors.get(PYFUNC))
    size = mlmodel.get("model_size_bytes")
    return Card(
        flavor=flavor,
        pyfunc=PYFUNC in flavors,
        python=_text(pyfunc.get("python_version")),
        mlflow=_text(mlmodel.get("mlflow_version")),
        task=_task(mlmodel, native, pyfunc),
        architecture=_text(native.get("pipeline_model_type")),
        takes=_takes(mlmodel),
        stored=_stored(flavor, files),
        streams=bool(pyfunc.get("streamable")),
        size_bytes=size if isinstance(size, int) else None,
    )


def _task(mlmodel: Mapping[str, Any], native: Mapping[str, Any], pyfunc: Mapping[str, Any]) -> str:
    """What the author says that it does; MLflow's own words (llm/v1/chat) before those of a library."""
    places = (
        _mapping(mlmodel.get("metadata")).get("task"),
        native.get("inference_task"),
        _mapping(pyfunc.get("config")).get("task"),
        native.get("task"),
    )
    return next((_text(place) for place in places if _text(place)), "")


def _takes(mlmodel: Mapping[str, Any]) -> str:
    if mlmodel.get("is_signature_from_type_hint") is True:
        return "types"
    inputs = _mapping(mlmodel.get("signature")).get("inputs")
    try:
        found = json.loads(inputs) if isinstance(inputs, str) else inputs
    except ValueError:
        return ""
    if not isinstance(found, list) or not found:
        return ""
    return "tensors" if all(_mapping(each).get("type") == "tensor" for each in found) else "columns"


def _stored(flavor: str, files: Iterable[str]) -> str:
    """MLflow exports PyTorch's networks (pt2) or pickles them, and its MLmodel says the same of both."""
    if flavor == "onnx":
        return "onnx"
    if flavor == "pytorch":
        return "pt2" if any(name.endswith(".pt2") for name in files) else "pickle"
    return ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
