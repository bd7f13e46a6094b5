"""What vLLM is started with: its flags from settings, model and GPU, and the folders of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtimes import gpus
from runtimes.gpus import Gpu
from runtimes.selection import Wish, select
from runtimes.selection_card import Card
from runtimes.vllm import arguments, model
from runtimes.vllm.model import Served, UnservableError
from runtimes.vllm.settings import Adapter, VllmSettings, parse_settings

GIB = 1 << 30
T4 = Gpu("Tesla T4", 15 * GIB, 7.5)
H100 = Gpu("NVIDIA H100", 80 * GIB, 9.0)
CHAT = Served(Path("/m/model"), Path("/m/components/tokenizer"), "llm/v1/chat")


def settings(**changes: object) -> VllmSettings:
    return VllmSettings(**{"model": Path("/m"), "name": "talk", **changes})  # type: ignore[arg-type]


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def flags(*found: Gpu, served: Served = CHAT, ranks: tuple[int, ...] = (), **changes: object) -> list[str]:
    return arguments.flags(settings(**changes), served, found, ranks)


def test_the_server_gets_the_model_s_own_folders_its_endpoint_s_name_and_the_interface() -> None:
    words = flags(H100)
    assert value(words, "--model") == "/m/model"
    assert value(words, "--tokenizer") == "/m/components/tokenizer"
    assert value(words, "--served-model-name") == "talk"
    assert value(words, "--middleware") == arguments.MIDDLEWARE
    assert int(value(words, "--shutdown-timeout")) > 0


def test_the_middleware_that_is_named_is_there() -> None:
    module, _, name = arguments.MIDDLEWARE.rpartition(".")
    assert module == "runtimes.vllm.middleware"
    assert f"class {name}:" in Path("runtimes/vllm/middleware.py").read_text()


@pytest.mark.parametrize(
    ("found", "stated", "expected"), [((), None, 64), ((H100,), None, 256), ((T4,), None, 256), ((H100,), 32, 32)]
)
def test_how_many_generate_at_once_follows_from_the_gpu_unless_stated(
    found: tuple[Gpu, ...], stated: int | None, expected: int
) -> None:
    assert value(flags(*found, max_num_seqs=stated), "--max-num-seqs") == str(expected)
    assert arguments.environment(settings(max_num_seqs=stated), Path("/s"), found)["VLLM_MAX_N_SEQUENCES"] == str(
        expected
    )


def test_prompts_share_their_prefix_unless_it_is_switched_off_and_vectors_are_left_to_vllm() -> None:
    assert "--enable-prefix-caching" in flags(H100)
    assert "--no-enable-prefix-caching" in flags(H100, prefix_cache=False)
    pooled = flags(H100, served=Served(Path("/m"), Path("/m"), model.EMBEDDINGS))
    assert not [word for word in pooled if "prefix" in word]
    assert value(pooled, "--runner") == "pooling"


def test_without_a_gpu_nothing_is_compiled_and_on_an_old_one_numbers_are_halved() -> None:
    assert "--enforce-eager" in flags()
    assert arguments.environment(settings(), Path("/s"), ())["TORCHDYNAMO_DISABLE"] == "1"
    assert "TORCHDYNAMO_DISABLE" not in arguments.environment(settings(), Path("/s"), (H100,))
    assert "--enforce-eager" not in flags(H100)
    assert value(flags(T4), "--dtype") == "half"
    assert "--dtype" not in flags(H100)


@pytest.mark.parametrize(
    ("limit", "weights", "cache"),
    [(5 * GIB, 0, GIB), (5 * GIB + 3 * GIB // 2, GIB // 2, GIB), (16 * GIB, GIB, 9 * GIB), (3 * GIB, 0, GIB // 4),
     (None, 7 * GIB, GIB)],
)  # fmt: skip
def test_the_cache_without_a_gpu_is_what_the_pod_s_memory_leaves(limit: int | None, weights: int, cache: int) -> None:
    assert arguments.cache_bytes(limit, weights) == cache


def test_a_pod_as_it_is_planned_has_a_cache_of_a_gib_whatever_the_model() -> None:
    for weights in (300_000, 500 << 20, 7 * GIB):
        card = Card("transformers", pyfunc=True, task=model.CHAT, size_bytes=weights)
        planned = select(card, Wish(gpus=0)).memory_bytes
        assert GIB <= arguments.cache_bytes(planned, weights) < 1.5 * GIB


def test_the_size_of_the_cache_is_vllm_s_own_word_on_a_gpu_only() -> None:
    assert value(arguments.flags(settings(), CHAT, (), cache_bytes=GIB), "--kv-cache-memory-bytes") == str(GIB)
    assert "--kv-cache-memory-bytes" not in flags(H100)


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (8, "7")])
def test_without_a_gpu_threads_follow_the_quota_and_are_bound_to_no_core(cores: int, threads: str) -> None:
    own = arguments.environment(settings(), Path("/s"), (), cores)
    assert (own["OMP_NUM_THREADS"], own["VLLM_CPU_OMP_THREADS_BIND"]) == (threads, "nobind")
    assert "OMP_NUM_THREADS" not in arguments.environment(settings(), Path("/s"), (H100,), cores)


@pytest.mark.parametrize(("found", "at_once"), [((), "2"), ((T4,), "4"), ((H100,), "6")])
def test_adapters_are_loaded_as_many_at_once_as_the_gpu_has_room_for(found: tuple[Gpu, ...], at_once: str) -> None:
    six = tuple(Adapter(name=f"a{number}", folder=Path(f"/a/{number}")) for number in range(6))
    words = flags(*found, adapters=six, ranks=(8, 20, 4))
    assert value(words, "--max-loras") == at_once
    assert value(words, "--max-lora-rank") == "32"  # the next that vLLM has a kernel for
    assert words[words.index("--lora-modules") + 1 :][:6] == [f"a{number}=/a/{number}" for number in range(6)]


def test_without_adapters_nothing_is_reserved_for_them() -> None:
    assert not [word for word in flags(H100) if "lora" in word]


def test_the_longest_answer_is_the_server_s_to_limit() -> None:
    assert json.loads(value(flags(max_output_tokens=99), "--override-generation-config")) == {"max_new_tokens": 99}


def test_a_pod_with_too_few_gpus_is_told_so() -> None:
    with pytest.raises(UnservableError, match=r"--tensor-parallel 2 .* this pod has 1"):
        flags(H100, tensor_parallel=2)
    assert value(flags(H100, H100, tensor_parallel=2), "--tensor-parallel-size") == "2"


@pytest.mark.parametrize("flag", ["--host", "--api-key=x", "--middleware"])
def test_flags_that_the_interface_depends_on_can_not_be_passed(flag: str) -> None:
    with pytest.raises(UnservableError, match=flag.partition("=")[0]):
        flags(own_flags=("--seed", "1", flag))


def test_all_other_flags_of_vllm_are_passed_behind_two_dashes() -> None:
    told = parse_settings(["--model", "/m", "--deadline-s", "9", "--adapter", "x=/a", "--", "--seed", "1"])
    assert (told.model, told.deadline_s, told.own_flags) == (Path("/m"), 9.0, ("--seed", "1"))
    assert told.adapters == (Adapter(name="x", folder=Path("/a")),)
    assert arguments.flags(told, CHAT, (), (8,))[-2:] == ["--seed", "1"]


@pytest.mark.case("runtimes-B11")
def test_nothing_is_reported_and_nothing_is_written_outside_the_scratch_folder() -> None:
    own = arguments.environment(settings(), Path("/s"), ())
    assert {own[name] for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_OFFLINE")} == {"1"}
    folders = [name for name in own if name.endswith(("_HOME", "_ROOT", "_DIR"))]
    assert len(folders) >= 6
    assert {own[name] for name in folders} == {"/s"}


def test_a_connection_outlives_what_the_gateway_keeps_open() -> None:
    assert int(arguments.environment(settings(), Path("/s"), ())["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) >= 3600


def test_gpus_are_read_from_the_driver_s_table() -> None:
    told = "NVIDIA H100 80GB HBM3, 81559, 9.0\nTesla T4, 15360, 7.5\n"
    assert gpus.parse(told) == (Gpu("NVIDIA H100 80GB HBM3", 81559 << 20, 9.0), Gpu("Tesla T4", 15360 << 20, 7.5))


# The model's folder.


def mlflow_model(folder: Path, text: str, weights: str = "model/model.safetensors") -> Path:
    for name in (weights, "components/tokenizer/tokenizer.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "MLmodel").write_text(text)
    return folder


def test_an_mlflow_transformers_model_is_served_from_its_own_files(tmp_path: Path) -> None:
    text = "flavors:\n  transformers:\n    model_binary: model\nmetadata:\n  task: llm/v1/chat\n"
    served = model.read(mlflow_model(tmp_path, text))
    assert served == Served(tmp_path / "model", tmp_path / "components" / "tokenizer", "llm/v1/chat")


def test_a_model_and_its_tokenizer_are_one_folder_of_links(tmp_path: Path) -> None:
    served = model.read(mlflow_model(tmp_path, "flavors:\n  transformers:\n    model_binary: model\n"))
    joined = model.joined(served, tmp_path / "links")
    assert joined == Served(tmp_path / "links", tmp_path / "links")
    assert {file.name: file.resolve() for file in (tmp_path / "links").iterdir()} == {
        "model.safetensors": tmp_path / "model" / "model.safetensors",
        "tokenizer.json": tmp_path / "components" / "tokenizer" / "tokenizer.json",
    }
    assert model.joined(joined, tmp_path / "nowhere") is joined


def test_a_sentence_transformers_model_answers_with_vectors(tmp_path: Path) -> None:
    text = "flavors:\n  python_function:\n    data: st\n  sentence_transformers: {}\n"
    served = model.read(mlflow_model(tmp_path, text, "st/model.safetensors"))
    assert served == Served(tmp_path / "st", tmp_path / "st", model.EMBEDDINGS)
    assert served.pools


def test_a_folder_that_transformers_itself_saved_is_served_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
    assert model.read(tmp_path) == Served(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flavors:\n  transformers:\n    source_model_name: org/large\n", "org/large.*save_pretrained"),
        ("flavors:\n  transformers:\n    model_binary: model\n    peft_adaptor: peft\n", "merge"),
        ("flavors:\n  transformers:\n    model_binary: elsewhere\n", "no weights"),
        ("flavors:\n  sklearn: {}\n", "transformers or sentence_transformers"),
    ],
)
def test_what_can_not_be_served_says_what_to_change(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UnservableError, match=said):
        model.read(mlflow_model(tmp_path, text))


def test_the_rank_of_an_adapter_is_in_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    assert model.adapter_rank(tmp_path) == 8
    with pytest.raises(UnservableError, match="not a LoRA adapter"):
        model.adapter_rank(tmp_path / "nowhere")
