"""A network in Triton's Python back end.

Owns loading it and running what Triton hands over at once as one batch; leaves protocol and queueing to Triton. It is
copied into the model repository, runs in the model's environment and knows nothing else of ours. One idea: a batch
that fails is run again one by one, so a bad request harms nobody.
"""

from __future__ import annotations

import importlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy

# Of the back end, of the model's environment: neither is there where this is checked.
triton: Any = importlib.import_module("triton_python_backend_utils")

Arrays = dict[str, Any]
Run = Callable[[Arrays], Arrays]
FAILED = "the model failed on this request"


class RequestError(ValueError):
    """The request's fault; the text is for its client."""


class TritonPythonModel:
    """What Triton calls."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Load the network that the configuration's parameters name."""
        config = json.loads(arguments["model_config"])
        stated = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.rows = config["max_batch_size"] > 0
        self.types = {out["name"]: triton.triton_string_to_numpy(out["data_type"]) for out in config["output"]}
        self.names = [tensor["name"] for tensor in config["input"]]  # a network may take its inputs by place
        self.texts = {tensor["name"] for tensor in config["input"] if tensor["data_type"] == "TYPE_STRING"}
        load = {"onnx": load_onnx, "torch_export": load_torch_export, "torch_script": load_torch_script}[stated["kind"]]
        gpu = arguments["model_instance_kind"] == "GPU"
        self.run: Run = load(stated["file"], int(stated.get("threads", "1")), gpu, list(self.types))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """An answer for each request, in their order."""
        answers: list[Any] = [None] * len(requests)
        for places in self.alike(requests):
            try:
                results: Sequence[Any] = self.together([requests[place] for place in places])
            except Exception:
                results = [self.alone(requests[place]) for place in places]
            for place, result in zip(places, results, strict=True):
                answers[place] = self.answer(requests[place], result)
        return answers

    def alike(self, requests: Sequence[Any]) -> Iterable[list[int]]:
        """The places of requests that can be one batch: all but the number of rows is equal."""
        groups = defaultdict(list)
        for place, request in enumerate(requests):
            shapes = [(tensor.name(), tuple(tensor.as_numpy().shape[1:])) for tensor in request.inputs()]
            groups[str(sorted(shapes)) if self.rows else str(place)].append(place)
        return groups.values()

    def together(self, requests: Sequence[Any]) -> list[Arrays]:
        """The outputs of each request, from one run over all of their rows."""
        inputs = [self.inputs(request) for request in requests]
        if len(requests) == 1:
            return [self.run(inputs[0])]
        counts = [len(next(iter(of_one.values()))) for of_one in inputs]
        outputs = self.run({name: numpy.concatenate([of_one[name] for of_one in inputs]) for name in inputs[0]})
        if any(len(values) != sum(counts) for values in outputs.values()):
            raise ValueError("the model does not answer row by row")
        split = {name: numpy.split(values, numpy.cumsum(counts)[:-1]) for name, values in outputs.items()}
        return [{name: parts[place] for name, parts in split.items()} for place in range(len(requests))]

    def alone(self, request: Any) -> Arrays | RequestError | None:
        """The outputs of one request; None where the model fails on it, with the reason in the log."""
        try:
            return self.run(self.inputs(request))
        except RequestError as error:
            return error
        except Exception as error:
            triton.Logger.log_error(f"{FAILED}: {type(error).__name__}: {error}")
            return None

    def inputs(self, request: Any) -> Arrays:
        """A request's tensors, texts as str."""
        given = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        found = {name: given[name] for name in self.names if name in given}
        for name in self.texts & set(found):
            try:
                texts = [value.decode() for value in found[name].reshape(-1)]
            except UnicodeDecodeError:
                raise RequestError(f"`{name}` holds bytes that are not UTF-8") from None
            found[name] = numpy.array(texts, dtype=object).reshape(found[name].shape)
        return found

    def answer(self, request: Any, result: Arrays | RequestError | None) -> Any:
        """What Triton sends: only the outputs that were asked for."""
        if result is None or isinstance(result, RequestError):
            code = triton.TritonError.INTERNAL if result is None else triton.TritonError.INVALID_ARG
            return triton.InferenceResponse(error=triton.TritonError(FAILED if result is None else str(result), code))
        wanted = set(request.requested_output_names())
        tensors = [
            triton.Tensor(name, typed(result[name], kind)) for name, kind in self.types.items() if name in wanted
        ]
        return triton.InferenceResponse(output_tensors=tensors)


def typed(values: Any, wanted: Any) -> Any:
    """The array as the configuration has it; texts as bytes."""
    values = numpy.asarray(values)
    if values.dtype.kind not in "OU":
        return numpy.ascontiguousarray(values.astype(wanted, copy=False))
    return numpy.array([str(value).encode() for value in values.reshape(-1)], dtype=object).reshape(values.shape)


def load_onnx(file: str, threads: int, gpu: bool, outputs: list[str]) -> Run:
    """A session of ONNX Runtime."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when it is imported
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    providers = [*(["CUDAExecutionProvider"] if gpu else []), "CPUExecutionProvider"]
    session = runtime.InferenceSession(file, options, providers=providers)
    return lambda inputs: dict(zip(outputs, session.run(outputs, inputs), strict=True))


def load_torch_export(file: str, threads: int, gpu: bool, outputs: list[str]) -> Run:
    """A program of torch.export."""
    torch: Any = importlib.import_module("torch")
    return of_module(torch, torch.export.load(file).module(), threads, gpu, outputs)


def load_torch_script(file: str, threads: int, gpu: bool, outputs: list[str]) -> Run:
    """A TorchScript file."""
    torch: Any = importlib.import_module("torch")
    return of_module(torch, torch.jit.load(file), threads, gpu, outputs)


def of_module(torch: Any, module: Any, threads: int, gpu: bool, outputs: list[str]) -> Run:
    """A module takes its inputs by place; it answers with one tensor, several, or a dictionary of them."""
    torch.set_num_threads(threads)
    device = "cuda" if gpu else "cpu"
    module = module.to(device)

    def run(inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            answered = module(*(torch.from_numpy(values.copy()).to(device) for values in inputs.values()))
        if isinstance(answered, dict):
            answered = [answered[name] for name in outputs]
        elif isinstance(answered, torch.Tensor):
            answered = [answered]
        return {name: values.cpu().numpy() for name, values in zip(outputs, answered, strict=True)}

    return run
