"""A predictor process: loads one model, then answers call after call over its socket.

Owns the process: its socket, its log, its threads where calls overlap, its end. Leaves everything about requests to
model, which is imported only after the socket stands, so that a broken environment is a reason and not a traceback. One
idea: it has no queue of its own; whoever starts it decides what runs and how much of it at once, and may kill it at any
moment.

    python -m runtimes.mlflow.worker FD FOLDER SLOTS
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import logging
import os
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from runtimes import jsonlog
from runtimes.mlflow import twins
from runtimes.mlflow.calls import Request, UnsplittableError
from runtimes.mlflow.errors import MODEL_FAILED, RefusedError
from runtimes.mlflow.frames import Frame, Head, Kind
from runtimes.mlflow.layout import Buffer, layout_from_plain, layout_to_plain
from runtimes.mlflow.pipe import Pipe
from runtimes.termination import EXIT_FAILED, reason_of

if TYPE_CHECKING:
    from runtimes.mlflow.model import LoadedModel

_TURN_S = 0.0005  # a thread's turn while others wait: in Python's own 5 ms each large body stops all streams that long
_log = logging.getLogger("runtimes.mlflow.worker")


def main(fd: int, folder: Path, slots: int) -> int:
    """Serve the socket until it closes."""
    jsonlog.configure(logging.WARNING)
    twins.end_with_front()
    with Pipe(socket.socket(fileno=fd)) as pipe:
        try:
            model = _load(folder)
        except Exception as error:
            _log.exception("the model can't be loaded")
            pipe.send(Kind.FAILED, 0, {"reason": reason_of(error)})
            return EXIT_FAILED
        overlapping = slots if model.about.overlaps else 1
        gc.collect()
        gc.freeze()  # what is there now stays, and is shared with every twin
        jsonlog.hide(jsonlog.WithoutValues(says=_is_mlflow, raises=_is_mlflow))
        Worker(model, pipe, _about(model) | {"slots": overlapping}).serve(overlapping)
    return 0


class Worker:
    """One model and the socket that its calls come from."""

    def __init__(self, model: LoadedModel, pipe: Pipe, about: Head) -> None:
        self._model = model
        self._pipe = pipe
        self._about = about

    def serve(self, slots: int) -> None:
        """Run calls until the socket closes: one after the other, or up to ``slots`` at once."""
        can_fork = slots == 1 and twins.can_fork(self._model.about.loader)
        about = self._about | {"pid": os.getpid(), "twins": can_fork}
        self._pipe.send(Kind.LOADED, 0, about, [self._model.example or b""])
        if slots == 1:
            for frame in self._pipe.frames():
                if frame.kind is Kind.TWIN and frame.fd is not None:
                    self._become_two(frame.fd)
                else:
                    self._run(frame)
            return
        sys.setswitchinterval(_TURN_S)
        with ThreadPoolExecutor(slots, "call") as threads:
            for frame in self._pipe.frames():
                threads.submit(self._run, frame)
            os._exit(0)  # a thread may be stuck in the model's code, and nobody waits for it any more

    def _become_two(self, fd: int) -> None:
        # Asked anew: since it has loaded, the model was called on its whole example, which may have started threads.
        if twins.can_fork(self._model.about.loader, sockets=2):
            twins.fork(self._pipe, fd, lambda pipe: Worker(self._model, pipe, self._about).serve(1))
            return
        with Pipe(socket.socket(fileno=fd)) as other:
            other.send(Kind.FAILED, 0, {"reason": "threads or connections go on in the process to be copied"})

    def _run(self, frame: Frame) -> None:
        head = frame.head
        token = jsonlog.request_id.set(",".join(head["ids"]) or None)
        try:
            self._pipe.send(*self._answer(frame))
        finally:
            jsonlog.request_id.reset(token)

    def _answer(self, frame: Frame) -> tuple[Kind, int, Head, list[Buffer]]:
        call = frame.call
        try:
            if frame.kind is Kind.STREAM:
                self._stream(frame)
                return Kind.ANSWER, call, {}, []
            found = self._model.answer(self._request(frame))
            return Kind.ANSWER, call, found.head, found.buffers
        except RefusedError as refusal:
            # The cause is for the front's own eyes (the reason of a failed self-test), it never goes to a client.
            cause = reason_of(refusal.__cause__) if refusal.__cause__ else None
            head = {"status": refusal.status, "message": refusal.message, "field": refusal.field, "cause": cause}
            return Kind.REFUSAL, call, head, []
        except UnsplittableError:
            return Kind.REFUSAL, call, {"status": 500, "message": MODEL_FAILED, "unsplittable": True}, []
        except Exception:
            _log.exception("a call could not be handled")
            return Kind.REFUSAL, call, {"status": 500, "message": MODEL_FAILED}, []

    def _stream(self, frame: Frame) -> None:
        pieces = self._model.pieces(self._request(frame))
        window = self._pipe.window(frame.call)
        try:
            for piece in pieces:
                if not window.wait():
                    return
                self._pipe.send(Kind.PIECE, frame.call, {}, [piece])
        finally:
            self._pipe.forget(frame.call)
            close = getattr(pieces, "close", None)
            if close:
                close()

    def _request(self, frame: Frame) -> Request:
        head = frame.head
        plain = head.get("layout")
        layout = self._model.plan_layout if plain is None else layout_from_plain(plain)
        assert layout is not None, "a call without a layout to a model that has none"
        sizes = head["sizes"]
        body, buffers, at = memoryview(frame.body), [], 0
        for size in sizes:
            buffers.append(body[at : at + size])
            at += size
        return Request(
            layout, buffers, head["rows"], head.get("media", "json"), head.get("params"), head.get("index"),
            as_text=head.get("as_text", True),
        )  # fmt: skip


def _load(folder: Path) -> LoadedModel:
    # These imports make 200,000 objects that stay; every collection meanwhile and later would look at all of them.
    gc.disable()
    try:
        if _written_by_skops(folder):
            # It looks for 800 names in every module that there is, and MLflow's are two thirds of them.
            importlib.import_module("skops.io")
        from runtimes.mlflow.model import LoadedModel
    finally:
        gc.freeze()
        gc.enable()
    return LoadedModel(folder)


def _written_by_skops(folder: Path) -> bool:
    try:
        written = (folder / "MLmodel").read_bytes()
    except OSError:
        return False  # MLflow says what is wrong with it
    return re.search(rb"^\s*serialization_format: skops$", written, re.MULTILINE) is not None


def _is_mlflow(logger: str) -> bool:
    return logger.partition(".")[0] == "mlflow"  # it names what it met; what the customer's code says is the customer's


def _about(model: LoadedModel) -> Head:
    layout = model.plan_layout
    return {
        **dataclasses.asdict(model.about),
        "python": sys.version.split()[0],
        "example": model.example is not None,
        "layout": None if layout is None else layout_to_plain(layout),
    }


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
