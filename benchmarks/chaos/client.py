"""An HTTP client for servers that break: it reads every response to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpx

OK: Final = 200
_DONE: Final = b"data: [DONE]"


class Response(NamedTuple):
    """A response, streamed or not: the text of a whole answer, or what is wrong with it."""

    status: int
    text: str = ""
    error: str = ""


async def post(
    port: int, document: Mapping[str, Any], headers: Mapping[str, str], seconds: float
) -> Response:
    """Post to Chat Completions on a port of this machine and read the response.

    Raises `OSError` or `TimeoutError` where there is none, or it breaks off.
    """
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with (
        asyncio.timeout(seconds),
        httpx.AsyncClient(trust_env=False, verify=False, timeout=None) as client,  # noqa: S113, S501 -- plain HTTP
    ):
        try:
            response = await client.post(url, json=document, headers=headers)
        except httpx.TransportError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
    status, content = response.status_code, response.content
    if status != OK:
        return Response(status, error=content[:300].decode(errors="replace"))
    if not response.headers["content-type"].startswith("text/event-stream"):
        return Response(status, response.json()["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in content.splitlines() if line.startswith(b"data: {")]
    choices = [choice for event in events for choice in event.get("choices", ())]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    errors = [str(event["error"]) for event in events if event.get("error")]
    if not errors and _DONE not in content:
        errors = ["the stream broke off"]
    return Response(status, text, "".join(errors[:1]))
