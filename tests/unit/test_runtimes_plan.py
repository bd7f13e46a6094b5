"""The plan: any body becomes the blocks that its signature fixes, by the fast way as by the closer look, or a 400."""

from __future__ import annotations

import json
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import Form, layout_from_plain, layout_to_plain
from runtimes.mlflow.plan import LARGEST_READ_HERE, Plan, Work
from runtimes.mlflow.signature import Signature, parse_signature
from runtimes.mlflow.values import unpack

COLUMNS = {
    "qty": "long", "price": "double", "ratio": "float", "city": "string", "member": "boolean", "seen": "datetime",
    "small": "integer",
}  # fmt: skip
OPTIONAL = {"score": "double", "count": "long", "note": "string", "flag": "boolean"}
ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Oslo", "member": False, "seen": "2024-03-01T10:00:00", "small": 1,
    "score": 0.5, "count": 6, "note": "a", "flag": True,
}  # fmt: skip


def signature() -> Signature:
    specs = [{"type": kind, "name": name} for name, kind in COLUMNS.items()]
    specs += [{"type": kind, "name": name, "required": False} for name, kind in OPTIONAL.items()]
    return parse_signature(specs, [{"name": "k", "type": "long"}])


PLAN = Plan(signature(), loads=orjson.loads)
EXACT = Plan(signature())  # parses with the standard library
EXACT._fast = {}  # and looks at each value


def read(document: Any, plan: Plan = PLAN) -> Work:
    return plan.read(document if isinstance(document, bytes) else json.dumps(document).encode(), "json")


def values(work: Work) -> dict[str, list[Any]]:
    """Each column's values as they travel."""
    found: dict[str, list[Any]] = {}
    for block, buffer in zip(work.layout.blocks, work.buffers, strict=True):
        flat = json.loads(bytes(buffer)) if block.item_bytes is None else unpack(block.code.replace("M8", "i8"), buffer)
        found |= {str(name): flat[at :: len(block.names)] for at, name in enumerate(block.names)}
    return found


def outcome(body: bytes, plan: Plan) -> Any:
    try:
        work = plan.read(body, "json")
    except RefusedError as refused:
        return refused.status, refused.message, refused.field
    return work.layout, [bytes(buffer) for buffer in work.buffers], work.rows, work.params, work.client_request_id


# The usual body.


def every_form(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = list(ROW)
    turned = names[::-1]
    return [
        {"dataframe_split": {"columns": names, "data": [[row[name] for name in names] for row in rows]}},
        {"dataframe_split": {"columns": turned, "data": [[row[name] for name in turned] for row in rows]}},
        {"dataframe_split": {"columns": [*names, "x"], "data": [[*(row[name] for name in names), 1] for row in rows]}},
        {"dataframe_records": [dict(reversed(row.items())) for row in rows]},
        {"instances": rows},
        {"inputs": rows},
        {"inputs": {name: [row[name] for row in rows] for name in turned}},
    ]


@pytest.mark.case("runtimes-A16", "runtimes-A19")
@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_table_is_the_same_blocks_in_every_form_and_takes_the_usual_layout(count: int) -> None:
    rows = [ROW | {"qty": number, "city": f"c{number}"} for number in range(count)]
    works = [read(document) for document in every_form(rows)]
    assert all(work.layout is PLAN.tables.layout for work in works if PLAN.tables)
    assert len({b"|".join(map(bytes, work.buffers)) for work in works}) == 1
    assert values(works[0])["qty"] == list(range(count))
    assert values(works[0])["city"] == [f"c{number}" for number in range(count)]


def test_the_widest_values_come_first_so_that_each_block_is_aligned() -> None:
    work = read({"dataframe_records": [ROW] * 3})
    sizes = [block.item_bytes or 1 for block in work.layout.blocks]
    offsets = [sum(len(buffer) for buffer in work.buffers[:at]) for at in range(len(sizes))]
    assert all(offset % size == 0 for offset, size in zip(offsets, sizes, strict=True))
    assert {(block.code, block.names) for block in work.layout.blocks} >= {("f8", ("price", "score"))}


def test_a_layout_survives_its_way_to_the_predictor() -> None:
    layout = read({"dataframe_records": [ROW]}).layout
    assert layout_from_plain(json.loads(json.dumps(layout_to_plain(layout)))) == layout


# The two ways agree.

anything = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "9.5", "3", "Oslo", "2024-03-01", "2024-03-01T10:00:00Z", "1e400", [1], {"a": 1}])
)  # fmt: skip
rows_of_anything = st.lists(
    st.fixed_dictionaries(ROW.keys() and {name: st.just(value) | anything for name, value in ROW.items()}),
    min_size=1,
    max_size=3,
)


@given(rows_of_anything, st.integers(0, 6))
def test_the_fast_way_and_the_closer_look_agree_on_every_table(rows: list[dict[str, Any]], form: int) -> None:
    body = json.dumps(every_form(rows)[form]).encode()
    assert outcome(body, PLAN) == outcome(body, EXACT)


@given(st.dictionaries(st.sampled_from(list(ROW)), anything), st.sampled_from(list(ROW)))
def test_a_record_without_a_column_is_the_same_by_both_ways(changes: dict[str, Any], left_out: str) -> None:
    record = {name: value for name, value in (ROW | changes).items() if name != left_out}
    body = json.dumps({"dataframe_records": [ROW, record]}).encode()
    assert outcome(body, PLAN) == outcome(body, EXACT)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_request_or_a_400_by_both_ways(body: bytes) -> None:
    assert outcome(body, PLAN) == outcome(body, EXACT)


# Values that a fast parser would change.


@pytest.mark.case("runtimes-A2")
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**30])
@pytest.mark.parametrize("form", range(7))
def test_an_integer_beyond_64_bits_is_refused_and_never_rounded_into_range(number: int, form: int) -> None:
    with pytest.raises(RefusedError, match=r"column `qty`, row 0: out of the range of a 64-bit integer"):
        read(every_form([ROW | {"qty": number}])[form])


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1])
def test_the_largest_integers_arrive_exactly(number: int) -> None:
    assert values(read({"inputs": [ROW | {"qty": number}]}))["qty"] == [number]


@pytest.mark.case("runtimes-A3")
def test_a_float_too_large_for_its_column_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"column `ratio`, row 1: out of the range of its type"):
        read({"dataframe_records": [ROW, ROW | {"ratio": 1e39}]})
    with pytest.raises(RefusedError, match="64-bit float"):
        read(json.dumps({"dataframe_records": [ROW]}).replace("9.5", "1e400").encode())


@pytest.mark.case("runtimes-A20")
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_what_is_not_json_is_refused_with_what_to_send(literal: str) -> None:
    with pytest.raises(RefusedError, match="is not JSON; send null"):
        read(json.dumps({"dataframe_records": [ROW]}).replace("9.5", literal).encode())


@pytest.mark.parametrize("value", [True, "true", [], {}])
def test_a_boolean_is_no_number_by_the_fast_way_either(value: Any) -> None:
    for name in ("qty", "price", "ratio", "small"):
        with pytest.raises(RefusedError, match=f"column `{name}`, row 0"):
            read({"dataframe_records": [ROW | {name: value}]})


# What is missing.


@pytest.mark.case("runtimes-A5")
def test_a_null_in_an_optional_integer_column_is_missing_and_its_neighbour_stays_an_integer() -> None:
    work = read({"dataframe_records": [ROW | {"count": None}, ROW | {"count": 6}]})
    assert values(work)["count"] == [None, 6]
    assert {block.code for block in work.layout.blocks if "count" in block.names} == {"Int64"}


@pytest.mark.case("runtimes-A9")
@pytest.mark.parametrize(("name", "code"), [("note", "js"), ("flag", "js")])
def test_a_missing_text_or_boolean_is_none_and_never_a_float(name: str, code: str) -> None:
    work = read({"inputs": [ROW | {name: None}]})
    assert values(work)[name] == [None]
    assert {block.code for block in work.layout.blocks if name in block.names} == {code}


def test_a_missing_number_is_nan_and_a_missing_time_is_not_a_time() -> None:
    specs = [{"type": "double", "name": "x"}, {"type": "datetime", "name": "t", "required": False}]
    work = read({"dataframe_records": [{"x": None, "t": None}]}, Plan(parse_signature(specs, None), loads=orjson.loads))
    packed = dict(zip([block.code for block in work.layout.blocks], work.buffers, strict=True))
    assert struct.unpack("<d", packed["f8"])[0] != struct.unpack("<d", packed["f8"])[0]
    assert struct.unpack("<q", packed["M8"])[0] == -(2**63)


def test_an_optional_column_that_nobody_sent_is_not_there() -> None:
    required = {name: ROW[name] for name in COLUMNS}
    work = read({"dataframe_records": [required]})
    assert set(values(work)) == set(COLUMNS)
    assert PLAN.tables is not None
    assert work.layout != PLAN.tables.layout


@pytest.mark.case("runtimes-A11", "runtimes-A12")
def test_times_of_every_spelling_are_the_same_nanoseconds() -> None:
    spellings = ["2024-03-01T10:00:00", "2024-03-01T10:00:00Z", "2024-03-01T12:00:00+02:00", "2024-03-01 10:00"]
    work = read({"dataframe_records": [ROW | {"seen": text} for text in spellings]})
    assert set(values(work)["seen"]) == {1709287200 * 10**9}
    assert values(read({"inputs": [ROW | {"seen": "2024-03-01"}]}))["seen"] == [1709251200 * 10**9]


# What stands beside the form.


def test_parameters_an_index_and_the_client_s_own_id_come_along() -> None:
    split = {"columns": list(ROW), "data": [list(ROW.values())], "index": [7]}
    work = read({"dataframe_split": split, "params": {"k": 2.0}, "client_request_id": "mine"})
    assert (work.params, work.index, work.client_request_id, work.alone) == ({"k": 2}, [7], "mine", True)
    plain = read({"dataframe_records": [ROW], "client_request_id": "mine"})
    assert (plain.client_request_id, plain.alone) == ("mine", False)


@pytest.mark.case("runtimes-B8")
def test_parameters_and_columns_are_refused_in_one_answer() -> None:
    with pytest.raises(RefusedError) as caught:
        read({"dataframe_records": [ROW | {"qty": "x", "price": "y"}], "params": {"kk": 1}})
    assert all(part in caught.value.message for part in ("`qty`, row 0", "`price`, row 0", "no parameter `kk`"))
    assert caught.value.field == "qty"


@pytest.mark.case("runtimes-B1")
@given(st.sampled_from(list(ROW)), st.sampled_from(["records", "split", "inputs"]))
def test_no_refusal_repeats_what_was_sent(name: str, form: str) -> None:
    row = {key: "canary-4242" for key in ROW if key != name}
    document = {
        "records": {"dataframe_records": [row]},
        "split": {"dataframe_split": {"columns": list(row), "data": [list(row.values())]}},
        "inputs": {"inputs": {key: [value] for key, value in row.items()}},
    }[form]
    with pytest.raises(RefusedError) as caught:
        read(document)
    assert "canary" not in caught.value.message


# What is read elsewhere.


def test_a_long_body_and_one_without_a_signature_go_on_unread() -> None:
    long = json.dumps({"dataframe_records": [ROW] * (LARGEST_READ_HERE // 100)}).encode()
    for plan, body in ((PLAN, long), (Plan(Signature()), b"{"), (Plan(Signature(raw=True)), b"{")):
        work = plan.read(body, "json")
        assert (work.layout.form, work.buffers, work.rows, work.alone) == (Form.BODY, [body], None, True)


def test_what_the_predictor_reads_itself_is_what_the_front_would_have_read() -> None:
    body = json.dumps({"dataframe_records": [ROW, ROW | {"count": None}]}).encode()
    here, there = PLAN.read_whole(body, "json"), Plan(signature()).read_whole(body, "json")
    assert (here.layout, here.buffers) == (there.layout, there.buffers)


def test_csv_spells_the_same_row() -> None:
    text = ",".join(ROW) + "\n" + ",".join("" if name == "count" else str(value) for name, value in ROW.items()) + "\n"
    work = PLAN.read(text.encode(), "csv")
    assert values(work) == values(read({"dataframe_records": [ROW | {"count": None}]}))


def test_no_rows_are_no_rows_in_every_form() -> None:
    for document in (
        {"dataframe_records": []},
        {"inputs": []},
        {"dataframe_split": {"columns": list(ROW), "data": []}},
    ):
        assert read(document).rows == 0


def test_one_text_is_a_row_for_a_model_that_takes_texts() -> None:
    texts = Plan(parse_signature([{"type": "string"}], []), loads=orjson.loads)
    assert outcome(b'{"inputs": "a quiet harbour"}', texts) == outcome(b'{"inputs": ["a quiet harbour"]}', texts)


def test_a_list_in_inputs_is_one_value_where_a_column_holds_lists() -> None:
    """As MLflow has it: without such a column it is that many rows."""
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    chat = Plan(parse_signature([{"type": "array", "items": {"type": "any"}, "name": "messages"}], []))
    work = read({"inputs": {"messages": messages}}, chat)
    assert (work.rows, values(work)) == (1, {"messages": [messages]})
