"""An HTTP client for servers that break: it reads every response to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

OK: Final = 200


@dataclass(frozen=True, slots=True)
class Response:
    """A response, streamed or not. `is_whole` is True if it ended as the protocol requires."""

    status: int
    text: str
    usage: Mapping[str, int] | None
    is_whole: bool
    error: str = ""

    @property
    def is_answer(self) -> bool:
        return self.status == OK and self.is_whole and not self.error


async def post(
    port: int, document: Mapping[str, Any], headers: Mapping[str, str], seconds: float
) -> Response:
    """Post to Chat Completions on a port of this machine and read the response.

    Raises `OSError` or `TimeoutError` where there is none.
    """
    url, content, is_complete = f"http://127.0.0.1:{port}/v1/chat/completions", b"", True
    async with (
        asyncio.timeout(seconds),
        httpx.AsyncClient(trust_env=False, verify=False, timeout=None) as client,  # noqa: S113, S501 -- plain HTTP
    ):
        try:
            async with client.stream("POST", url, json=document, headers=headers) as response:
                try:
                    async for piece in response.aiter_bytes():
                        content += piece
                except httpx.TransportError:
                    is_complete = False
        except httpx.TransportError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return _read_stream(response.status_code, content)
    return _read_whole(response.status_code, content, is_complete=is_complete)


def _read_whole(status: int, content: bytes, *, is_complete: bool) -> Response:
    try:
        document = json.loads(content)
    except ValueError:
        error = content[:200].decode(errors="replace")
        return Response(status, "", None, is_whole=False, error=error)
    if status != OK or "choices" not in document:
        return Response(status, "", None, is_whole=is_complete, error=_error_in(document))
    text = document["choices"][0]["message"].get("content") or ""
    return Response(status, text, document.get("usage"), is_whole=is_complete)


def _read_stream(status: int, content: bytes) -> Response:
    """Assemble a stream; it is whole when `[DONE]` has come."""
    text, usage, error, is_done = "", None, "", False
    for line in content.split(b"\n"):
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            is_done = True
        elif line.startswith(b"data:"):
            try:
                event = json.loads(data)
            except ValueError:
                error = "an event of the stream is no JSON"
                continue
            if event.get("error"):
                error = _error_in(event)
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                text += choice.get("delta", {}).get("content") or ""
    return Response(status, text, usage, is_whole=is_done, error=error)


def _error_in(document: Any) -> str:
    error = document.get("error") if isinstance(document, dict) else document
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:300]
