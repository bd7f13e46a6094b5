"""What of OpenAI's Responses API would need a memory between requests.

Owns naming and refusing it: pods share no state, so a second request would find it or not by chance. Pure.
"""

from __future__ import annotations

import orjson

from runtimes.interface.errors import RefusedError

PATH = "/v1/responses"
_OF_A_STATE = ("previous_response_id", "conversation", "background")


def check(body: bytes) -> None:
    """RefusedError naming the field that refers to an earlier request or is to be asked for later."""
    if not any(name.encode() in body for name in _OF_A_STATE):
        return
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return  # the engine says what is wrong with it
    for name in _OF_A_STATE:
        if isinstance(document, dict) and document.get(name):
            raise RefusedError(400, f"`{name}` is not possible here: nothing is kept between requests", name)
