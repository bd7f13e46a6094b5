"""What OpenAI's clients send."""

from __future__ import annotations

import json

CHAT = "/v1/chat/completions"


def chat(text: str = "Hello", model: str = "iris") -> bytes:
    """As OpenAI's Python client writes it: what is said first, the model behind it."""
    return json.dumps({"messages": [{"role": "user", "content": text}], "model": model}).encode()
