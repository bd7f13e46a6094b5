"""From a network to Triton's model repository: tensors, configuration, back end, files."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from runtimes.triton import model, onnx_graph, process, repository
from runtimes.triton.config import MOST_ROWS, Plan, config
from runtimes.triton.model import ONNX, Network
from runtimes.triton.tensors import Tensor, Tensors, UnservableError, from_signature

X = Tensor("x", "FP32", (-1, 4))
LABEL = Tensor("label", "INT64", (-1,))
ROWS = Tensors((X,), (LABEL,))
EVERYTHING = frozenset({"python", "onnxruntime", "pytorch"})


def signature(inputs: list[dict[str, object]], outputs: list[dict[str, object]]) -> dict[str, str]:
    return {"inputs": orjson.dumps(inputs).decode(), "outputs": orjson.dumps(outputs).decode()}


def tensor(dtype: str, shape: list[int], name: str | None = None) -> dict[str, object]:
    stated: dict[str, object] = {"type": "tensor", "tensor-spec": {"dtype": dtype, "shape": shape}}
    return stated | ({"name": name} if name else {})


# Tensors.


def test_a_signature_of_tensors_has_names_types_and_shapes() -> None:
    found = from_signature(signature([tensor("float32", [-1, 4], "x")], [tensor("int64", [-1], "label")]))
    assert found == ROWS


def test_a_tensor_without_a_name_is_called_by_its_place() -> None:
    found = from_signature(signature([tensor("str", [-1, 1]), tensor("bool", [2])], [tensor("float64", [-1])]))
    assert found.inputs == (Tensor("INPUT__0", "BYTES", (-1, 1)), Tensor("INPUT__1", "BOOL", (2,)))
    assert found.outputs == (Tensor("OUTPUT__0", "FP64", (-1,)),)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (None, "no signature"),
        (signature([{"type": "double", "name": "a"}], [tensor("bool", [-1])]), "of columns"),
        (signature([tensor("complex128", [-1])], [tensor("bool", [-1])]), "complex128"),
    ],
)
def test_a_signature_that_triton_can_not_have_says_what_to_change(stated: dict[str, str] | None, said: str) -> None:
    with pytest.raises(UnservableError, match=said):
        from_signature(stated)


@pytest.mark.parametrize(
    ("tensors", "have"),
    [
        (ROWS, True),
        (Tensors((X,), (Tensor("y", "FP32", (1, 3)),)), False),
        (Tensors((X, Tensor("k", "INT32", ())), (LABEL,)), False),
    ],
)
def test_there_are_rows_only_where_every_tensor_has_them(tensors: Tensors, have: bool) -> None:
    assert tensors.have_rows is have


# An ONNX file.


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def info(name: bytes, kind: int, *lengths: int | bytes) -> bytes:
    dims = b"".join(field(1, field(1, one) if isinstance(one, int) else field(2, one)) for one in lengths)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def test_an_onnx_file_says_what_it_takes_and_its_weights_are_no_inputs() -> None:
    weights = field(1, 3) + field(9, bytes(300)) + field(8, b"w")
    graph = field(2, b"g") + field(5, weights) + field(11, info(b"x", 1, b"rows", 4)) + field(11, info(b"w", 1, 4))
    graph += field(12, info(b"label", 7, b"rows")) + field(12, info(b"said", 8, 300, 1))
    found = onnx_graph.parse(memoryview(field(1, 8) + field(7, graph)))
    assert found == Tensors((X,), (LABEL, Tensor("said", "BYTES", (300, 1))))


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"\x3a\xff\xff\xff\xff\x7f", b"\x08\x08"])
def test_a_file_that_is_no_onnx_is_told_as_that(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(UnservableError, match=r"model\.onnx is not an ONNX file"):
        onnx_graph.read(tmp_path / "model.onnx")


# The configuration.


def test_a_model_with_rows_is_batched_at_once_and_takes_large_requests() -> None:
    text = config("line", ROWS, Plan("python", 64, 2, parameters=(("file", 'a"b'),)))
    assert (
        text
        == f"""name: "line"
backend: "python"
max_batch_size: {MOST_ROWS}
input {{
  name: "x"
  data_type: TYPE_FP32
  dims: [4]
}}
output {{
  name: "label"
  data_type: TYPE_INT64
  dims: [1]
  reshape {{
    shape: []
  }}
}}
instance_group {{
  count: 2
  kind: KIND_CPU
}}
dynamic_batching {{
  preferred_batch_size: [64]
  max_queue_delay_microseconds: 0
  default_queue_policy {{
    timeout_action: REJECT
    allow_timeout_override: true
  }}
}}
parameters {{
  key: "file"
  value {{
    string_value: "a\\"b"
  }}
}}
"""
    )


@pytest.mark.case("runtimes-E9")
def test_what_must_not_be_merged_has_no_dynamic_batching() -> None:
    assert "dynamic_batching" not in config("ranks", ROWS, Plan("python", merged_rows=0))
    fixed = Tensors((Tensor("k", "BYTES", (1,)),), (Tensor("y", "FP32", (1, 3)),))
    text = config("fixed", fixed, Plan("onnxruntime", gpus=True))
    assert "dynamic_batching" not in text
    assert "max_batch_size: 0" in text
    assert "dims: [1, 3]" in text
    assert "TYPE_STRING" in text
    assert "KIND_GPU" in text


# Back end and files.


def network(folder: Path) -> Network:
    (folder / "model.onnx").write_bytes(b"onnx")
    (folder / "model.onnx.data").write_bytes(b"weights")
    return Network(ONNX, folder / "model.onnx", ROWS)


def test_the_back_end_is_the_network_s_own_where_it_is_installed(tmp_path: Path) -> None:
    found = network(tmp_path)
    assert repository.backend(found, EVERYTHING) == "onnxruntime"
    assert repository.backend(found, {"python"}) == "python"
    assert repository.backend(found, EVERYTHING, "python") == "python"


@pytest.mark.parametrize(
    ("has", "wanted", "said"),
    [(EVERYTHING, "pytorch", "can't load"), (frozenset({"python"}), "onnxruntime", "no onnxruntime back end")],
)
def test_a_back_end_that_can_not_run_it_is_refused(tmp_path: Path, has: frozenset[str], wanted: str, said: str) -> None:
    with pytest.raises(UnservableError, match=said):
        repository.backend(network(tmp_path), has, wanted)


def test_the_python_back_end_gets_our_model_and_the_file_s_place(tmp_path: Path) -> None:
    repository.write(tmp_path / "r", "line", 7, network(tmp_path), Plan("python"))
    assert (tmp_path / "r/line/7/model.py").read_text() == repository.PYTHON_MODEL.read_text()
    text = (tmp_path / "r/line/config.pbtxt").read_text()
    assert f'string_value: "{tmp_path}/model.onnx"' in text
    assert 'string_value: "onnx"' in text


def test_triton_s_own_back_end_gets_the_file_and_the_weights_beside_it(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    repository.write(tmp_path / "r", "line", 1, network(tmp_path / "m"), Plan("onnxruntime"))
    files = {path.name: path.read_bytes() for path in (tmp_path / "r/line/1").iterdir()}
    assert files == {"model.onnx": b"onnx", "model.onnx.data": b"weights"}


def test_a_repository_is_written_afresh(tmp_path: Path) -> None:
    for version in (1, 2):
        repository.write(tmp_path / "r", "line", version, network(tmp_path), Plan("python"))
    assert [path.name for path in sorted((tmp_path / "r/line").iterdir())] == ["2", "config.pbtxt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flavors:\n  pytorch:\n    model_data: data\n", "pickle"),
        ("flavors:\n  sklearn: {}\n", "onnx or pytorch"),
    ],
)
def test_a_model_that_triton_can_not_load_says_what_to_change(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "MLmodel").write_text(text)
    with pytest.raises(UnservableError, match=said):
        model.read(tmp_path)


def test_an_exported_pytorch_model_has_its_signature_s_tensors(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "model.pt2").touch()
    stated = signature([tensor("float32", [-1, 4], "x")], [tensor("int64", [-1], "label")])
    document = {"flavors": {"pytorch": {"model_data": "data"}}, "signature": stated}
    (tmp_path / "MLmodel").write_bytes(orjson.dumps(document))  # JSON is YAML
    assert model.read(tmp_path) == Network(model.TORCH_EXPORT, tmp_path / "data/model.pt2", ROWS)


# The process.


def test_triton_listens_on_loopback_alone_with_nothing_else_switched_on() -> None:
    words = process.command(Path("/t"), Path("/r"), 1, 2)
    assert words[0] == "/t/bin/tritonserver"
    assert {"--http-address=127.0.0.1", "--metrics-address=127.0.0.1", "--allow-grpc=false"} <= set(words)


def test_the_reason_is_the_model_s_and_in_one_line() -> None:
    reasons = process.Reasons()
    reasons.read("E1130 12:00:00.1 7 pb_stub.cc:366] Failed to initialize Python stub: ModuleNotFoundError: No module")
    reasons.read(
        "E1130 12:00:00.1 7 model_lifecycle.cc:642] failed to load 'line' version 7: Internal: No module named 'x'"
    )
    assert reasons.told("nothing") == "Internal: No module named 'x'"
    assert process.Reasons().told("nothing") == "nothing"
