"""The whole HAProxy configuration as text: what the runtime API can't set, and what a restart must find.

Pure, golden-tested. Its one idea: the file always holds the present servers, limits and maps, so a HAProxy
that starts serves at once and within its limits, whether or not a control plane lives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from controllers.gateway import access_log, affinity, answers, openai, retries, shapes
from controllers.gateway.assignment import spares
from controllers.gateway.backlog import JITTER_S, WAIT_MIN_S
from controllers.gateway.desired import (
    ACCESS,
    KEYS,
    MAPS,
    NOWHERE,
    PATHS,
    ROUTES,
    WAITS,
    Desired,
    Target,
    map_file,
)
from controllers.gateway.settings import Settings

PREFIX: Final = "serving-endpoints"
POST_PATHS: Final = ("invocations",)
GET_PATHS: Final = ("ping", "health", "version")
# The protocols that have many paths, of which the pod knows those that it has; no segment is empty or a dot.
_PROTOCOL_PATHS: Final = "^v[12](/[^/.][^/]*)+$"
HEADER_DEADLINE: Final = "x-knobless-deadline-ms"
FINGERPRINT: Final = "KNOBLESS_FINGERPRINT"
_SAFE_ID: Final = "^[A-Za-z0-9._:/+=@-]{1,128}$"  # the interface's, in the pods
# A body up to this fits into a buffer beside its headers, and is waited for before anything is refused.
_SMALL_BYTES: Final = 8192
# What is taken in and dropped of a refused body: four times the largest that is allowed, for ten seconds.
_DRAIN_BODIES: Final = 4
_DRAIN_MOST_S: Final = 10


def files(desired: Desired, settings: Settings) -> dict[str, str]:
    """Each file of the configuration by its name in the run folder."""
    config = _config(desired, settings, fingerprint(settings))
    maps = {map_file(name): _map(desired.maps[name]) for name in MAPS} | {map_file(WAITS): ""}
    return {settings.config.name: config} | _programs(settings) | maps


def _programs(settings: Settings) -> dict[str, str]:
    """What HAProxy runs in Lua, in the order of loading."""
    too_large = answers.too_large(settings.body_max_bytes)
    every = (*answers.REFUSALS, too_large, *answers.BASE_URL, *answers.INSTEAD, answers.OVERLOADED)
    most_bytes = settings.body_max_bytes * _DRAIN_BODIES
    return {
        shapes.FILE: shapes.lua(every, PREFIX, most_bytes, _DRAIN_MOST_S, JITTER_S),
        openai.FILE: openai.lua(PREFIX, settings.run, settings.body_max_bytes),
        retries.FILE: retries.LUA,
        affinity.FILE: affinity.LUA,
    }


def fingerprint(settings: Settings) -> str:
    """Of all that HAProxy takes at start only; a running one with another fingerprint needs a reload."""
    text = _config(Desired(), settings, "") + "".join(_programs(settings).values())
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _config(desired: Desired, settings: Settings, mark: str) -> str:
    sections = "\n\n".join(
        (
            _global(settings, mark),
            _base(),
            _https(settings),
            _inner(settings),
            _exporter(settings),
            *(_queue_class(each.timeout_ms) for each in settings.queue_classes),
            *(_section(head, lines) for head, lines in _base_url(settings)),
            f"backend {NOWHERE} from queue_{settings.queue_classes[0].timeout_ms}",
            retries.table(1 + sum(each.backends for each in settings.queue_classes)),  # 1: `NOWHERE`
            *_backends(desired, settings),
        )
    )
    return sections + "\n"


def _map(entries: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in sorted(entries.items()))


def _section(head: str, lines: Iterable[str]) -> str:
    return "\n".join([head, *(f"  {line}" for line in lines)])


def _global(settings: Settings, mark: str) -> str:
    listen = f"ipv4@{settings.address or '*'}:{settings.stats_port}"
    return _section(
        "global",
        [
            f"maxconn {settings.max_connections}",
            "nbthread 1  # the limits are exact with one",
            f"hard-stop-after {settings.drain_s}s",
            # An answer of all statistics is a hundred tasks. 200 at once, the default, are run before any request is
            # looked at; with 20, one waits a sixth as long. Not less: with 5, requests starve.
            "tune.runqueue-depth 20",
            "default-path config",
            *(f"lua-load {name}" for name in _programs(settings)),
            f"setenv {FINGERPRINT} {mark}",
            "log stdout format raw local0 info",
            f"stats socket {settings.control_socket} mode 600 level admin expose-fd listeners",
            f"stats socket {listen} level user",
            "stats timeout 60s",
            "stats maxconn 32",
            "ssl-load-extra-del-ext  # tls.crt and tls.key, as a Secret has them",
            "ssl-default-bind-options ssl-min-ver TLSv1.2",
        ],
    )


def _base() -> str:
    return _section(
        "defaults base",
        [
            "mode http",
            "timeout connect 300ms  # four tries of one pod that refuses take 0.9 s",
            "timeout http-request 10s",
            "timeout http-keep-alive 60s",
            "timeout client 60s  # without a byte while a body is sent",
            "timeout server 300s",
            "timeout tunnel 1h",
            *(answers.instead(answer) for answer in answers.INSTEAD),
        ],
    )


def _https(settings: Settings) -> str:
    tls = f" ssl crt {settings.certificate} alpn h2,http/1.1" if settings.certificate else ""
    bind = f"bind {settings.address}:{settings.https_port}{tls}"
    return _frontend("https", bind, settings, f"default_backend {openai.BACKEND}")


def _inner(settings: Settings) -> str:
    """The same once more, for requests that come from the base URL; counted apart."""
    return _frontend("inner", f"bind unix@{settings.run / openai.SOCKET} mode 600 accept-proxy", settings)


def _base_url(settings: Settings) -> Iterable[tuple[str, Iterable[str]]]:
    return openai.sections(settings.run, answers.too_large(settings.body_max_bytes), settings.body_max_bytes)


def _frontend(name: str, bind: str, settings: Settings, *more: str) -> str:
    return _section(
        f"frontend {name} from base",
        [
            bind,
            "log global",
            "option dontlognull",
            "option idle-close-on-response  # a process that leaves closes no connection that a request may be on",
            f"log-format {access_log.request()}",
            f"error-log-format {access_log.no_request()}",
            *_identity(),
            *_body(),
            *_admission(settings),
            *_forwarding(),
            *more,
        ],
    )


def _identity() -> Iterable[str]:
    safe = f"{{ req.fhdr(x-request-id) -m reg {_SAFE_ID} }} {{ req.fhdr_cnt(x-request-id) eq 1 }}"
    yield "http-request set-var(txn.id) uuid()"
    yield f"http-request set-var(txn.id) req.fhdr(x-request-id) if {safe}"
    yield "http-after-response set-header x-request-id %[var(txn.id)]"
    yield "http-request set-var(txn.path) path,bytes(0,256)"


def _body() -> Iterable[str]:
    """Small bodies are waited for; large ones are marked, unless the client waits to be asked for it."""
    length = f"{{ req.body_size gt {_SMALL_BYTES} }} or {{ req.fhdr(transfer-encoding) -m found }}"
    yield f"http-request set-var(txn.large) bool(true) if {length}"
    yield "http-request set-var(txn.large) bool(false) if { req.fhdr(expect) -m found }"
    yield "http-request wait-for-body time 10s if !{ var(txn.large) -m found }"


def _admission(settings: Settings) -> Iterable[str]:
    """Everything that is refused before a slot is taken, cheapest proof first."""
    bearer = 'if { req.hdr(authorization) -m beg -i "bearer " }'
    yield f"http-request set-var(txn.key) req.hdr(authorization),field(2,' '),sha2(256),hex {bearer}"
    yield f"http-request set-var(txn.team) var(txn.key),map({map_file(KEYS)})"
    yield from answers.refuse(answers.UNAUTHENTICATED, "!{ var(txn.team) -m found }")
    yield f"http-request allow if {{ path_beg {openai.BASE} }}"
    yield f"http-request set-var(txn.endpoint) path,field(3,/) if {{ path_beg /{PREFIX}/ }}"
    yield "http-request set-var(txn.part) path,field(4,/,0)"
    yield from answers.refuse(answers.NO_PATH, "!{ var(txn.endpoint) -m found }")
    yield f"http-request set-var(txn.route) var(txn.endpoint),map({map_file(ROUTES)})"
    yield from answers.refuse(answers.NO_ENDPOINT, "!{ var(txn.route) -m found }")
    allowed = f"{{ var(txn.key),concat(/,txn.endpoint),map({map_file(ACCESS)}) -m found }}"
    yield from answers.refuse(answers.PERMISSION_DENIED, f"!{allowed}")
    paths = " ".join((*POST_PATHS, *GET_PATHS))
    unknown = f"!{{ var(txn.part) -m str {paths} v2 }} !{{ var(txn.part) -m reg {_PROTOCOL_PATHS} }}"
    undeclared = f"!{{ path,field(3,/,0),map({map_file(PATHS)}) -m found }}"
    yield from answers.refuse(answers.NO_PATH, f"{unknown} {undeclared}")
    yield from _methods()
    too_large = answers.too_large(settings.body_max_bytes)
    yield from answers.refuse(too_large, f"{{ req.body_size gt {settings.body_max_bytes} }}")


def _methods() -> Iterable[str]:
    post, get = (f"{{ var(txn.part) -m str {' '.join(paths)} }}" for paths in (POST_PATHS, GET_PATHS))
    yield from answers.refuse(answers.POST_ONLY, f"{post} !{{ method POST }}")
    yield from answers.refuse(answers.GET_ONLY, f"{get} !{{ method GET HEAD }}")
    yield from answers.refuse(answers.READ_OR_POST, "!{ method GET HEAD POST }")
    yield from answers.refuse(answers.LENGTH_REQUIRED, "{ method POST } !{ req.fhdr(content-length) -m found }")


def _forwarding() -> Iterable[str]:
    yield "http-request del-header authorization"
    yield "http-request del-header x-knobless- -m beg"
    yield "http-request set-header x-request-id %[var(txn.id)]"
    yield "http-request set-var(txn.queue_max) var(txn.route),field(2,/)"
    yield "http-request set-var(txn.deadline_ms) var(txn.route),field(3,/)"
    yield f"http-request set-header {HEADER_DEADLINE} %[var(txn.deadline_ms)]"
    yield "http-request set-path /%[var(txn.part)]"
    yield "http-request wait-for-body time 10s  # a slow sender holds no slot; whole up to 16 kB"
    yield "use_backend %[var(txn.route),field(1,/)]"


def _exporter(settings: Settings) -> str:
    scope = "scope=global&scope=frontend&scope=server&no-maint"  # empty back ends are many and say nothing
    return _section(
        "frontend exporter from base",
        [
            f"bind {settings.address}:{settings.exporter_port}",
            "monitor-uri /healthz",
            f"http-request set-query {scope} if {{ path /metrics }} {{ query -m len 0 }}",
            "http-request use-service prometheus-exporter if { path /metrics }",
            "http-request return status 404",
        ],
    )


def _queue_class(timeout_ms: int) -> str:
    """What back ends of one queue timeout share. (A `defaults` with rules can't be inherited from again.)"""
    own = "!{ var(txn.pod) -m found }"
    full = "{ queue,sub(txn.queue_max) ge 0 } { be_conn_free le 0 }"
    wait = f"set-var(txn.wait_s) be_name,map_str_int({map_file(WAITS)},{WAIT_MIN_S})"
    later = f"if {{ status 429 503 }} {own}"
    return _section(
        f"defaults queue_{timeout_ms} from base",
        [
            "balance leastconn",
            "http-reuse always",
            "retries 3",
            "option redispatch 1",
            "option abortonclose",
            f"timeout queue {timeout_ms}ms",
            retries.count(),
            "http-request set-var(txn.untried) int(1)",
            f"http-request {wait} if {{ var(txn.large) -m bool }}  # for the services that drain its body",
            *answers.refuse(answers.NOT_READY, "{ nbsrv eq 0 }"),
            *answers.refuse(answers.QUEUE_FULL, full),
            "http-request set-timeout server var(txn.deadline_ms)",
            "http-response set-var(txn.pod) int(1)",
            f"http-after-response set-status 429 if {{ status 503 }} {own} {{ var(txn.full) -m bool }}",
            f"http-after-response {wait} {later}",
            f"http-after-response set-header retry-after %[rand({JITTER_S}),add(txn.wait_s)] {later}",
        ],
    )


def _backends(desired: Desired, settings: Settings) -> Iterable[str]:
    for timeout_ms, names in spares(settings.queue_classes).by_timeout:
        for name in names:
            servers = desired.servers.get(name, {})
            own = [answers.overloaded_or_unreachable(), affinity.use()]
            lines = [_server(server, target) for server, target in sorted(servers.items())]
            yield _section(f"backend {name} from queue_{timeout_ms}", [*own, *lines])


def _server(name: str, target: Target) -> str:
    host = f"[{target.address}]" if ":" in target.address else target.address
    if target.maxconn < 1:
        raise ValueError(f"server {name}: maxconn {target.maxconn} would mean unlimited")
    weight = f" weight {target.weight}" if target.weight != 1 else ""
    return f"server {name} {host}:{target.port} maxconn {target.maxconn}{weight}"
