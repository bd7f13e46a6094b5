"""A predictor process: loads one model, then answers one request after the other over its socket.

Owns the process: its socket, its log, its end. Leaves everything about requests to model, which is imported only after
the socket stands, so that a broken environment is a reason and not a traceback. One idea: it has no thread and no queue
of its own; whoever starts it decides what runs, and may kill it at any moment.

    python -m runtimes.mlflow.worker FD FOLDER
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from runtimes import jsonlog
from runtimes.mlflow.errors import MODEL_FAILED, RefusedError
from runtimes.mlflow.frames import Frame, Head, Kind, encode_prefix, read_frame
from runtimes.termination import EXIT_FAILED, reason_of

if TYPE_CHECKING:
    from runtimes.mlflow.model import LoadedModel

_PR_SET_PDEATHSIG = 1
_log = logging.getLogger("runtimes.mlflow.worker")


def main(fd: int, folder: Path) -> int:
    """Serve the socket until it closes."""
    jsonlog.configure(logging.WARNING)
    _end_with_parent()
    channel = socket.socket(fileno=fd)
    with channel, channel.makefile("rb") as stream:
        try:
            model = _load(folder)
        except Exception as error:
            _log.exception("the model can't be loaded")
            _send(channel, Kind.FAILED, {"reason": reason_of(error)})
            return EXIT_FAILED
        _send(channel, Kind.LOADED, _about(model), model.example or b"")
        gc.collect()
        gc.freeze()
        while (frame := read_frame(stream)) is not None:
            _send(channel, *_answer(model, frame))
    return 0


def _load(folder: Path) -> LoadedModel:
    from runtimes.mlflow.model import LoadedModel

    return LoadedModel(folder)


def _about(model: LoadedModel) -> Head:
    signature = model.signature
    return {
        "mlflow": model.mlflow_version,
        "python": sys.version.split()[0],
        "example": model.example is not None,
        "signature": bool(signature.columns or signature.tensors or signature.raw),
    }


def _answer(model: LoadedModel, frame: Frame) -> tuple[Kind, Head, bytes]:
    from runtimes.mlflow.model import Request

    head = frame.head
    token = jsonlog.request_id.set(head.get("request_id"))
    try:
        request = Request(frame.body, head["media"], bool(head.get("gzip")), int(head["limit"]))
        answer = model.answer(request)
        return Kind.ANSWER, {"non_finite": answer.non_finite}, answer.body
    except RefusedError as refusal:
        # The cause is for the front's own eyes (the reason of a failed self-test), it never goes to a client.
        cause = reason_of(refusal.__cause__) if refusal.__cause__ else None
        head = {"status": refusal.status, "message": refusal.message, "field": refusal.field, "cause": cause}
        return Kind.REFUSAL, head, b""
    except Exception:
        _log.exception("a request could not be handled")
        return Kind.REFUSAL, {"status": 500, "message": MODEL_FAILED, "field": None}, b""
    finally:
        jsonlog.request_id.reset(token)


def _send(channel: socket.socket, kind: Kind, head: Head, body: bytes = b"") -> None:
    prefix = encode_prefix(kind, head, len(body))
    if len(body) < 1 << 16:
        channel.sendall(prefix + body)
    else:
        channel.sendall(prefix)
        channel.sendall(body)


def _end_with_parent() -> None:
    # Linux: a predictor must not outlive a front process that was killed.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1 and os.environ.get("KNOBLESS_FRONT_PID") not in (None, "1"):
        os._exit(EXIT_FAILED)  # it was killed before the line above


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
