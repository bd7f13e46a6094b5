"""Every flavor gives what ``mlflow.pyfunc`` gives, to the last bit, on generated input, by the way that it is served.

A model is served by the shortest way that its own example allowed, so each flavor is compared on the one it takes.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.runtime_process import Runtime
from tests.integration.runtime_reference import Reference, both, raw, same, way
from tests.runtime_lab import environments

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

IRIS = ["sl", "sw", "pl", "pw"]
PATIENTS = ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
# Each flavor's columns, the way that it is expected to be called by, and whether a value may be missing.
CASES = {
    "labels": (IRIS, "sklearn.predict", False),
    "scores": (IRIS, "sklearn.predict_proba", False),
    "linear": (PATIENTS, "sklearn.predict", False),
    "forest": (PATIENTS, "sklearn.predict", True),
    "xgb-regressor": (PATIENTS, "xgboost.Booster.inplace_predict", True),
    "xgb-classes": (IRIS, "xgboost.Booster.inplace_predict", True),
    "xgb-binary": (IRIS, "xgboost.Booster.inplace_predict", True),
    "lgb-regressor": (PATIENTS, "lightgbm.Booster.predict", True),
    "lgb-classes": (IRIS, "lightgbm.Booster.predict", True),
    "lgb-binary": (IRIS, "lightgbm.Booster.predict", True),
    "lgb-booster": (PATIENTS, "lightgbm.Booster.predict", True),
    "cat-regressor": (PATIENTS, "catboost.predict", True),
    "cat-classes": (IRIS, "catboost.predict", True),
}
numbers = st.floats(-1e6, 1e6) | st.integers(-1000, 1000) | st.floats(-8, 8, width=16)
generated = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@functools.cache
def flavors() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="knobless-flavors-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environments.run(environments.flavors_python(), "flavor_models.py", folder)
    return folder


def compared(name: str, folder: Path) -> AbstractContextManager[tuple[Runtime, Reference]]:
    return both(flavors() / name, environments.flavors_python(), folder)


def tables(names: list[str], missing: bool) -> st.SearchStrategy[list[list[Any]]]:
    values = numbers | st.none() if missing else numbers
    return st.lists(st.lists(values, min_size=len(names), max_size=len(names)), min_size=1, max_size=20)


@pytest.mark.parametrize("name", list(CASES))
def test_every_flavor_answers_as_pyfunc_to_the_last_bit(name: str, tmp_path: Path) -> None:
    names, expected_way, missing = CASES[name]
    with compared(name, tmp_path) as (runtime, reference):
        assert way(runtime) == expected_way

        @generated
        @given(tables(names, missing))
        def each(rows: list[list[Any]]) -> None:
            document = {"dataframe_split": {"columns": names, "data": rows}}
            expected = reference.ask(document)
            assert same(runtime.post(document).json["predictions"], expected["body"]["predictions"])
            if expected["raw"] is not None and not any(value is None for row in rows for value in row):
                assert raw(runtime, columns(names, rows)) == expected["raw"]

        each()


def columns(names: list[str], rows: list[list[float]]) -> list[dict[str, Any]]:
    """The rows as v2's tensors, one a column."""
    return [
        {"name": name, "datatype": "FP64", "shape": [len(rows)], "data": [row[at] for row in rows]}
        for at, name in enumerate(names)
    ]


def test_a_table_of_mixed_columns_is_what_pyfunc_answers(tmp_path: Path) -> None:
    with compared("mixed", tmp_path) as (runtime, reference):
        assert way(runtime) == "pyfunc without its own checks"
        row = st.tuples(
            st.integers(0, 100), st.floats(0, 1000), st.sampled_from(["Oslo", "Rome", "Bern"]), st.booleans()
        )

        @generated
        @given(st.lists(row.map(list), min_size=1, max_size=20))
        def each(rows: list[list[Any]]) -> None:
            document = {"dataframe_split": {"columns": ["age", "income", "city", "member"], "data": rows}}
            assert runtime.post(document).json == reference.ask(document)["body"]

        each()


@pytest.mark.parametrize(("name", "width", "bits"), [("array", 10, 64), ("onnx", 4, 32)])
def test_an_array_is_what_pyfunc_answers(name: str, width: int, bits: int, tmp_path: Path) -> None:
    values = st.floats(-1e6, 1e6) if bits == 64 else st.floats(-1000, 1000, width=32)
    with compared(name, tmp_path) as (runtime, reference):
        assert way(runtime) in ("sklearn.predict", "onnxruntime.run")

        @generated
        @given(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=20))
        def each(rows: list[list[float]]) -> None:
            document = {"inputs": rows}
            assert runtime.post(document).json == reference.ask(document)["body"]

        each()
