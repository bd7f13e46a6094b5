"""From a model's card and the wishes of its file to runtime, size and first limit, or to what has to change."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtimes.selection import GIB, Choice, Runtime, SelectionError, Wish, select
from runtimes.selection_card import Card, UnreadableModelError, parse_card, read_card

GOLDENS = Path(__file__).parents[1] / "goldens" / "models"
CHOICES: dict[str, Any] = json.loads((GOLDENS / "choices.json").read_text())
SKLEARN = Card("sklearn", pyfunc=True, python="3.11.9", takes="columns", size_bytes=12_345)
NETWORK = Card("pytorch", pyfunc=True, python="3.11.9", takes="tensors", stored="pt2", size_bytes=1 << 20)
LLM = Card(
    "transformers",
    pyfunc=True,
    python="3.12.1",
    task="llm/v1/chat",
    architecture="LlamaForCausalLM",
    size_bytes=15 * GIB,
)
CLASSIFIER = replace(LLM, task="text-classification", architecture="BertForSequenceClassification", python="3.11.9")


def card(name: str) -> Card:
    return parse_card(json.dumps(CHOICES[name]["card"]))


def refusals(of: Card, wish: Wish) -> list[tuple[str, str]]:
    with pytest.raises(SelectionError) as caught:
        select(of, wish)
    return [(refusal.field, refusal.message) for refusal in caught.value.refusals]


def test_what_is_chosen_for_the_models_of_every_flavor_is_what_the_golden_says(tmp_path: Path) -> None:
    now = tmp_path / "choices.json"
    subprocess.run([sys.executable, str(GOLDENS / "write.py"), str(now)], check=True)
    assert json.loads(now.read_text()) == CHOICES, "if this change is meant: python tests/goldens/models/write.py"


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_a_card_survives_being_noted_on_its_model(name: str) -> None:
    assert parse_card(card(name).text) == card(name)
    assert len(card(name).text) < 400


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"flavor": "sklearn"}', '{"flavor": "a", "pyfunc": true, "x": 1}'])
def test_what_is_no_card_of_this_version_is_told(text: str) -> None:
    with pytest.raises(ValueError):
        parse_card(text)


def test_a_model_without_flavors_is_unreadable() -> None:
    with pytest.raises(UnreadableModelError):
        read_card({"run_id": "x"}, [])


@pytest.mark.parametrize(
    "mlmodel",
    [
        {
            "flavors": {"sklearn": None, "python_function": []},
            "signature": "x",
            "metadata": [],
            "model_size_bytes": "1",
        },
        {"flavors": {"sklearn": {"task": 1}}, "signature": {"inputs": "{"}, "metadata": {"task": {}}},
    ],
)
def test_an_mlmodel_with_parts_of_other_shapes_gives_a_card_that_says_less(mlmodel: dict[str, Any]) -> None:
    read = read_card(mlmodel, [])
    assert (read.flavor, read.task, read.takes, read.size_bytes) == ("sklearn", "", "", None)


@pytest.mark.parametrize(
    ("flavor", "size_mib", "memory_gib"),
    [("sklearn", 0, 1.75), ("lightgbm", 40, 2.25), ("pyfunc", 0, 2.75), ("pyfunc", 40, 3.5)],
)
def test_eight_predictors_that_are_copies_of_one_are_not_counted_as_eight(
    flavor: str, size_mib: int, memory_gib: float
) -> None:
    made = select(replace(SKLEARN, flavor=flavor, size_bytes=size_mib << 20), Wish(cpu_millicores=8_000))
    assert (made.predictors, made.memory_bytes / GIB) == (8, memory_gib)


def test_every_part_of_a_choice_can_be_overridden() -> None:
    wish = Wish(cpu_millicores=3_000, memory_bytes=2 * GIB, parallelism=5)
    made = select(SKLEARN, wish)
    assert (made.cpu_millicores, made.memory_bytes, made.first_limit, made.predictors) == (3_000, 2 * GIB, 5, 3)
    forced = select(CLASSIFIER, Wish(runtime=Runtime.MLFLOW, gpus=1))
    assert (forced.runtime, forced.gpus) == (Runtime.MLFLOW, 1)
    assert select(NETWORK, Wish(runtime=Runtime.TRITON)).runtime is Runtime.TRITON


def test_a_network_on_a_gpu_is_triton_s() -> None:
    made = select(NETWORK, Wish(gpus=1))
    assert (made.runtime, made.gpus) == (Runtime.TRITON, 1)


@pytest.mark.parametrize(
    ("size_gib", "gpu_gib", "gpus"),
    [(1, 24, 1), (15, 24, 1), (18, 24, 1), (19, 24, 2), (140, 24, 8), (140, 80, 4), (140, 141, 2)],
)
def test_a_language_model_gets_gpus_that_hold_its_weights_and_a_cache(size_gib: int, gpu_gib: int, gpus: int) -> None:
    made = select(replace(LLM, size_bytes=size_gib * GIB), Wish(gpu_bytes=gpu_gib * GIB))
    assert (made.runtime, made.gpus, made.first_limit) == (Runtime.VLLM, gpus, 256)


def test_a_language_model_runs_on_the_cpu_where_the_file_asks_for_it() -> None:
    made = select(LLM, Wish(gpus=0))
    assert (made.runtime, made.gpus, made.first_limit) == (Runtime.VLLM, 0, 64)
    assert made.memory_bytes > 15 * GIB


@pytest.mark.parametrize(
    ("size_gib", "wish", "nodes", "gpus", "memory_gib"),
    [
        (144, Wish(), 1, 8, 152),
        (145, Wish(), 2, 8, 80.5),  # 9 GPUs
        (400, Wish(), 3, 8, 141.5),  # 23 GPUs: 8, 8 and 7; layers are split, so no power of two is needed
        (400, Wish(gpus=8), 3, 8, 141.5),
        (1600, Wish(gpu_bytes=80 * GIB), 4, 8, 408),
        (40, Wish(nodes=3), 3, 1, 21.5),  # 3 GPUs
        (40, Wish(nodes=2), 2, 2, 28),
        (40, Wish(nodes=3, gpus=1), 3, 1, 21.5),
        (10, Wish(nodes=2, gpus=4), 2, 4, 13),
        (10, Wish(nodes=2, gpus=0), 2, 0, 20),
        (10, Wish(nodes=1), 1, 1, 18),
    ],
)
def test_a_model_that_is_more_than_a_node_holds_spans_nodes_of_which_each_has_its_part(
    size_gib: int, wish: Wish, nodes: int, gpus: int, memory_gib: float
) -> None:
    made = select(replace(LLM, size_bytes=size_gib * GIB), wish)
    assert (made.nodes, made.gpus, made.memory_bytes / GIB) == (nodes, gpus, memory_gib)
    assert made.cpu_millicores == (4_000 * gpus or 2_000)
    assert (f"on {nodes} nodes, each" in made.why) == (nodes > 1)


def test_what_is_stated_of_memory_is_of_one_node() -> None:
    large = replace(LLM, size_bytes=40 * GIB)
    assert select(large, Wish(gpus=0, nodes=2, memory_bytes=30 * GIB)).memory_bytes == 30 * GIB
    assert refusals(large, Wish(gpus=0, memory_bytes=30 * GIB))[0][0] == "resources.memory"


def test_one_node_is_what_every_model_may_be_told() -> None:
    assert select(SKLEARN, Wish(nodes=1)) == select(SKLEARN, Wish())


def test_vllm_does_not_run_the_model_s_own_python() -> None:
    assert select(LLM, Wish()).runtime is Runtime.VLLM
    assert refusals(LLM, Wish(runtime=Runtime.MLFLOW)) == [
        ("runtime", "it was logged with Python 3.12.1, the images have 3.11: log it again with Python 3.11")
    ]


def test_a_size_that_nobody_wrote_down_is_not_taken_for_small() -> None:
    assert select(replace(LLM, size_bytes=None), Wish()).gpus == 1


@pytest.mark.parametrize(
    ("of", "wish", "field", "message"),
    [
        (SKLEARN, Wish(runtime=Runtime.VLLM), "runtime", "vLLM takes transformers models"),
        (CLASSIFIER, Wish(runtime=Runtime.VLLM), "runtime", "this model's task is text-classification"),
        (SKLEARN, Wish(runtime=Runtime.TRITON), "runtime", "Triton takes ONNX models and exported PyTorch models"),
        (replace(NETWORK, stored="pickle"), Wish(runtime=Runtime.TRITON), "runtime", "serialization_format='pt2'"),
        (replace(NETWORK, takes="columns"), Wish(runtime=Runtime.TRITON), "runtime", "a signature of tensors"),
        (SKLEARN, Wish(gpus=1), "accelerator", "scikit-learn uses no GPU: remove the field"),
        (CLASSIFIER, Wish(gpus=2), "accelerator.gpus", "mlflow uses one GPU a replica: write 1"),
        (NETWORK, Wish(gpus=2), "accelerator.gpus", "triton uses one GPU a replica: write 1"),
        (LLM, Wish(gpus=3), "accelerator.gpus", "over 1, 2, 4 or 8 GPUs, not 3"),
        (replace(LLM, size_bytes=40 * GIB), Wish(gpus=1), "accelerator", "40 GiB of weights need 3 GPUs of 24 GiB"),
        (replace(LLM, size_bytes=40 * GIB), Wish(gpus=1), "accelerator", "state more of them, or write 3 as resources"),
        (replace(LLM, size_bytes=3000 * GIB), Wish(), "accelerator", "3000 GiB of weights need 167 GPUs"),
        (replace(LLM, size_bytes=3000 * GIB), Wish(), "accelerator", "GPUs of 24 GiB, and a replica would have 128"),
        (replace(LLM, size_bytes=400 * GIB), Wish(nodes=2), "resources.nodes", "would have 16: write 3 as resources"),
        (replace(LLM, size_bytes=40 * GIB), Wish(nodes=2, gpus=1), "resources.nodes", "a replica would have 2: "),
        (SKLEARN, Wish(nodes=2), "resources.nodes", "only text that vLLM generates is split over nodes: write 1"),
        (NETWORK, Wish(runtime=Runtime.TRITON, nodes=2), "resources.nodes", "write 1; load adds replicas"),
        (
            replace(LLM, task="llm/v1/embeddings", architecture=""),
            Wish(runtime=Runtime.VLLM, nodes=2),
            "resources.nodes",
            "only text",
        ),
        (SKLEARN, Wish(memory_bytes=12_000), "resources.memory", "12.1 KiB of files can't be held in 11.7 KiB"),
        (replace(SKLEARN, python="3.9.1"), Wish(), "model", "logged with Python 3.9.1, the images have 3.11"),
        (replace(SKLEARN, pyfunc=False), Wish(), "model", "no python_function flavor"),
        (card("spark"), Wish(), "model", "Spark needs Java"),
    ],
)
def test_a_wish_that_can_not_come_true_names_its_field_and_what_to_change(
    of: Card, wish: Wish, field: str, message: str
) -> None:
    ((told, why),) = refusals(of, wish)
    assert told == field
    assert message in why


def test_all_refusals_are_told_at_once() -> None:
    wish = Wish(runtime=Runtime.TRITON, gpus=2, parallelism=4)
    assert [field for field, _ in refusals(SKLEARN, wish)] == ["runtime", "accelerator.gpus"]


def test_the_reason_is_one_line() -> None:
    made: list[Choice] = [select(each, Wish()) for each in (SKLEARN, NETWORK, LLM, CLASSIFIER)]
    assert all(choice.why.isprintable() and len(choice.why) < 120 for choice in made)
