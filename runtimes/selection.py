"""From a model's card and the wishes of its file to what serves it: runtime, size of a replica, first limit, and why.

Owns the rules; leaves reading a model to selection_card and building what was chosen to others. Pure, of the standard
library alone. One idea: a choice is a default that can be defended in one line, each part of it can be overridden, and
a wish that can't come true is refused before anything is built, with what to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from runtimes.images import PYTHON
from runtimes.selection_card import PYFUNC, Card

MIB, GIB = 1 << 20, 1 << 30
BATCHED_LIMIT = 64  # what collects waiting requests is given so many
AGENT_LIMIT = 16  # threads that wait for other services
SEQUENCES_GPU, SEQUENCES_CPU = 256, 64  # vLLM's max_num_seqs
GPU_BYTES = 24 * GIB  # where nobody says how large the GPUs are: the smallest of those that serve language models
GPUS_MOST = 8  # of one node
NODES_MOST = 16  # that one replica spans
_FRONT_BYTES = 64 * MIB
_PREDICTOR_BYTES = 320 * MIB  # a process with MLflow, pandas and scikit-learn in it, before any model
_COPY_BYTES = 192 * MIB  # a further one that is a copy: measured 38-43 MiB (PSS), 190 where it had to load for itself
LOADED_FACTOR = 3  # of a model's files, once in memory and while it predicts
_WEIGHTS_SHARE = 0.75  # of a GPU's memory that weights may take; the rest is for the cache of keys and values
_CPU_LLM_BYTES = 512 * MIB  # a language model up to this size needs no GPU
_LARGE_BYTES = 64 * MIB  # a network below it answers sooner than it is handed to another process

_CPU_ONLY = {"sklearn", "lightgbm", "statsmodels", "prophet", "pmdarima"}
_COPIED = {"sklearn", "xgboost", "lightgbm"}  # as runtimes/mlflow/twins says: one is loaded, the others are its copies
_HEAVY = {"pytorch", "tensorflow", "keras", "transformers", "sentence_transformers", "diffusers"}
_AGENTS = {"langchain", "llama_index", "dspy", "openai"}
_JAVA = {"spark", "h2o", "johnsnowlabs"}


class Runtime(StrEnum):
    """What can serve a model; `python -m runtimes.<name>` in its pod."""

    MLFLOW = "mlflow"
    VLLM = "vllm"
    TRITON = "triton"


@dataclass(frozen=True)
class Wish:
    """What the endpoint's file states; None where it says nothing. All but ``nodes`` is of one node."""

    runtime: Runtime | None = None
    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    gpu_bytes: int | None = None
    parallelism: int | None = None
    nodes: int | None = None


@dataclass(frozen=True)
class Choice:
    """What one replica is: ``nodes`` pods, each with the CPU, memory and GPUs. ``predictors`` are processes that hold
    the model, ``first_limit`` is the whole replica's, ``why`` is one line for a person. ``caches_prefixes``: a replica
    answers a prompt sooner that begins as one did that it has had."""

    runtime: Runtime
    cpu_millicores: int
    memory_bytes: int
    gpus: int
    predictors: int
    first_limit: int
    why: str
    nodes: int = 1
    caches_prefixes: bool = False


@dataclass(frozen=True)
class Refusal:
    """One wish, by the field of the file, that can't come true, and what to change."""

    field: str
    message: str


class SelectionError(ValueError):
    """Every wish that can't come true."""

    def __init__(self, refusals: list[Refusal]) -> None:
        super().__init__("; ".join(f"{each.field}: {each.message}" for each in refusals))
        self.refusals = tuple(refusals)


def select(card: Card, wish: Wish) -> Choice:
    """The choice for a model; a SelectionError with every refusal where there is none."""
    runtime, reason = _runtime(card, wish)
    refusals = [*_refused(card, wish, runtime)]
    if refusals:
        raise SelectionError(refusals)
    choice = _SIZES[runtime](card, wish, reason)
    return replace(
        choice,
        cpu_millicores=wish.cpu_millicores or choice.cpu_millicores,
        memory_bytes=wish.memory_bytes or choice.memory_bytes,
        first_limit=wish.parallelism or choice.first_limit,
        caches_prefixes=runtime is Runtime.VLLM and _generates(card),
    )


def _runtime(card: Card, wish: Wish) -> tuple[Runtime, str]:
    """Which one, and what speaks for it."""
    what = card.name + ("" if card.size_bytes is None else f" of {_amount(card.size_bytes)}")
    if wish.runtime is not None:
        return wish.runtime, f"{what}, the file names the runtime"
    if _generates(card):
        return Runtime.VLLM, f"{what} that generates text ({_sign(card)})"
    if card.flavor in ("onnx", "pytorch") and _on_triton(card) is None:
        if not card.pyfunc:
            return Runtime.TRITON, f"{what} of several tensors, which MLflow can't call"
        if wish.gpus:
            return Runtime.TRITON, f"{what} on a GPU"
        if (card.size_bytes or 0) >= _LARGE_BYTES:
            return Runtime.TRITON, f"{what}, batched by Triton"
    if _is_agent(card):
        return Runtime.MLFLOW, f"{what}, an agent ({_sign(card)}) that waits for other services"
    return Runtime.MLFLOW, f"{what}, whose waiting requests are batched"


def _generates(card: Card) -> bool:
    """A transformers model whose answer is text, token by token."""
    if card.flavor != "transformers":
        return False
    named = card.task in ("text-generation", "llm/v1/chat", "llm/v1/completions")
    return named or card.architecture.endswith("ForCausalLM")


def _embeds(card: Card) -> bool:
    return card.flavor == "sentence_transformers" or (
        card.flavor == "transformers" and card.task in ("llm/v1/embeddings", "feature-extraction")
    )


def _is_agent(card: Card) -> bool:
    return card.flavor in _AGENTS or card.task.startswith("agent/") or (card.flavor == PYFUNC and card.streams)


def _sign(card: Card) -> str:
    return card.task or card.architecture or ("it streams" if card.streams else card.flavor)


def _on_triton(card: Card) -> str | None:
    """Why Triton can't load it; None where it can."""
    if card.flavor not in ("onnx", "pytorch"):
        return "Triton takes ONNX models and exported PyTorch models: log it as one (mlflow.onnx, mlflow.pytorch)"
    if card.stored == "pickle":
        return "the network is pickled: log it with serialization_format='pt2', which needs an input example"
    if card.takes != "tensors":
        return "Triton needs a signature of tensors: log the model with an input example of arrays"
    return None


def _on_vllm(card: Card) -> str | None:
    if card.flavor not in ("transformers", "sentence_transformers"):
        return "vLLM takes transformers models: log it with mlflow.transformers"
    if not (_generates(card) or _embeds(card)):
        return f"vLLM generates text or embeds it, and this model's task is {_sign(card)}: remove the field"
    return None


def _on_mlflow(card: Card) -> str | None:
    if card.flavor in _JAVA:
        return f"{card.name} needs Java, which no image of ours has: log it as ONNX, or serve it as image:"
    if not card.pyfunc:
        return "the model has no python_function flavor, which is how it would be called: serve it as image:"
    if card.python and _minor(card.python) != PYTHON:
        return f"it was logged with Python {card.python}, the images have {PYTHON}: log it again with Python {PYTHON}"
    return None


_LOADS: dict[Runtime, Callable[[Card], str | None]] = {
    Runtime.MLFLOW: _on_mlflow,
    Runtime.VLLM: _on_vllm,
    Runtime.TRITON: _on_triton,
}


def _refused(card: Card, wish: Wish, runtime: Runtime) -> Iterator[Refusal]:
    why = _LOADS[runtime](card)
    if why is not None:
        yield Refusal("model" if wish.runtime is None else "runtime", why)
    gpus = wish.gpus or 0
    if gpus and runtime is Runtime.MLFLOW and card.flavor in _CPU_ONLY:
        yield Refusal("accelerator", f"{card.name} uses no GPU: remove the field")
    elif gpus > 1 and runtime is not Runtime.VLLM:
        yield Refusal("accelerator.gpus", f"{runtime} uses one GPU a replica: write 1; load adds replicas")
    if (wish.nodes or 1) > 1 and not (runtime is Runtime.VLLM and _generates(card)):
        yield Refusal(
            "resources.nodes", "only text that vLLM generates is split over nodes: write 1; load adds replicas"
        )
    elif runtime is Runtime.VLLM:
        yield from _refused_gpus(card, wish)
    each = (card.size_bytes or 0) // (wish.nodes or 1)
    if wish.memory_bytes is not None and each > wish.memory_bytes and not gpus:
        held = f"{_amount(each)} of files can't be held in {_amount(wish.memory_bytes)}"
        yield Refusal("resources.memory", f"{held}: write more, or remove the field")


def _refused_gpus(card: Card, wish: Wish) -> Iterator[Refusal]:
    """GPUs that vLLM can't split a model over, or that are too few on as many nodes as the file or the rules allow."""
    if wish.gpus == 0:
        return
    if wish.gpus and wish.gpus not in (1, 2, 4, 8):
        yield Refusal("accelerator.gpus", f"vLLM splits a model over 1, 2, 4 or 8 GPUs, not {wish.gpus}")
        return
    nodes, gpus, needed = _nodes_for(card, wish), wish.gpus or GPUS_MOST, _gpus_for(card, wish)
    if needed <= nodes * gpus:
        return
    of = f"GPUs of {_amount(wish.gpu_bytes or GPU_BYTES)}"
    told = f"{_amount(card.size_bytes or 0)} of weights need {needed} {of}, and a replica would have {nodes * gpus}"
    ways = ["state gpu_memory where they are larger", "choose a smaller model"]
    if (enough := -(-needed // gpus)) <= NODES_MOST and _generates(card):
        ways.insert(0, f"write {enough} as resources.nodes")
    if gpus < GPUS_MOST:
        ways.insert(0, "state more of them")
    field = "accelerator" if wish.nodes is None else "resources.nodes"
    yield Refusal(field, f"{told}: {', or '.join(ways)}")


def _gpus_for(card: Card, wish: Wish) -> int:
    """GPUs whose memory holds the weights and leaves a quarter, at least one."""
    return max(1, math.ceil((card.size_bytes or 0) / (_WEIGHTS_SHARE * (wish.gpu_bytes or GPU_BYTES))))


def _nodes_for(card: Card, wish: Wish) -> int:
    """As stated, else as many as are needed where whole nodes are given; more of one node's GPUs come first."""
    if wish.nodes is not None or wish.gpus not in (None, GPUS_MOST) or not _generates(card):
        return wish.nodes or 1
    return min(-(-_gpus_for(card, wish) // GPUS_MOST), NODES_MOST)


def _power_of_two(needed: int) -> int:
    """On one node, where the model's heads are split; over several, its layers are."""
    return 1 << (max(needed, 1) - 1).bit_length()


def _sized_mlflow(card: Card, wish: Wish, reason: str) -> Choice:
    heavy = card.flavor in _HEAVY or (card.size_bytes or 0) >= _LARGE_BYTES
    cpu = wish.cpu_millicores or (2_000 if heavy else 500)
    # A network's library uses all cores for one batch, and each process would hold the weights again.
    predictors = 1 if heavy else -(-cpu // 1_000)
    size = card.size_bytes or 0
    first = (GIB if heavy else _PREDICTOR_BYTES) + LOADED_FACTOR * size
    further = _COPY_BYTES + size if card.flavor in _COPIED else first
    memory = max(GIB, _rounded(_FRONT_BYTES + first + (predictors - 1) * further))
    limit = AGENT_LIMIT if _is_agent(card) else BATCHED_LIMIT
    return Choice(Runtime.MLFLOW, cpu, memory, wish.gpus or 0, predictors, limit, reason)


def _sized_vllm(card: Card, wish: Wish, reason: str) -> Choice:
    size = card.size_bytes or 0
    small = card.size_bytes is not None and size <= _CPU_LLM_BYTES
    on_cpu = wish.gpus == 0 or (wish.gpus is None and small)
    nodes = (wish.nodes or 1) if on_cpu else _nodes_for(card, wish)
    each, spread = -(-size // nodes), f" on {nodes} nodes, each" if nodes > 1 else ""
    if on_cpu:
        reason = f"{reason}{spread}, {'small enough for the CPU' if small else 'on the CPU as the file asks'}"
        memory = _rounded(5 * GIB + LOADED_FACTOR * each)
        return Choice(Runtime.VLLM, 2_000, memory, 0, 1, SEQUENCES_CPU, reason, nodes)
    gpus = wish.gpus or _power_of_two(-(-_gpus_for(card, wish) // nodes))
    reason = f"{reason}{spread} on {gpus} GPU{'s' if gpus > 1 else ''} of {_amount(wish.gpu_bytes or GPU_BYTES)}"
    return Choice(Runtime.VLLM, 4_000 * gpus, _rounded(8 * GIB + each), gpus, 1, SEQUENCES_GPU, reason, nodes)


def _sized_triton(card: Card, wish: Wish, reason: str) -> Choice:
    memory = _rounded(GIB + LOADED_FACTOR * (card.size_bytes or 0))
    return Choice(Runtime.TRITON, 2_000, memory, wish.gpus or 0, 1, BATCHED_LIMIT, reason)


_SIZES: dict[Runtime, Callable[[Card, Wish, str], Choice]] = {
    Runtime.MLFLOW: _sized_mlflow,
    Runtime.VLLM: _sized_vllm,
    Runtime.TRITON: _sized_triton,
}


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _rounded(size: int) -> int:
    """Up to a whole quarter of a GiB."""
    return -(-size // (256 * MIB)) * 256 * MIB


def _amount(size: int) -> str:
    """`3.2 GiB`, `90 MiB`, `12 KiB`, `1010 MiB`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            amount = size / unit
            return f"{amount:.0f} {name}" if amount >= 100 else f"{amount:.3g} {name}"
    return f"{size} bytes"
