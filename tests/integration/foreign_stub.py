"""Servers shaped like others' products, for the proxy to be in front of. They are stubs: shapes of requests, answers
and health, written from public documentation, and nobody's code.

python foreign_stub.py (tgi | ollama | tensorflow-serving | torchserve) PORT
"""

from __future__ import annotations

import http.server
import json
import sys
import time
from collections.abc import Callable
from typing import Any

JSON, EVENTS, LINES = "application/json", "text/event-stream", "application/x-ndjson"
Pieces = list[bytes]
Reply = tuple[int, str, Pieces]


def told(document: Any, status: int = 200) -> Reply:
    return status, JSON, [json.dumps(document).encode()]


def events(*documents: Any, last: str | None = None) -> Reply:
    lines = [json.dumps(document) for document in documents] + ([last] if last else [])
    return 200, EVENTS, [f"data: {line}\n\n".encode() for line in lines]


def tgi(method: str, path: str, body: bytes) -> Reply | None:
    """A text-generation server: its own API, and OpenAI's."""
    if method == "GET":
        return told({}) if path == "/health" else told({"model_id": "m"}) if path == "/info" else None
    asked = json.loads(body)
    if path == "/generate":
        if "inputs" not in asked:
            return told({"error": "Input validation error: missing `inputs`", "error_type": "validation"}, 422)
        return told({"generated_text": asked["inputs"] + "!"})
    if path == "/generate_stream":
        return events({"token": {"text": "a"}}, {"token": {"text": "b"}, "generated_text": "ab"})
    if path == "/v1/chat/completions" and asked.get("stream"):
        return events({"choices": [{"delta": {"content": "a"}}]}, last="[DONE]")
    return told({"choices": [{"message": {"content": "a"}}]}) if path == "/v1/chat/completions" else None


def ollama(method: str, path: str, body: bytes) -> Reply | None:
    """A local model runner: health is a text at /, streams are lines of JSON."""
    if method == "GET":
        return (200, "text/plain", [b"Ollama is running"]) if path == "/" else None
    if path == "/api/chat":
        parts = [{"message": {"content": "a"}, "done": False}, {"message": {"content": ""}, "done": True}]
        return 200, LINES, [json.dumps(part).encode() + b"\n" for part in parts]
    return told({"choices": [{"message": {"content": "a"}}]}) if path == "/v1/chat/completions" else None


def tensorflow_serving(method: str, path: str, body: bytes) -> Reply | None:
    """Rows in, rows out, at a path with a colon; health is the model's state."""
    if method == "GET":
        state = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
        return told(state) if path == "/v1/models/m" else None
    if path != "/v1/models/m:predict":
        return None
    asked = json.loads(body)
    return told({"predictions": asked["instances"]} if "instances" in asked else {"error": "Missing 'instances'"})


def torchserve(method: str, path: str, body: bytes) -> Reply | None:
    """Whatever the model's handler takes, also bytes of an image."""
    if method == "GET":
        return told({"status": "Healthy"}) if path == "/ping" else None
    return told({"bytes": len(body)}) if path == "/predictions/m" else None


SHAPES: dict[str, Callable[[str, str, bytes], Reply | None]] = {
    "tgi": tgi,
    "ollama": ollama,
    "tensorflow-serving": tensorflow_serving,
    "torchserve": torchserve,
}


def server_of(shape: Callable[[str, str, bytes], Reply | None]) -> type[http.server.BaseHTTPRequestHandler]:
    class Server(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            status, kind, pieces = shape(self.command, self.path, body) or told({"error": "not found"}, 404)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if kind in (EVENTS, LINES):
                self.send_header("Connection", "close")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)
                    self.wfile.flush()
                    time.sleep(0.05)
                self.close_connection = True
                return
            self.send_header("Content-Length", str(len(pieces[0])))
            self.end_headers()
            self.wfile.write(pieces[0])

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Server


if __name__ == "__main__":
    handler = server_of(SHAPES[sys.argv[1]])
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), handler).serve_forever()
