"""A loaded model that turns a request's body into an answer's.

Owns loading with MLflow's own means, the call of ``PyFuncModel.predict``, and telling a bad request from a failing
model. Leaves the process and its protocol to worker. One idea: above ``_call`` nothing depends on what predicts, so a
plan compiled from the signature can take PyFuncModel's place there.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from runtimes.mlflow import tables
from runtimes.mlflow.answers import Answer, encode_answer
from runtimes.mlflow.bodies import csv_table, gunzip, parse_json
from runtimes.mlflow.errors import MODEL_FAILED, Problem, RefusedError, refused
from runtimes.mlflow.params import check_params
from runtimes.mlflow.signature import Signature, parse_signature
from runtimes.mlflow.tables import ModelInput

_EMPTY = b'{"predictions": []}'
_SIGNATURE_ERRORS = ("Failed to enforce", "type hint", "Failed to convert", "Invalid input", "Invalid parameters")
_log = logging.getLogger("runtimes.mlflow.model")


@dataclass(frozen=True)
class Request:
    """One request as the front passes it on."""

    body: bytes
    media: str  # json, csv or parquet
    gzip: bool = False
    limit: int = 1 << 24


class LoadedModel:
    """A model in memory, with what it says it takes."""

    def __init__(self, folder: Path) -> None:
        self._pyfunc: Any = mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)
        self._takes_params = "params" in inspect.signature(self._pyfunc.predict).parameters
        self.signature = _signature(self._pyfunc.metadata)
        self.example = _serving_example(self._pyfunc.metadata, folder)
        self.mlflow_version = str(mlflow.__version__)

    def answer(self, request: Request) -> Answer:
        """The answer, or a RefusedError; every other outcome of the model's code becomes a refusal with a log line."""
        given, params = self._read(request)
        if given.rows == 0:
            return Answer(_EMPTY)  # many models fail on nothing, and the answer is known
        try:
            return encode_answer(self._call(given.data, params))
        except RefusedError:
            raise
        except Exception as error:
            if _is_signature_error(error):
                _log.warning("the input does not fit the model", exc_info=error)
                raise RefusedError(400, "the input does not fit the model's signature") from None
            _log.exception("the model failed")
            raise RefusedError(500, MODEL_FAILED) from error

    def _call(self, data: Any, params: Mapping[str, Any]) -> Any:
        if self._takes_params:
            return self._pyfunc.predict(data, params=dict(params) or None)
        return self._pyfunc.predict(data)

    def _read(self, request: Request) -> tuple[ModelInput, Mapping[str, Any]]:
        body = gunzip(request.body, request.limit) if request.gzip else request.body
        if request.media == "csv":
            return tables.from_table(csv_table(body), self.signature), {}
        if request.media == "parquet":
            return tables.from_frame(_parquet(body), self.signature), {}
        payload = parse_json(body)
        params, problems = check_params(payload.params, self.signature.params)
        try:
            given = tables.from_payload(payload, self.signature)
        except RefusedError as refusal:
            raise _with(refusal, problems) from None
        if problems:
            raise refused(problems)
        return given, params


def _with(refusal: RefusedError, problems: list[Problem]) -> RefusedError:
    return refused([Problem(refusal.message, refusal.field), *problems], refusal.status)


def _is_signature_error(error: Exception) -> bool:
    return type(error).__name__ == "MlflowException" and any(part in str(error) for part in _SIGNATURE_ERRORS)


def _parquet(body: bytes) -> Any:
    try:
        return pd.read_parquet(BytesIO(body))
    except ImportError:
        raise RefusedError(415, "this model's environment can't read Parquet; send JSON or CSV") from None
    except Exception:
        raise RefusedError(400, "the body is not valid Parquet") from None


def _signature(metadata: Any) -> Signature:
    inputs = metadata.get_input_schema()
    params = metadata.get_params_schema() if hasattr(metadata, "get_params_schema") else None
    by_hint = getattr(metadata, "_is_signature_from_type_hint", None)
    return parse_signature(
        inputs.to_dict() if inputs is not None else None,
        params.to_dict() if params is not None else None,
        raw=bool(by_hint()) if by_hint else False,
    )


def _serving_example(metadata: Any, folder: Path) -> bytes | None:
    """The model's own example as the body of a request; None where it was logged without one."""
    info = metadata.saved_input_example_info or {}
    serving = folder / str(info.get("serving_input_path") or "serving_input_example.json")
    if info and serving.is_file():
        return serving.read_bytes()
    example = folder / str(info.get("artifact_path") or "input_example.json")
    if not info or not example.is_file():
        return None
    content = json.loads(example.read_bytes())  # logged by an older MLflow: the bare table, or one form already
    if info.get("type") == "dataframe":
        return json.dumps({"dataframe_split": content}).encode()
    return json.dumps(content).encode() if isinstance(content, dict) and "inputs" in content else None
