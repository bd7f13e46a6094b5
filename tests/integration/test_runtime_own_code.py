"""Models with code of a customer's own: what is loaded, what is refused at load and why, and their threads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.integration.runtime_process import JSON, Connection, Runtime, model_python, serve, until
from tests.runtime_lab import environments

pytestmark = pytest.mark.process

BODY = {"dataframe_split": {"columns": ["x"], "data": [[2.0]]}}


@pytest.fixture(scope="module")
def customer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The customer's models, a folder each."""
    folder = tmp_path_factory.mktemp("customer")
    environments.run(model_python(), "customer_models.py", folder)
    return folder


@pytest.mark.case("runtimes-H6")
def test_code_at_a_path_of_its_author_s_is_taken_from_the_model_s_folder(customer: Path, tmp_path: Path) -> None:
    described = (customer / "from-code" / "MLmodel").read_text()
    (path,) = [line.split(": ")[1] for line in described.splitlines() if "model_code_path" in line]
    assert Path(path).is_absolute()
    assert not Path(path).exists()
    with serve(customer / "from-code", tmp_path, "--predictors", "1") as runtime:
        assert runtime.wait_ready().post(BODY).json == {"predictions": [6.0]}


@pytest.mark.case("runtimes-H7")
@pytest.mark.parametrize("model", ["any-names", "one-name"])
def test_the_names_of_parameters_are_the_customer_s_own(customer: Path, tmp_path: Path, model: str) -> None:
    with serve(customer / model, tmp_path, "--predictors", "1") as runtime:
        assert runtime.wait_ready().post(BODY).json == {"predictions": [4.0]}


@pytest.mark.case("runtimes-H7")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("three-names", "ThreeNames.predict(rows, threshold, scale) can't be called: missing a required argument"),
        ("keyword", "NeedsKeyword.predict(context, rows, *, threshold) can't be called: missing a required"),
    ],
)
def test_code_that_can_not_be_called_is_refused_at_load_with_what_fits(
    customer: Path, tmp_path: Path, model: str, reason: str
) -> None:
    with serve(customer / model, tmp_path, "--predictors", "1") as runtime:
        assert runtime.process.wait(60) == 3
        assert reason in runtime.reason
        assert "predict(model_input) or predict(context, model_input)" in runtime.reason


def test_a_parameter_counts_in_a_stream_as_in_a_whole_answer(customer: Path, tmp_path: Path) -> None:
    asked = {"prompt": "hello", "times": 3}
    with serve(customer / "repeats", tmp_path, "--predictors", "1") as runtime:
        assert runtime.wait_ready().post(asked).json == [{"said": "hello"}] * 3
        streamed = runtime.post(asked | {"stream": True}).body
        assert streamed.count(b'data: {"said":"hello"}') == 3
        wrong = runtime.post({"prompt": "hello", "times": "canary", "stream": True})
        assert (wrong.status, wrong.error["field"]) == (400, "times")


@pytest.mark.case("runtimes-H9")
def test_a_setting_of_mlflow_s_that_forbids_a_model_is_the_reason(
    customer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 3.18's MLFLOW_ALLOW_MODEL_CODE_EXECUTION is not published yet; this is the setting of that kind in 3.17.
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    with serve(customer / "one-name", tmp_path / "pickled", "--predictors", "1") as runtime:
        assert runtime.process.wait(60) == 3
        assert "'MLFLOW_ALLOW_PICKLE_DESERIALIZATION'" in runtime.reason
    with serve(customer / "from-code", tmp_path / "code", "--predictors", "1") as runtime:
        assert runtime.wait_ready().post(BODY).json == {"predictions": [6.0]}


@pytest.mark.case("runtimes-J3")
async def test_spans_of_an_exporter_with_a_thread_arrive_from_both_predictors(
    customer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = tmp_path / "spans"
    monkeypatch.setenv("SPANS", str(spans))
    with serve(customer / "traced", tmp_path / "run", "--predictors", "2") as runtime:
        await asyncio.to_thread(runtime.wait_ready)
        assert len(runtime.children()) == len(runtime.predictors()) == 2  # none is a copy: a thread would be lost
        spans.write_text("")  # those of the self-tests
        answers = await asyncio.gather(*(asks(runtime) for _ in range(8)))
        assert answers == [[{"predictions": [2.0]}] * 5] * 8
        wanted = set(map(str, runtime.predictors()))
        await asyncio.to_thread(until, lambda: set(spans.read_text().split()) == wanted, "spans of both", None, 20)


async def asks(runtime: Runtime) -> list[object]:
    async with Connection.open(runtime.port) as connection:
        body = json.dumps(BODY).encode()
        return [(await connection.ask("POST", "/invocations", body, JSON)).json for _ in range(5)]
