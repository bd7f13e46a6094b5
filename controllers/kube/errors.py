"""What can go wrong at the API server, one class a meaning, so that no caller reads a status code."""

# ruff: noqa: N818 - the names are the API's own words
from typing import Any


class KubeError(Exception):
    """Any failure of a call to the API server."""


class Unreachable(KubeError):
    """No answer: refused, reset, timed out, or the server is starting. Nothing is known of the effect."""


class ApiError(KubeError):
    """An answer that is an error. `status` is the HTTP code, `reason` the API's own word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Unauthorized(ApiError):
    """401: the token is not, or no longer, valid."""


class Forbidden(ApiError):
    """403: a rule of RBAC is missing, or a quota is used up."""


class NotFound(ApiError):
    """404: the object is not there; nor may its kind be."""


class Conflict(ApiError):
    """409: somebody wrote in between (resourceVersion), or owns the field (apply without force)."""


class AlreadyExists(Conflict):
    """409 on create."""


class Gone(ApiError):
    """410: the resourceVersion is too old to go on from; list again."""


class Invalid(ApiError):
    """422: the object breaks its schema or an admission rule."""


class Throttled(ApiError):
    """429: too many requests, or an eviction that a disruption budget forbids for now."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def error_from(status: int, body: Any) -> KubeError:
    """The typed error for an HTTP status and the `Status` object (or whatever else) that came with it."""
    detail = body if isinstance(body, dict) else {}
    reason = str(detail.get("reason") or "Unknown")
    message = str(detail.get("message") or body or "no message")
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(status, reason, message)
    if status in (502, 503, 504):
        return Unreachable(f"{status} {reason}: {message}")
    return _BY_STATUS.get(status, ApiError)(status, reason, message)
