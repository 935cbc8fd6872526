"""An HTTP client for servers that break: it reads every response to its end.

It knows nothing of Podium, posts Chat Completions and reports what came back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST_LINE: Final = 2**20
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
        """True if this is a complete answer."""
        return self.status == OK and self.is_whole and not self.error


async def post(
    port: int, document: Mapping[str, Any], headers: Mapping[str, str], seconds: float
) -> Response:
    """Post to Chat Completions on a port of this machine and read the response.

    Raises `OSError`, `EOFError` or `TimeoutError` where there is none.
    """
    body = json.dumps(document).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\n"
        f"host: 127.0.0.1:{port}\r\n{lines}"
        "content-type: application/json\r\nconnection: close\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LONGEST_LINE)
        try:
            writer.write(head.encode() + body)
            received = await reader.readuntil(b"\r\n\r\n")
            content, is_complete = await _content(reader, received.lower())
        finally:
            writer.close()
    status = int(received.split(b" ", 2)[1])
    if b"text/event-stream" in received.lower():
        return _streamed(status, content)
    return _whole(status, content, is_complete=is_complete)


async def _content(reader: asyncio.StreamReader, head: bytes) -> tuple[bytes, bool]:
    """Return the body, and whether it is complete."""
    if b"transfer-encoding: chunked" not in head:
        _, found, length = head.partition(b"content-length:")
        if not found:
            return await reader.read(), True
        content = await _at_most(reader, int(length.split()[0]))
        return content, len(content) == int(length.split()[0])
    parts: list[bytes] = []
    try:
        while size := int((await reader.readline()).strip() or b"-1", 16):
            if size < 0:
                return b"".join(parts), False
            parts.append(await reader.readexactly(size))
            await reader.readline()
    except asyncio.IncompleteReadError as error:
        return b"".join((*parts, error.partial)), False
    return b"".join(parts), True


async def _at_most(reader: asyncio.StreamReader, length: int) -> bytes:
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError as error:
        return error.partial


def _whole(status: int, content: bytes, *, is_complete: bool) -> Response:
    try:
        document = json.loads(content)
    except ValueError:
        return Response(
            status, "", None, is_whole=False, error=content[:200].decode(errors="replace")
        )
    if status != OK or "choices" not in document:
        return Response(status, "", None, is_whole=is_complete, error=_error_in(document))
    text = document["choices"][0]["message"].get("content") or ""
    return Response(status, text, document.get("usage"), is_whole=is_complete)


def _streamed(status: int, content: bytes) -> Response:
    """Assemble a stream; it is whole when `[DONE]` has come."""
    text: list[str] = []
    usage, error, is_done = None, "", False
    for line in content.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            is_done = True
            continue
        try:
            event = json.loads(data)
        except ValueError:
            error = "an event of the stream is no JSON"
            continue
        if event.get("error"):
            error = _error_in(event)
        usage = event.get("usage") or usage
        deltas = [choice.get("delta", {}) for choice in event.get("choices") or ()]
        text += [delta.get("content") or "" for delta in deltas]
    return Response(status, "".join(text), usage, is_whole=is_done, error=error)


def _error_in(document: Any) -> str:
    error = document.get("error") if isinstance(document, dict) else document
    said = error.get("message") if isinstance(error, dict) else error
    return str(said)[:300]
