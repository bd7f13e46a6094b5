"""Runs in Triton's environment: the official Triton client; prints what it got as one JSON line.

python triton_client.py http 127.0.0.1:8080        asks the model `test` of a server
python triton_client.py gateway HOST:PORT/PATH MODEL   asks one through a gateway, with API_KEY and SSL_CERT_FILE
python triton_client.py schema FILE...             reads configurations with Triton's published schema
"""

from __future__ import annotations

import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import numpy as np


def ask(address: str) -> dict[str, Any]:
    import tritonclient.http as http
    from tritonclient.utils import InferenceServerException

    client = http.InferenceServerClient(address)
    rows = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], dtype=np.float32)

    def infer(values: Any = rows, binary: bool = True, model: str = "test", **more: Any) -> Any:
        given = http.InferInput("x", list(values.shape), "FP32")
        given.set_data_from_numpy(values, binary_data=binary)
        wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in ("y", "label")]
        return client.infer(model, [given], outputs=wanted, **more)

    def error(**more: Any) -> str:
        try:
            infer(**more)
        except InferenceServerException as problem:
            return f"{problem.status()}: {problem.message()}"
        return ""

    named = infer(request_id="mine")
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready() and client.is_model_ready("test") and client.is_model_ready("test", "7"),
        "metadata": client.get_model_metadata("test"),
        "binary": named.as_numpy("y").tolist(),
        "json": infer(binary=False).as_numpy("y").tolist(),
        "label": named.as_numpy("label").tolist(),
        "id": named.get_response()["id"],
        "outputs": [output["name"] for output in named.get_response()["outputs"]],
        "gzip": infer(request_compression_algorithm="gzip", response_compression_algorithm="gzip")
        .as_numpy("y")
        .tolist(),
        "many": infer(np.zeros((5000, 4), np.float32)).as_numpy("y").shape,
        "wrong_shape": error(values=np.zeros((1, 3), np.float32)),
        "unknown_model": error(model="other"),
        "unknown_version": error(model_version="9"),
    }


def through(address: str, model: str) -> dict[str, Any]:
    import tritonclient.http as http

    def trusting() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])

    client = http.InferenceServerClient(address, ssl=True, ssl_context_factory=trusting)
    own = {"Authorization": f"Bearer {os.environ['API_KEY']}"}
    rows = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], dtype=np.float32)
    given = http.InferInput("x", list(rows.shape), "FP32")
    given.set_data_from_numpy(rows)
    return {
        "ready": client.is_server_ready(headers=own) and client.is_model_ready(model, headers=own),
        "versions": client.get_model_metadata(model, headers=own)["versions"],
        "y": client.infer(model, [given], headers=own).as_numpy("y").tolist(),
    }


def read(files: list[str]) -> list[dict[str, Any]]:
    from google.protobuf import json_format, text_format
    from tritonclient.grpc import model_config_pb2

    configs = [text_format.Parse(Path(file).read_text(), model_config_pb2.ModelConfig()) for file in files]
    return [json_format.MessageToDict(config, preserving_proto_field_name=True) for config in configs]


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    told: Any = {"http": ask, "gateway": through}[what](*words) if what != "schema" else read(words)
    print(json.dumps(told))
