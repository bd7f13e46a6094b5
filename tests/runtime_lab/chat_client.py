"""Runs in vLLM's environment: the official OpenAI client against a base URL; prints what it got as one JSON line.

python chat_client.py https://host:port/v1 MODEL   (with OPENAI_API_KEY, and SSL_CERT_FILE for https)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai


def main(base_url: str, model: str) -> None:
    client = openai.OpenAI(base_url=base_url, max_retries=0)
    told: list[Any] = [{"role": "user", "content": "Hello"}]
    asked: dict[str, Any] = {"messages": told, "max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(model=model, **asked)
    pieces = list(client.chat.completions.create(model=model, stream=True, **asked))
    found = {
        "models": sorted(each.id for each in client.models.list()),
        "whole": whole.choices[0].message.content,
        "streamed": "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices),
        "pieces": len(pieces),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
