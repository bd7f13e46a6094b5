"""A loaded model that turns a call's blocks into results.

Owns loading with MLflow's own means, reading what the front has passed on unread, and telling a bad request from a
failing model. Leaves the ways of calling to calling, and the process and its protocol to worker. One idea: a request
that the plan has read needs nothing of MLflow's own checks.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow

from runtimes.jsonlog import place_of
from runtimes.mlflow import own_code, unread
from runtimes.mlflow.calling import Caller
from runtimes.mlflow.calls import Request, UnsplittableError
from runtimes.mlflow.errors import MODEL_FAILED, RefusedError
from runtimes.mlflow.inputs import Given
from runtimes.mlflow.layout import Form, Layout
from runtimes.mlflow.native import limit_jobs
from runtimes.mlflow.plan import Plan, Work
from runtimes.mlflow.results import Outcome, encode, outcome
from runtimes.mlflow.signature import Signature, parse_signature

_SIGNATURE_ERRORS = ("Failed to enforce", "type hint", "Failed to convert", "Invalid input", "Invalid parameters")
_TRACES_TO = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CHAT_TASKS = ("llm/v1/chat", "llm/v1/completions", "agent/")
_EMBEDDING_TASK = "llm/v1/embeddings"
# What waits for others most of its time runs many calls at once, and what computes itself does not.
_WAITING_FLAVORS = frozenset({"langchain", "llama_index", "dspy", "openai"})
_COMPUTING_FLAVORS = frozenset({"transformers", "sentence_transformers"})
_log = logging.getLogger("runtimes.mlflow.model")


@dataclass
class About:
    """What the front has to know of the model."""

    mlflow: str
    inputs: list[dict[str, Any]] | None
    outputs: list[dict[str, Any]] | None
    params: list[dict[str, Any]] | None
    flavors: list[str]
    loader: str = ""
    task: str = ""
    raw: bool = False
    chat: bool = False
    speaks: bool = False  # also takes a body that is none of the four forms: a chat, or texts to embed
    overlaps: bool = False
    streams: bool = False
    row_wise: bool = False
    way: str = "pyfunc"


class LoadedModel:
    """A model in memory, with what it says it takes."""

    def __init__(self, folder: Path) -> None:
        # On an array scikit-learn misses the names that the plan has already put in order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        self._pyfunc: Any = mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)
        own_code.check(self._pyfunc)
        _limit_threads(self._pyfunc)
        _trace_only_to_somewhere()
        metadata = self._pyfunc.metadata
        self.about = _about(metadata)
        self.signature = signature_of(self.about.inputs, self.about.params, raw=self.about.raw)
        self.plan = Plan(self.signature, chat=self.about.chat)
        # How the usual request of this model is laid out.
        self.plan_layout: Layout | None = _usual(self.plan)
        self._caller = Caller(self._pyfunc, self.signature)
        self.example = _serving_example(metadata, folder)
        self._prove()

    def answer(self, request: Request) -> Outcome:
        """The results, or a RefusedError; every other outcome of the model's code becomes one with a log line."""
        try:
            if request.layout.form is Form.BODY:
                return self._whole(request)
            rows = sum(count or 0 for count in request.rows)
            given = Given(self.signature, request.layout, request.buffers, rows, request.index)
            return outcome(self._caller(given, request.params), request.rows, as_text=request.as_text)
        except (RefusedError, UnsplittableError):
            raise
        except Exception as error:
            raise _told(error) from error

    def pieces(self, request: Request) -> Iterator[bytes]:
        """The pieces of a streamed answer, each one JSON document."""
        try:
            said = unread.chat(request.buffers[0], self.signature)
            for piece in self._caller.pieces(said.data, said.params):
                yield encode(piece)[0]
        except RefusedError:
            raise
        except Exception as error:
            raise _told(error) from error

    def _whole(self, request: Request) -> Outcome:
        """A request that nobody has read yet, and its whole answer."""
        body = bytes(request.buffers[0])
        spoken = self.about.speaks and request.media == "json"
        if self.plan.reads and not (spoken and unread.is_spoken(body)):
            work = self.plan.read_whole(body, request.media)
            found = self.answer(_request(work, as_text=request.as_text)) if work.rows else _nothing()
            found.head["client_request_id"] = work.client_request_id
            return found
        said = unread.chat(body, self.signature) if spoken else unread.payload(body, request.media, self.signature)
        if said.empty:
            return _nothing()
        result = self._caller.whole(said.data, said.params)
        found = outcome(result, [None], as_text=True)
        found.head |= {"client_request_id": said.client_request_id, "bare": said.chat}
        return found

    def _prove(self) -> None:
        if self.example is None or not self.plan.reads:
            return
        try:
            self._caller.prove(self.plan.read_whole(self.example, "json"))
        except Exception as error:  # the front's self-test finds out the same, with a reason
            _log.debug("nothing could be shown on the input example: %s", type(error).__name__)
        self.about.way = self._caller.way
        self.about.row_wise = self._caller.row_wise and not self.about.overlaps


def signature_of(inputs: Any, params: Any, *, raw: bool) -> Signature:
    """The closed types of MLflow's dictionaries."""
    return parse_signature(inputs, params, raw=raw)


def _usual(plan: Plan) -> Layout | None:
    if plan.tables:
        return plan.tables.layout
    return plan.tensors.layout if plan.tensors else None


def _request(work: Work, *, as_text: bool) -> Request:
    return Request(work.layout, work.buffers, [work.rows], params=work.params, index=work.index, as_text=as_text)


def _nothing() -> Outcome:
    return Outcome({"texts": [2], "non_finite": [0]}, [b"[]"])  # many models fail on nothing, and the answer is known


def _told(error: Exception) -> RefusedError:
    """What the model's code raised, as a refusal, with a line in the log."""
    if _is_signature_error(error):
        _log.warning("the input does not fit the model", extra={"stack": place_of(error)})  # its text repeats the input
        return RefusedError(400, "the input does not fit the model's signature")
    _log.error("the model failed", exc_info=error)
    return RefusedError(500, MODEL_FAILED)


def _is_signature_error(error: Exception) -> bool:
    return type(error).__name__ == "MlflowException" and any(part in str(error) for part in _SIGNATURE_ERRORS)


def _limit_threads(pyfunc: Any) -> None:
    threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
    try:
        changed = limit_jobs(pyfunc.get_raw_model(), threads)
    except Exception:
        return
    if changed:
        _log.warning("n_jobs is %d in %d estimators that were saved with another one", threads, changed)


def _trace_only_to_somewhere() -> None:
    """Without an address to send them to, MLflow would write each agent's traces to a database where it runs."""
    if not mlflow.is_tracking_uri_set() and not any(name in os.environ for name in _TRACES_TO):
        with suppress(AttributeError):  # an MLflow without tracing
            mlflow.tracing.disable()


def _about(metadata: Any) -> About:
    inputs, outputs = metadata.get_input_schema(), metadata.get_output_schema()
    params = metadata.get_params_schema() if hasattr(metadata, "get_params_schema") else None
    by_hint = getattr(metadata, "_is_signature_from_type_hint", None)
    task = str((getattr(metadata, "metadata", None) or {}).get("task") or "")
    function = metadata.flavors.get("python_function", {})
    chat, hinted, flavors = task.startswith(_CHAT_TASKS), bool(by_hint()) if by_hint else False, set(metadata.flavors)
    waits = bool(flavors & _WAITING_FLAVORS)
    return About(
        mlflow=str(mlflow.__version__),
        inputs=None if inputs is None else inputs.to_dict(),
        outputs=None if outputs is None else outputs.to_dict(),
        params=None if params is None else params.to_dict(),
        flavors=list(metadata.flavors),
        loader=str(function.get("loader_module") or ""),
        task=task,
        raw=hinted,
        chat=chat,
        speaks=chat or waits or task == _EMBEDDING_TASK,
        overlaps=waits or ((chat or hinted) and not flavors & _COMPUTING_FLAVORS),
        streams=bool(function.get("streamable") or function.get("predict_stream_fn")),
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
