"""Which folders of a model vLLM has to be given.

Owns reading an MLflow model's folder, or one that transformers itself saved; leaves loading to vLLM. One idea: an
MLflow transformers model is served from the files it already has, without a conversion and without a copy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHAT, COMPLETIONS, EMBEDDINGS = "llm/v1/chat", "llm/v1/completions", "llm/v1/embeddings"


class UnservableError(RuntimeError):
    """vLLM can't serve this folder; the text is one line and says what to change."""


@dataclass(frozen=True)
class Served:
    """What to load, and what for; ``task`` is one of MLflow's names, None where the model does not say."""

    weights: Path
    tokenizer: Path
    task: str | None = None

    @property
    def pools(self) -> bool:
        """Whether it answers with vectors and generates nothing."""
        return self.task == EMBEDDINGS


def read(folder: Path) -> Served:
    """What to serve from this folder; UnservableError where there is nothing."""
    described = folder / "MLmodel"
    if not described.is_file():
        return _plain(folder)
    document = yaml.safe_load(described.read_text(encoding="utf-8"))
    flavors = document.get("flavors") or {}
    if "transformers" in flavors:
        return _transformers(folder, flavors["transformers"], document.get("metadata") or {})
    if "sentence_transformers" in flavors:
        data = (flavors.get("python_function") or {}).get("data", "model.sentence_transformer")
        return Served(_with_weights(folder / data), folder / data, EMBEDDINGS)
    raise UnservableError(
        "vLLM serves models with the transformers or sentence_transformers flavor; this one has neither"
    )


def joined(served: Served, into: Path) -> Served:
    """The same in one folder of links, where vLLM looks for everything; in a tokenizer's own it misses the model."""
    if served.tokenizer == served.weights:
        return served
    into.mkdir()
    for file in (*served.tokenizer.iterdir(), *served.weights.iterdir()):
        link = into / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
    return Served(into, into, served.task)


def size_bytes(served: Served) -> int:
    """Of the files with the weights."""
    return sum(file.stat().st_size for file in served.weights.iterdir() if file.is_file())


def adapter_rank(folder: Path) -> int:
    """The rank of a LoRA adapter."""
    try:
        rank = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))["r"]
    except (OSError, ValueError, KeyError) as error:
        raise UnservableError(f"{folder} is not a LoRA adapter: no adapter_config.json with its rank `r`") from error
    return int(rank)


def _transformers(folder: Path, flavor: dict[str, Any], metadata: dict[str, Any]) -> Served:
    binary = flavor.get("model_binary")
    if binary is None:
        source = flavor.get("source_model_name", "its source")
        raise UnservableError(
            f"the folder has no weights, only a reference to {source}: "
            "log it with save_pretrained=True or call mlflow.transformers.persist_pretrained_model"
        )
    if "peft_adaptor" in flavor:
        raise UnservableError("the model is a PEFT adapter and its base: merge them before logging, or give --adapter")
    tokenizer = folder / "components" / "tokenizer"
    return Served(
        _with_weights(folder / binary),
        tokenizer if tokenizer.is_dir() else folder / binary,
        metadata.get("task") or flavor.get("inference_task"),
    )


def _plain(folder: Path) -> Served:
    if not (folder / "config.json").is_file():
        raise UnservableError(f"{folder} has neither an MLmodel file nor a config.json of transformers")
    return Served(_with_weights(folder), folder)


def _with_weights(folder: Path) -> Path:
    if not any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt", "*.gguf")):
        raise UnservableError(f"{folder} holds no weights")
    return folder
