"""What vLLM's runtime is told on its command line.

Owns the options beside the interface's, and that flags of vLLM's own can be passed behind ``--``. Leaves what follows
from them to arguments. One idea: both processes of this runtime read the same command line, so nothing is handed on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from runtimes.interface import settings as interface
from runtimes.interface.settings import Settings, count, seconds

# Between the two processes: a folder for links, the socket, and a pipe's end that is closed once it is accepted on.
FOLDER_VARIABLE = "KNOBLESS_VLLM_FOLDER"
SOCKET_VARIABLE = "KNOBLESS_VLLM_SOCKET"
SERVES_VARIABLE = "KNOBLESS_VLLM_SERVES"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A LoRA adapter: the name that requests give as their model, and its folder."""

    name: str
    folder: Path


@dataclass(frozen=True, kw_only=True)
class VllmSettings(Settings):
    """One vLLM server. None: what the model and the GPU suggest (see arguments)."""

    model: Path
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    max_output_tokens: int | None = None
    tensor_parallel: int = 1
    nodes: int = 1
    prefix_cache: bool | None = None
    adapters: tuple[Adapter, ...] = ()
    chat_template: Path | None = None
    stuck_s: float = 60.0
    own_flags: tuple[str, ...] = ()


def parse_settings(arguments: Sequence[str] | None = None) -> VllmSettings:
    """Read the command line."""
    ours, own_flags = _split(sys.argv[1:] if arguments is None else arguments)
    found = vars(_parser().parse_args(ours))
    names = {field.name for field in fields(VllmSettings)}
    values = {name: value for name, value in found.items() if name in names and value is not None}
    return VllmSettings(**values, adapters=tuple(found["adapter"]), own_flags=tuple(own_flags))


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtimes.vllm", description="Serve a language model.", epilog="flags behind -- go to vLLM"
    )
    interface.add_options(parser)
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        required=True,
        help="the folder of an MLflow model, or of a model as transformers saves it",
    )
    add("--max-num-seqs", type=count, help="requests that generate at once; what comes above waits")
    add("--max-model-len", type=count, help="tokens of a prompt and its answer together")
    add("--max-output-tokens", type=count, help="the most that one answer may have, whatever a request asks for")
    add("--tensor-parallel", type=count, help="GPUs of this node that share the model")
    add("--nodes", type=count, help="pods of a LeaderWorkerSet's group that share the model, each with its GPUs")
    add("--prefix-cache", action=argparse.BooleanOptionalAction, help="keep what prompts have in common")
    add("--adapter", type=_adapter, action="append", default=[], metavar="NAME=FOLDER", help="a LoRA adapter")
    add("--chat-template", type=Path, help="a file, where the model brings none")
    add("--stuck-s", type=seconds, help="an engine that says nothing for so long needs a new process")
    return parser


def _adapter(text: str) -> Adapter:
    name, _, folder = text.partition("=")
    if not name or not folder:
        raise argparse.ArgumentTypeError("must be NAME=FOLDER")
    return Adapter(name=name, folder=Path(folder))
