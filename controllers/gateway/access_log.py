"""What HAProxy writes of each request: one line of JSON in the shape of all our logs, with neither key nor body."""

from __future__ import annotations

from collections.abc import Mapping


def request() -> str:
    """One JSON line a request; neither key nor body."""
    return _json_format(
        {
            "level": '"INFO"',
            "logger": '"gateway.access"',
            "message": '"request"',
            "request_id": '"%[var(txn.id)]"',
            "client": '"%ci"',
            "team": '"%[var(txn.team)]"',
            "endpoint": '"%[var(txn.endpoint),json(utf8s)]"',
            "method": '"%HM"',
            "path": '"%[var(txn.path),json(utf8s)]"',
            "status": "%ST",
            "backend": '"%b"',
            "pod": '"%s"',
            "queue_ms": "%Tw",
            "connect_ms": "%Tc",
            "answer_ms": "%Tr",
            "total_ms": "%Ta",
            "bytes_in": "%U",
            "bytes_out": "%B",
            "ended": '"%ts"',
        }
    )


def no_request() -> str:
    """For what never became a request, such as a failed handshake."""
    return _json_format(
        {
            "level": '"INFO"',
            "logger": '"gateway.access"',
            "message": '"connection without a request"',
            "client": '"%ci"',
            "reason": '"%[fc_err_str,json(utf8s)]"',
        }
    )


def _json_format(fields: Mapping[str, str]) -> str:
    milliseconds = "%[date(0,ms),mod(1000),add(1000),regsub(^1,)]"  # 7 -> 1007 -> 007
    time = f'"%[date,utime(%Y-%m-%dT%H:%M:%S)].{milliseconds}Z"'
    inner = ",".join(f'"{name}":{value}' for name, value in ({"time": time} | dict(fields)).items())
    return "'{" + inner + "}'"
