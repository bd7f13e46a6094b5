"""Runs in vLLM's environment: the official OpenAI client against a base URL; prints what it got as one JSON line.

python openai_client.py http://127.0.0.1:8080/v1
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai


def error(asked: Any) -> list[object]:
    try:
        asked()
    except openai.APIStatusError as problem:
        return [type(problem).__name__, problem.status_code, problem.param]
    return []


def main(base_url: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    told: list[Any] = [{"role": "user", "content": "Hello"}]
    asked: dict[str, Any] = {"messages": told, "max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(model="test", **asked)
    pieces = list(client.chat.completions.create(model="test", stream=True, **asked))
    responded = client.responses.create(model="test", input="Hello", max_output_tokens=8, temperature=0)
    found = {
        "models": sorted(model.id for model in client.models.list()),
        "whole": whole.choices[0].message.content,
        "tokens": whole.usage.completion_tokens if whole.usage else None,
        "streamed": "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices),
        "response": responded.object,
        "unknown": error(lambda: client.chat.completions.create(model="other", **asked)),
        "too_long": error(lambda: client.chat.completions.create(model="test", messages=told, max_tokens=10_000)),
        "stateful": error(lambda: client.responses.create(model="test", input="x", previous_response_id="resp_1")),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
