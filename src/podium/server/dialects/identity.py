"""What an answer is called, and what is in it.

A run that waits for tools speaks in several answers. In Chat Completions and Messages each has an
id of its own, because clients take two answers with one id for the same: Claude Code then tells
both as one message, with the results of all calls after it. In Responses it is the items that have
ids of their own, by which clients collect them; the response keeps the id of its run, for that is
what `previous_response_id` and `GET /v1/responses/{id}` name. The same request has the same ids
again, so that one that was sent twice shows.
"""

from __future__ import annotations

import hashlib
import json
from itertools import takewhile
from typing import Final

from podium.request import ToolResult
from podium.server.dialects.base import Asked

_RUN: Final = "run_"


def stem_of(asked: Asked, answer_id: str) -> str:
    """What the ids of an answer, and of what is in it, begin with: the run, and the results of
    tools that it answers."""
    stem = answer_id.removeprefix(_RUN)
    turn = takewhile(lambda message: message.role != "assistant", reversed(asked.messages))
    results = [
        part.call_id for message in turn for part in message.parts if isinstance(part, ToolResult)
    ]
    if not results:
        return stem
    told = hashlib.blake2s(json.dumps(results).encode(), digest_size=4).hexdigest()
    return f"{stem}_{told}"
