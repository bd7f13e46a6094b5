"""The pure parts of the front process: media, deadlines, the line, the end, errors, threads, settings."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.interface.deadline import allowed_s
from runtimes.interface.drain import QUIET_S, keeps_accepting
from runtimes.interface.engine import Api
from runtimes.interface.errors import MOST_PROBLEMS, Problem, RefusedError, error_body, refused
from runtimes.interface.media import Media, parse_media, wanted_form
from runtimes.interface.requests import request_id as kept_request_id
from runtimes.interface.serving import listener
from runtimes.jsonlog import JsonFormatter, request_id
from runtimes.mlflow.launch import predictor_environment
from runtimes.mlflow.settings import parse_settings
from runtimes.quota import cpu, cpu_quota, memory_limit
from runtimes.termination import one_line, reason_of, write_reason

# Media.


@pytest.mark.case("runtimes-A26")
@pytest.mark.parametrize(
    ("content_type", "encoding", "media"),
    [
        (b"application/json", None, Media("json")),
        (b"Application/JSON; charset=UTF-8", None, Media("json")),
        (b'application/json; charset="utf-8"', b"", Media("json")),
        (b"text/csv;charset=utf-8;", b"identity", Media("csv")),
        (b"application/x-parquet", b"gzip", Media("parquet", "gzip")),
        (b"application/vnd.apache.parquet", b"GZIP", Media("parquet", "gzip")),
        (b"application/vnd.apache.arrow.stream", b"zstd", Media("arrow", "zstd")),
    ],
)
def test_media_that_can_be_read(content_type: bytes, encoding: bytes | None, media: Media) -> None:
    assert parse_media(Api.MLFLOW, content_type, encoding) == media


@pytest.mark.case("runtimes-A22", "runtimes-A23")
@pytest.mark.parametrize(
    ("api", "content_type", "encoding", "field"),
    [
        (Api.MLFLOW, None, None, "content-type"),
        (Api.MLFLOW, b"", None, "content-type"),
        (Api.MLFLOW, b"text/plain", None, "content-type"),
        (Api.MLFLOW, b"application/octet-stream", None, "content-type"),
        (Api.MLFLOW, b"application/json; charset=utf-16", None, "content-type"),
        (Api.MLFLOW, b"application/json; format=pandas-split", None, "content-type"),
        (Api.MLFLOW, b"application/json", b"br", "content-encoding"),
        (Api.OPENAI, None, None, "content-type"),
        (Api.OPENAI, b"text/csv", None, "content-type"),
        (Api.V2, b"text/csv", None, "content-type"),
        (Api.V2, None, b"deflate", "content-encoding"),
    ],
)
def test_other_media_are_415_and_name_the_header(
    api: Api, content_type: bytes | None, encoding: bytes | None, field: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_media(api, content_type, encoding)
    assert (caught.value.status, caught.value.field) == (415, field)


@pytest.mark.case("runtimes-A22")
def test_an_unknown_content_type_is_answered_with_those_that_are_taken() -> None:
    with pytest.raises(RefusedError, match=r"application/json, text/csv"):
        parse_media(Api.MLFLOW, b"application/xml", None)


@pytest.mark.parametrize("content_type", [None, b"application/octet-stream", b"application/json"])
def test_v2_clients_need_not_say_what_they_send(content_type: bytes | None) -> None:
    assert parse_media(Api.V2, content_type, None) == Media("json")


def test_an_engine_that_passes_bodies_on_takes_any_type_that_is_named() -> None:
    assert parse_media(Api.MLFLOW, b"image/png; quality=1", None, any_type=True) == Media("other")
    with pytest.raises(RefusedError):
        parse_media(Api.MLFLOW, None, None, any_type=True)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "json"),
        (b"*/*", "json"),
        (b"application/json", "json"),
        (b"Application/vnd.apache.arrow.stream, */*;q=0.1", "arrow"),
    ],
)
def test_an_answer_is_json_unless_arrow_is_asked_for(accept: bytes | None, form: str) -> None:
    assert wanted_form(accept) == form


# Deadlines.


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 60.0), (b"1500", 1.5), (b" 90000 ", 60.0), (b"60000", 60.0), (b"0", 0.0), (b"-5", -0.005)],
)
def test_the_smaller_of_both_deadlines_counts(header: bytes | None, seconds: float) -> None:
    assert allowed_s(60.0, header) == seconds


@pytest.mark.parametrize("header", [b"", b"soon", b"1.5", b"1e3", b"--5", b"9" * 13, "٣".encode()])
def test_a_deadline_that_is_no_whole_number_is_400(header: bytes) -> None:
    with pytest.raises(RefusedError, match="whole number") as caught:
        allowed_s(60.0, header)
    assert caught.value.status == 400


@given(st.floats(0.001, 1000), st.integers(-(10**9), 10**9))
def test_no_header_can_lengthen_the_model_s_deadline(deadline_s: float, remaining_ms: int) -> None:
    assert allowed_s(deadline_s, str(remaining_ms).encode()) <= deadline_s


# The end.


@pytest.mark.parametrize(
    ("elapsed_s", "quiet_s", "in_flight", "accepts"),
    [
        (0.0, 100.0, 0, True),  # however long it was quiet before: removal from the balancer is still on its way
        (QUIET_S + 0.1, 100.0, 0, False),
        (QUIET_S + 0.1, 0.2, 0, True),  # something just arrived, so more may
        (QUIET_S + 0.1, 100.0, 1, True),
        (5.0, 0.0, 7, False),  # never longer than this
    ],
)
def test_accepting_goes_on_until_quiet_but_not_for_ever(
    elapsed_s: float, quiet_s: float, in_flight: int, accepts: bool
) -> None:
    assert keeps_accepting(elapsed_s, quiet_s, in_flight, linger_s=5.0) is accepts


# Errors.


@pytest.mark.case("runtimes-B5")
def test_the_error_shape_has_code_message_request_id_and_a_field_where_there_is_one() -> None:
    with_field = json.loads(error_body(400, "no", "r1", "qty"))
    without = json.loads(error_body(404, "no", "r2"))
    assert with_field == {"error": {"code": "BAD_REQUEST", "message": "no", "field": "qty", "request_id": "r1"}}
    assert without == {"error": {"code": "NOT_FOUND", "message": "no", "request_id": "r2"}}


@pytest.mark.case("runtimes-B5", "runtimes-I5")
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", "bad_request"),
        (404, "not_found_error", "not_found"),
        (418, "invalid_request_error", "bad_request"),
        (429, "rate_limit_error", "too_many_requests"),
        (500, "server_error", "internal_error"),
        (504, "server_error", "deadline_exceeded"),
    ],
)
def test_an_error_of_openai_s_api_has_openai_s_shape(status: int, kind: str, code: str) -> None:
    error = json.loads(error_body(status, "no", "r1", "stream", Api.OPENAI))
    assert error == {"error": {"message": "no", "type": kind, "param": "stream", "code": code}}


@pytest.mark.case("runtimes-B5")
def test_an_error_of_v2_is_one_text() -> None:
    assert json.loads(error_body(400, "no", "r1", "x", Api.V2)) == {"error": "no"}


def test_all_problems_are_told_at_once_up_to_a_cap() -> None:
    problems = [Problem(f"p{i}", f"f{i}") for i in range(MOST_PROBLEMS + 5)]
    refusal = refused(problems)
    assert refusal.field == "f0"
    assert refusal.message.endswith("p9; 5 more")


@pytest.mark.parametrize("given_id", [b"abc-123", b"x" * 128, b"a:b/c=d@e.f_g+h"])
def test_a_safe_request_id_is_kept(given_id: bytes) -> None:
    assert kept_request_id(given_id) == given_id.decode()


@pytest.mark.parametrize("given_id", [None, b"", b"x" * 129, b"a b", b'"', b"a\r\nb", "ä".encode()])
def test_an_unsafe_or_missing_request_id_is_replaced(given_id: bytes | None) -> None:
    made = kept_request_id(given_id)
    assert len(made) == 32
    assert made.isalnum()
    assert made != kept_request_id(given_id)


# Threads and CPUs.

V2 = {"/proc/self/cgroup": "0::/kubepods/pod1/c1\n"}
V1 = {"/proc/self/cgroup": "11:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n"}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({**V2, "/sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "150000 100000\n"}, 1.5),
        ({**V2, "/sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),  # a container sees only its own subtree
        (
            {
                **V2,
                "/sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000",
                "/sys/fs/cgroup/kubepods/pod1/cpu.max": "300000 100000",
                "/sys/fs/cgroup/kubepods/cpu.max": "200000 100000",
            },
            2.0,  # the tightest of all above counts
        ),
        ({**V2, "/sys/fs/cgroup/kubepods/pod1/c1/cpu.max": "max 100000"}, None),
        (
            {
                **V1,
                "/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "250000",
                "/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
            },
            2.5,
        ),
        (
            {
                **V1,
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_the_quota_is_read_in_both_cgroup_layouts(files: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(files.get) == quota


V1_MEMORY = {"/proc/self/cgroup": "4:memory:/pod/x\n2:cpu:/pod/x\n0::/\n"}
V1_LIMIT = "/sys/fs/cgroup/memory/memory.limit_in_bytes"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "5368709120\n"}, 5 << 30),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/memory.max": "9\n", "/sys/fs/cgroup/memory.max": "8\n"}, 8),
        ({**V1_MEMORY, V1_LIMIT: "5368709120\n"}, 5 << 30),
        ({**V1_MEMORY, V1_LIMIT: "9223372036854771712\n"}, None),
        ({**V1_MEMORY, "/sys/fs/cgroup/memory/pod/x/memory.limit_in_bytes": "7\n", V1_LIMIT: "9\n"}, 7),
        ({}, None),
    ],
)
def test_the_memory_limit_is_read_in_both_cgroup_layouts(files: dict[str, str], limit: int | None) -> None:
    assert memory_limit(files.get) == limit


@pytest.mark.parametrize(
    ("stated", "quota", "affinity", "predictors", "threads"),
    [
        (None, 0.5, 64, 1, 1),
        (None, 2.0, 64, 2, 1),
        (None, 2.5, 64, 3, 1),
        (1, 4.0, 64, 1, 4),
        (2, 4.5, 64, 2, 2),
        (None, None, 8, 8, 1),
        (None, 16.0, 2, 2, 1),  # a quota above the CPUs that may be used is no quota
        (8, 0.5, 64, 8, 1),
    ],
)
def test_predictors_and_threads_fit_into_the_quota(
    stated: int | None, quota: float | None, affinity: int, predictors: int, threads: int
) -> None:
    sized = cpu(stated, quota, affinity)
    assert (sized.predictors, sized.threads) == (predictors, threads)


def test_thread_limits_stand_before_any_import_and_an_explicit_one_wins() -> None:
    made = predictor_environment({"OMP_NUM_THREADS": "7", "HOME": "/tmp"}, threads=2)
    assert (made["OMP_NUM_THREADS"], made["OPENBLAS_NUM_THREADS"], made["MKL_NUM_THREADS"]) == ("7", "2", "2")
    assert (made["HOME"], made["ORT_DISABLE_TELEMETRY"], made["MLFLOW_DISABLE_TELEMETRY"]) == ("/tmp", "1", "true")


# Sockets, settings, reasons, logs.


@pytest.mark.case("runtimes-D14", "runtimes-D15")
def test_an_accepted_connection_has_nodelay_whatever_the_event_loop_does() -> None:
    with listener("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        server.setblocking(True)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_settings_have_defaults_for_all_but_the_model_and_its_python() -> None:
    settings = parse_settings(["--model", "/model", "--model-python", "/opt/model/bin/python"])
    assert (settings.model, settings.port, settings.deadline_s, settings.predictors) == (
        Path("/model"),
        8080,
        60.0,
        None,
    )
    assert settings.max_body_bytes == 16 * 1024 * 1024


@pytest.mark.parametrize("flag", [["--deadline-s", "0"], ["--predictors", "0"], ["--deadline-s", "nan"]])
def test_settings_that_make_no_sense_end_the_process(flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_settings(["--model", "/model", "--model-python", "/p", *flag])
    assert flag[0] in capsys.readouterr().err


def test_a_reason_is_one_line_in_the_file_that_kubernetes_reads(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    write_reason("a\nb   c" + "x" * 2000, {"KNOBLESS_TERMINATION_LOG": str(log)})
    assert log.read_text().startswith("a b cx")
    assert log.read_text().count("\n") == 1
    assert len(log.read_text()) <= 1001


def test_no_place_for_a_reason_is_not_an_error(tmp_path: Path) -> None:
    write_reason("why", {"KNOBLESS_TERMINATION_LOG": str(tmp_path / "missing" / "log")})
    write_reason("why", {"KNOBLESS_TERMINATION_LOG": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_an_exception_becomes_its_type_and_what_it_says() -> None:
    assert reason_of(ValueError("two\nlines")) == "ValueError: two lines"
    assert reason_of(KeyError()) == "KeyError"
    assert one_line("x" * 50, longest=10) == "xxxxxxx..."


def test_a_log_line_is_json_with_its_fields_and_the_request_it_belongs_to() -> None:
    record = logging.makeLogRecord({"name": "a.b", "levelname": "WARNING", "msg": "m %s", "args": ("x",), "pid": 7})
    token = request_id.set("r1")
    try:
        line = json.loads(JsonFormatter().format(record))
    finally:
        request_id.reset(token)
    assert (line["level"], line["logger"], line["message"]) == ("WARNING", "a.b", "m x")
    assert (line["pid"], line["request_id"]) == (7, "r1")
    assert "request_id" not in json.loads(JsonFormatter().format(record))
