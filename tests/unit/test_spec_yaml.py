"""Strict YAML: each trap is an error with line, column and what to write; nothing is read as another value."""

from __future__ import annotations

import pytest

from spec.yaml_text import MAX_CHARACTERS, MAX_DEPTH, read_yaml


def problems(text: str | bytes) -> list[str]:
    return [str(problem) for problem in read_yaml(text, "f.yaml").problems]


@pytest.mark.parametrize(
    "word,value",
    [
        ("iris", "iris"),
        ("0", 0),
        ("-1", -1),
        ("64", 64),
        ("0.5", 0.5),
        ("10.25", 10.25),
        ("true", True),
        ("false", False),
        ('"on"', "on"),
        ("'010'", "010"),
        ('"1e3"', "1e3"),
        ('""', ""),
        ("500m", "500m"),
        ("1Gi", "1Gi"),
        ("models:/iris/1", "models:/iris/1"),
        ("10.0.0.1:5000", "10.0.0.1:5000"),
        ("http://mlflow:5500", "http://mlflow:5500"),
        ("1.2.3", "1.2.3"),
        ("e3", "e3"),
        ("None", "None"),
        ("[1, a, 0.5]", [1, "a", 0.5]),
        ("{}", {}),
    ],
)
def test_an_unambiguous_word_has_its_value(word: str, value: object) -> None:
    document = read_yaml(f"key: {word}\n", "f.yaml")
    assert document.problems == []
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


TRUTH = ["on", "On", "ON", "yes", "Yes", "no", "No", "off", "OFF", "y", "Y", "n", "N", "True", "TRUE", "False"]
NUMBERS = [
    *["1e3", "1E3", "1.0e3", "1e+3", ".5e1", "12e03"],
    *["010", "-010", "00", "007", "0o10", "0x1F", "0b11", "08", "01.5"],
    *["1_000", "1_0.5", "1:30", "1:30:00", "190:20:30", "1:30.5"],
    *["+1", "+1.5", ".5", "5.", "-.5"],
    *[".inf", "-.inf", "+.Inf", ".nan", ".NaN"],
    *["2026-01-02", "2026-01-02T03:04:05Z"],
]
EMPTY = ["", "~", "null", "Null", "NULL"]


@pytest.mark.parametrize("word", TRUTH + NUMBERS + EMPTY)
def test_a_trap_is_a_problem_at_its_place_in_a_value_and_in_a_list(word: str) -> None:
    assert [text.split(": ")[0:2] for text in problems(f"a: 1\nkey: {word}\n")] == [
        [f"f.yaml:2:{6 if word else 5}", "key"]
    ]
    if word:
        assert [text.split(": ")[0:2] for text in problems(f"key: [{word}]\n")] == [["f.yaml:1:7", "key[0]"]]


@pytest.mark.parametrize("word", TRUTH + NUMBERS)
def test_a_trap_as_a_key_is_a_problem(word: str) -> None:
    (problem,) = problems(f"? {word}\n: 1\n")
    assert problem.startswith("f.yaml:1:3: key")


@pytest.mark.parametrize("word,advice", [("yes", 'true, or "yes"'), ("off", 'false, or "off"'), ("010", '"010"')])
def test_a_trap_says_what_to_write_instead(word: str, advice: str) -> None:
    (problem,) = problems(f"key: {word}\n")
    assert advice in problem


@pytest.mark.parametrize(
    "text,place,words",
    [
        ("a: 1\na: 2\n", "2:1", "stands twice, first in line 1"),
        ("a: {b: 1, b: 2}\n", "1:11", "stands twice"),
        ("a: &x 1\n", "1:4", "remove the anchor"),
        ("a: &x 1\nb: *x\n", "2:4", "write the value itself"),
        ("&x a: 1\n", "1:1", "anchor or a tag at a key"),
        ("a: {<<: {b: 1}}\n", "1:5", "merges another mapping"),
        ("a: !!str 1\n", "1:4", "is a tag"),
        ("a: !python/object:os.system x\n", "1:4", "is a tag"),
        ("!!map {a: 1}\n", "1:1", "is a tag"),
        ("a:\n\tb: 1\n", "2:1", "tab"),
        ("a:\t1\n", "1:3", "tab"),
        ("a: 1\n---\nb: 2\n", "2:1", "second document"),
        ("a: 1\n--- \n", "2:1", "second document"),
        ("%YAML 1.1\n---\na: 1\n", "1:1", "directive"),
        ("\ufeffa: 1\n", "1:1", "byte order mark"),
        ("a: \x00\n", "1:4", "U+0000"),
        ("a: b\x85c\n", "1:5", "U+0085"),
        ("a: b\u2028c\n", "1:5", "U+2028"),
        ("a: b\rc: d\n", "1:5", "U+000D"),
        ("a: \ud800\n", "1:4", "U+D800"),
        ('a: "\\ud800"\n', "1:4", "surrogate"),
        ("", "1:1", "empty"),
        ("# only a comment\n", "1:1", "empty"),
        ("- a\n", "1:1", "no mapping"),
        ("iris\n", "1:1", "no mapping"),
        ("a:b\n", "1:1", "no mapping"),
        ("a: b\n  c\n", "1:4", "goes on over lines"),
        ("a: b\n c: d\n", "2:3", "not readable as YAML"),
        ("a: [1\n", "2:1", "not readable as YAML"),
        ("a: 'x\n", "2:1", "not readable as YAML"),
        ("a: @x\n", "1:4", "not readable as YAML"),
        ("? [a]\n: 1\n", "1:3", "a key that is not text"),
        ("1: a\n", "1:1", 'write "1"'),
        ("~: a\n", "1:1", "key has no value"),
        ("a: 1234567890123456789\n", "1:4", "more than 18 digits"),
    ],
)
def test_what_yaml_readers_disagree_on_is_a_problem_with_its_place(text: str, place: str, words: str) -> None:
    told = problems(text)
    assert any(problem.startswith(f"f.yaml:{place}: ") and words in problem for problem in told), told


def test_an_escape_that_names_no_character_is_a_problem() -> None:
    assert "not readable as YAML" in problems('a: "\\UFFFFFFFF"\n')[0]


def test_bytes_that_are_not_utf_8_are_a_problem_with_their_place() -> None:
    (problem,) = problems(b"a: 1\nb: \xe4\n")
    assert problem == "f.yaml:2:4: byte 0xe4 is not UTF-8: save the file as UTF-8"


def test_utf_8_bytes_are_read_as_text() -> None:
    assert read_yaml("a: ä\n".encode(), "f.yaml").value == {"a": "ä"}


def test_windows_line_ends_are_read_as_line_ends() -> None:
    assert read_yaml("a: 1\r\nb: 2\r\n", "f.yaml").value == {"a": 1, "b": 2}


def test_a_text_that_is_too_long_is_a_problem_before_it_is_parsed() -> None:
    (problem,) = problems("a: " + "x" * MAX_CHARACTERS)
    assert f"at most {MAX_CHARACTERS}" in problem


@pytest.mark.parametrize("opening,closing", [("[", "]"), ("{a: ", "}")])
def test_deep_nesting_is_a_problem_and_no_recursion_error(opening: str, closing: str) -> None:
    depth = MAX_DEPTH - 1
    assert problems("a: " + opening * depth + "1" + closing * depth) == []
    assert "nested deeper" in problems("a: " + opening * 5000 + "1" + closing * 5000)[0]


def test_a_billion_laughs_is_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    document = read_yaml("\n".join(lines), "f.yaml")
    assert len(document.problems) == 40 + 2 * 39
    assert document.value["a39"] == [None, None]


def test_all_problems_of_a_text_are_told_at_once() -> None:
    told = problems("a: on\nb: 010\nc: {d: 1, d: 2}\ne: &x 1\nf: *x\n")
    assert [problem.split(":")[1] for problem in told] == ["1", "2", "3", "4", "5"]
