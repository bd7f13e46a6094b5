"""Amounts of CPU and memory, and references to models: what is read, what is refused, one spelling each."""

from __future__ import annotations

import pytest

from spec.model_reference import parse_model_reference
from spec.quantities import parse_cpu, parse_memory


@pytest.mark.parametrize(
    "text,millicores,canonical",
    [("1", 1000, "1"), ("500m", 500, "500m"), ("0.5", 500, "500m"), ("1500m", 1500, "1500m"), ("2000m", 2000, "2")],
)
def test_an_amount_of_cpu_has_one_spelling(text: str, millicores: int, canonical: str) -> None:
    cpu = parse_cpu(text)
    assert (cpu.millicores, str(cpu)) == (millicores, canonical)


@pytest.mark.parametrize("text", ["", "m", "1 ", "-1", "1e3", "0.0005", "0.5m", "1k", "1,5", ".5", "1.", "１"])
def test_what_is_no_amount_of_cpu_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPU|thousandth"):
        parse_cpu(text)


@pytest.mark.parametrize(
    "text,size,canonical",
    [
        ("1Gi", 1024**3, "1Gi"),
        ("1024Mi", 1024**3, "1Gi"),
        ("1.5Gi", 1536 * 1024**2, "1536Mi"),
        ("2G", 2 * 10**9, "2G"),
        ("1500M", 1_500_000_000, "1500M"),
        ("512Ki", 512 * 1024, "512Ki"),
        ("1073741824", 1024**3, "1Gi"),
        ("1001", 1001, "1001"),
        ("0", 0, "0"),
    ],
)
def test_an_amount_of_memory_has_one_spelling(text: str, size: int, canonical: str) -> None:
    memory = parse_memory(text)
    assert (memory.bytes, str(memory)) == (size, canonical)


@pytest.mark.parametrize("text", ["", "Gi", "1gi", "1GB", "1 Gi", "-1Gi", "1e9", "1K", "1mi", "0.3", "1.5.2Gi"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"memory|bytes"):
        parse_memory(text)


def test_milli_bytes_are_answered_with_what_was_meant() -> None:
    with pytest.raises(ValueError, match="write 512Mi"):
        parse_memory("512m")


def test_a_version_of_a_registered_model_is_a_reference() -> None:
    reference = parse_model_reference("models:/fraud detector.v2/17")
    assert (reference.name, reference.version, reference.model_id) == ("fraud detector.v2", 17, None)
    assert (str(reference), reference.version_text) == ("models:/fraud detector.v2/17", "17")


def test_a_logged_model_is_a_reference() -> None:
    identity = "m-" + "0a" * 16
    reference = parse_model_reference(f"models:/{identity}")
    assert (reference.name, reference.version, reference.model_id) == (None, None, identity)
    assert reference.version_text == identity


@pytest.mark.parametrize(
    "text,words",
    [
        ("models:/iris@champion", "alias"),
        ("models:/iris/1@champion", "alias"),
        ("models:/iris", "names no version"),
        ("models:/", "names no version"),
        ("models:/iris/", "is no version"),
        ("models:/iris/latest", "tomorrow"),
        ("models:/iris/Latest", "tomorrow"),
        ("models:/iris/Production", "stage"),
        ("models:/iris/staging", "stage"),
        ("models:/iris/0", "no version"),
        ("models:/iris/01", "no version"),
        ("models:/iris/-1", "no version"),
        ("models:/iris/1.0", "no version"),
        ("models:/iris/1/data", "no version"),
        ("models:/iris/1?x=y", "no version"),
        ("models:/iris/1\n", "no version"),
        ("models:/ iris/1", "no name"),
        ("models:/ir%69s/1", "no name"),
        ("models:/m-0a0a", "names no version"),
        ("models:/m-" + "0A" * 16, "names no version"),
        ("models://other/iris/1", "names a server"),
        ("models:iris/1", "another scheme"),
        ("Models:/iris/1", "another scheme"),
        ("runs:/0123/model", "file of a run"),
        ("s3://bucket/model", "another scheme"),
        ("file:///tmp/model", "another scheme"),
        ("mlflow-artifacts:/1/model", "another scheme"),
        ("dbfs:/model", "another scheme"),
        ("/tmp/model", "path"),
        ("./model", "path"),
        ("iris", "path"),
        ("", "path"),
    ],
)
def test_a_reference_that_may_mean_another_model_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_model_reference(text)
