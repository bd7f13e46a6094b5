"""The configuration as text: the golden, what every one must hold, and what makes a reload necessary."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from controllers.gateway import affinity, answers, render, retries, shapes
from controllers.gateway.desired import Desired, Target
from controllers.gateway.settings import QueueClass, Settings
from tests.goldens.gateway.write import DESIRED, HERE, SETTINGS, main

FILES = render.files(DESIRED, SETTINGS)
CONFIG = FILES["haproxy.cfg"]
TOLD = re.findall(r'^answer\("(\w+)"', FILES[shapes.FILE], re.MULTILINE)


def test_every_file_is_as_it_was_last_read_by_a_person(tmp_path: Path) -> None:
    main(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    golden = {path.name: path.read_text() for path in HERE.iterdir() if path.suffix in (".cfg", ".map", ".lua")}
    assert written == golden, "if this change is meant: python tests/goldens/gateway/write.py"


def section(head: str) -> str:
    (found,) = re.findall(rf"^{head}.*?(?=^\S|\Z)", CONFIG, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.case("gateway-A2")
def test_one_thread_keeps_the_limits_exact() -> None:
    assert "nbthread 1 " in section("global")


@pytest.mark.parametrize("backend", ["b00000", "b00001", "b00002"])
def test_every_back_end_tells_429_from_503(backend: str) -> None:
    assert section(f"backend {backend} ").count("http-error status 503") == 1


@pytest.mark.parametrize("fetch", ["nbsrv", "srv_id", "be_conn_free", "queue"])
def test_no_defaults_section_writes_an_error_from_its_back_end(fetch: str) -> None:
    """HAProxy 2.8 crashes on it."""
    shared = re.findall(r"^defaults .*?(?=^\S|\Z)", CONFIG, re.MULTILINE | re.DOTALL)
    errors = [line for text in shared for line in text.splitlines() if line.strip().startswith("http-error")]
    assert errors
    assert not any(re.search(rf"%\[[^]]*\b{fetch}\b", line) for line in errors)


@pytest.mark.case("gateway-A10")
def test_each_server_has_a_limit_and_none_is_unlimited() -> None:
    servers = [line.split() for line in section("backend b00001").splitlines() if line.startswith("  server ")]
    assert [(words[1], words[2], words[4]) for words in servers] == [
        ("iris-00000001-abc", "10.0.0.7:8080", "50"),
        ("iris-00000001-def", "[fd00::7]:8080", "49"),
    ]
    with pytest.raises(ValueError, match="unlimited"):
        render.files(Desired({"b00000": {"p": Target("10.0.0.1", 1, 0)}}), SETTINGS)


@pytest.mark.case("gateway-B11")
@pytest.mark.case("gateway-D4")
def test_a_process_that_leaves_has_more_time_than_the_longest_deadline_and_the_queue_before_it() -> None:
    longest_queue_s = max(each.timeout_ms for each in Settings().queue_classes) / 1000
    assert Settings().drain_s >= 297
    assert f"hard-stop-after {Settings().drain_s}s" in section("global")
    assert longest_queue_s <= 60


def test_the_statistics_port_takes_no_orders_and_the_command_socket_is_ours_alone() -> None:
    assert "stats socket ipv4@*:8404 level user" in section("global")
    assert "stats socket /run/gateway/ctl.sock mode 600 level admin" in section("global")


@pytest.mark.parametrize("backend", ["b00000", "b00001", "b00002"])
def test_every_back_end_may_get_an_endpoint_with_affinity(backend: str) -> None:
    assert section(f"backend {backend} ").count(f"  {affinity.use()}\n") == 1
    assert f'core.register_fetches("{affinity.FETCH}"' in FILES[affinity.FILE]


def test_retries_are_counted_before_any_rule_of_a_back_end_may_refuse() -> None:
    classes = re.findall(r"^defaults queue_.*?(?=^\S|\Z)", CONFIG, re.MULTILINE | re.DOTALL)
    rules = [[line.strip() for line in text.splitlines() if line.startswith("  http-request ")] for text in classes]
    assert [each[0] for each in rules] == [retries.count()] * len(SETTINGS.queue_classes)


def test_the_table_of_retries_has_an_entry_for_each_back_end_that_counts() -> None:
    counting = re.findall(r"^backend \S+ from queue_", CONFIG, re.MULTILINE)
    assert f" size {len(counting)} " in section("backend retries ")


@pytest.mark.case("gateway-D12")
def test_the_log_holds_neither_the_key_nor_what_it_was_made_from() -> None:
    (line,) = [line for line in section("frontend https").splitlines() if line.strip().startswith("log-format")]
    assert "txn.key" not in line
    assert "authorization" not in line


def test_without_a_certificate_the_port_is_plain() -> None:
    plain = render.files(Desired(), dataclasses.replace(SETTINGS, certificate=None))["haproxy.cfg"]
    assert "bind :8443\n" in plain
    assert "ssl crt" not in plain


@pytest.mark.parametrize(
    "change",
    [
        {"queue_classes": (QueueClass(1000, 1), QueueClass(5000, 3))},
        {"queue_classes": (QueueClass(1000, 2), QueueClass(5000, 1))},
        {"max_connections": 100},
        {"body_max_bytes": 1},
    ],
)
def test_what_haproxy_takes_at_start_only_changes_the_fingerprint(change: dict[str, object]) -> None:
    assert render.fingerprint(dataclasses.replace(SETTINGS, **change)) != render.fingerprint(SETTINGS)  # type: ignore[arg-type]


def test_servers_and_maps_do_not_change_the_fingerprint() -> None:
    mark = render.fingerprint(SETTINGS)
    for state in (DESIRED, Desired()):
        assert f"setenv {render.FINGERPRINT} {mark}\n" in render.files(state, SETTINGS)["haproxy.cfg"]


def test_every_answer_of_ours_fits_into_a_json_string_and_an_haproxy_one() -> None:
    every = [each for each in vars(answers).values() if isinstance(each, answers.Answer)]
    assert len(every) >= 15
    for each in (*every, answers.too_large(1)):
        assert not set(each.message) & set('"\\%,()') - set(",()") or each.message.isprintable()
        assert not set(each.message) & set('"\\%')
        assert re.fullmatch(r"[A-Z_]+", each.code)


@pytest.mark.parametrize("each", [answers.OVERLOADED, answers.UNREACHABLE])
def test_what_goes_through_a_conditional_holds_none_of_its_marks(each: answers.Answer) -> None:
    assert not set(each.message) & set(",()'")


@pytest.mark.case("gateway-D14")
def test_each_refusal_has_a_service_that_takes_a_large_body_in_first() -> None:
    used = set(re.findall(r"use-service lua\.(\w+) if \{ var\(txn\.large\) -m bool \} ", CONFIG))
    assert used <= set(TOLD)
    assert used == {answer.name for answer in answers.REFUSALS} | {"too_large", answers.PLAIN_BODY.name}


def test_whatever_the_configuration_or_a_program_tells_a_client_has_its_words() -> None:
    programs = "".join(text for name, text in FILES.items() if name.endswith(".lua"))
    told = re.findall(r"lua\.refusal\((\w+)\)", CONFIG) + re.findall(
        r'(?:refuse\(.*|name = .* or )"(\w+)"\)?', programs
    )
    assert set(told) <= set(TOLD)
    assert {"no_model", "bodies_held", "no_endpoint", "permission_denied"} <= set(told)
    assert len(TOLD) == len(set(TOLD))


def test_the_hot_path_has_one_rule_for_the_base_url_and_waits_for_no_body_that_it_did_not_wait_for() -> None:
    rules = [line.strip() for line in section("frontend https").splitlines() if line.startswith("  http-request ")]
    assert [rule for rule in rules if "/v1/" in rule] == ["http-request allow if { path_beg /v1/ }"]
    assert sum("wait-for-body" in rule for rule in rules) == 2


def test_a_request_from_the_base_url_meets_the_very_rules_of_the_endpoints_own_path() -> None:
    https, inner = (
        [
            line
            for line in section(f"frontend {name} ").splitlines()[1:]
            if not line.startswith(("  bind", "  default_"))
        ]
        for name in ("https", "inner")
    )
    assert https == inner
