"""An upstream that survives kills, counts what it is asked, and injects faults.

It runs in a process of its own (`python -m benchmarks.chaos.upstream`), speaks Chat Completions,
and identifies a question by its mark and a step by its model. `GET /counts` returns the counts.
Faults are drawn from the seed, the mark and the number of earlier calls, so that equal questions
meet equal faults. It prints its port as JSON and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import httptools

from benchmarks.chaos.checks import StepName
from benchmarks.processes import run_on_fast_loop, upstream_process

MARK: Final = re.compile(r"chaos-[a-z0-9-]+")
PIECES: Final = ("Certainly", ": what", " holds", " is", " what", " was", " tried", ".")
ANSWER: Final = "".join(PIECES)

WIRE_FAULTS: Final = (
    "latency",
    "rate_limited",
    "rate_limited_with_retry_after",
    "server_error",
    "reset",
    "truncated",
    "malformed_json",
)
RETRY_AFTER_SECONDS: Final = 1
SLOW_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.002
"""Pause between two chunks of a stream."""

SERVER_ERRORS: Final = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Unavailable"}

_JSON: Final = "content-type: application/json\r\n"
_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def tokens_of(mark: str) -> tuple[int, int]:
    """Return input and output tokens of a call with that mark, different for every mark."""
    digest = hashlib.blake2b(mark.encode(), digest_size=2).digest()
    return 20 + digest[0], 8 + digest[1] % 32


@dataclass(frozen=True, slots=True)
class Conduct:
    """The latency of calls and the share of faults."""

    latency_seconds: float = 0.0
    fault_share: float = 0.0
    seed: int = 0

    def fault_of(self, mark: str, before: int) -> str:
        """Return the fault of the next call with that mark, mostly none."""
        chance = random.Random(f"{self.seed}:{mark}:{before}")  # noqa: S311 -- repeatable
        return chance.choice(WIRE_FAULTS) if chance.random() < self.fault_share else ""


class Counts:
    """Calls by mark and model, calls whose client went away, and faults by kind."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.cut_off: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def document(self) -> bytes:
        """Return the body of `GET /counts`."""
        return json.dumps(
            {"asked": self.asked, "cut_off": self.cut_off, "faults": self.faults}
        ).encode()


class FaultyUpstream(asyncio.Protocol):
    """One connection with sequential requests."""

    def __init__(self, conduct: Conduct, counts: Counts) -> None:
        self._conduct = conduct
        self._counts = counts
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._pending = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as streams have; uvloop's is its own

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._pending:
            self._counts.cut_off[self._pending] += 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if not body:  # the counts, or a peer that looks around
            self._write(_whole(200, self._counts.document()))
            return
        asked = json.loads(body)
        mark = next(iter(MARK.findall(json.dumps(asked["messages"]))), "")
        self._pending = f"{mark} {asked['model']}"
        self._counts.asked[self._pending] += 1
        fault = self._conduct.fault_of(mark, self._counts.marks[mark])
        self._counts.marks[mark] += 1
        if fault:
            self._counts.faults[fault] += 1
        slow = SLOW_SECONDS if fault == "latency" else 0.0
        asyncio.get_running_loop().call_later(
            self._conduct.latency_seconds + slow, self._answer, asked, mark, fault
        )

    def _answer(self, asked: Mapping[str, Any], mark: str, fault: str) -> None:
        match fault:
            case "rate_limited":
                self._send((_refusal(429, "Too Many Requests"),))
            case "rate_limited_with_retry_after":
                more = f"retry-after: {RETRY_AFTER_SECONDS}\r\n"
                self._send((_refusal(429, "Too Many Requests", more),))
            case "server_error":
                status = sorted(SERVER_ERRORS)[self._counts.faults[fault] % len(SERVER_ERRORS)]
                self._send((_refusal(status, SERVER_ERRORS[status]),))
            case "reset":
                self._pending = ""
                if self._transport is not None:
                    self._transport.abort()
            case "truncated":
                self._send(_first_half(_response(asked, mark)), then_close=True)
            case "malformed_json" if asked.get("stream"):
                head, first, *rest = _response(asked, mark)
                self._send((head, first, _chunk(b'data: {"choices": [{"delta": {"con\n\n'), *rest))
            case "malformed_json":
                self._send((_whole(200, b'{"choices": [{"message": {"con'),))
            case _:
                self._send(_response(asked, mark))

    def _send(self, parts: Sequence[bytes], *, then_close: bool = False) -> None:
        """Send the parts with pauses between them, so that each is read by itself."""
        self._write(parts[0])
        if len(parts) > 1:
            loop = asyncio.get_running_loop()
            loop.call_later(PAUSE_SECONDS, partial(self._send, parts[1:], then_close=then_close))
            return
        self._pending = ""
        if then_close and self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _first_half(parts: Sequence[bytes]) -> Sequence[bytes]:
    """Return the beginning of an answer that breaks off."""
    if len(parts) > 1:
        return parts[: len(parts) // 2]
    return (parts[0][: -len(parts[0]) // 3],)


def _response(asked: Mapping[str, Any], mark: str) -> tuple[bytes, ...]:
    """Return the answer in parts; a client that shows its beginning gets the rest."""
    read, written = tokens_of(mark)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    common = {"id": f"chatcmpl-{mark}", "created": 1_700_000_000, "model": asked["model"]}
    text = ANSWER[len(_begun(asked)) :]
    if not asked.get("stream"):
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        document = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        return (_whole(200, json.dumps(document).encode()),)
    common = {**common, "object": "chat.completion.chunk"}
    pieces = re.findall(r"\W*\w+\W?", text) or [text]
    deltas = [
        ({"role": "assistant", "content": ""}, None),
        *(({"content": p}, None) for p in pieces),
    ]
    events = [
        {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (*deltas, ({}, "stop"))
    ]
    events.append({**common, "choices": [], "usage": usage})
    sent = [_chunk(f"data: {json.dumps(event)}\n\n".encode()) for event in events]
    return (_EVENTS, *sent, _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _begun(asked: Mapping[str, Any]) -> str:
    """Return the part of the answer that the conversation already ends with.

    Whole answers belong to other steps, which a nested run reads as a conversation.
    """
    before = asked["messages"][-2:-1]
    said = before[0]["content"] if before and before[0]["role"] == "assistant" else ""
    is_part = isinstance(said, str) and said != ANSWER and ANSWER.startswith(said)
    return said if is_part else ""


def _refusal(status: int, reason: str, more: str = "") -> bytes:
    body = json.dumps({"error": {"message": reason, "type": "injected", "code": status}}).encode()
    return _whole(status, body, reason, more)


def _whole(status: int, body: bytes, reason: str = "OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} {reason}\r\n{_JSON}{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def serve(conduct: Conduct) -> None:
    """Listen on a free port, print it, and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    counts = Counts()
    server = await loop.create_server(
        lambda: FaultyUpstream(conduct, counts), "127.0.0.1", 0, backlog=1024
    )
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


def _conduct() -> Conduct:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-seconds", type=float, default=0.0)
    parser.add_argument("--fault-share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    return Conduct(**vars(parser.parse_args()))


LONGEST_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Calls by step, calls whose client went away, and faults by kind."""

    steps: Mapping[StepName, int]
    cut_off: Mapping[StepName, int]
    faults: Mapping[str, int]

    def calls(self, mark: str) -> int:
        """Return the number of calls for one question."""
        return sum(count for step, count in self.steps.items() if step.mark == mark)


def chaos_upstream(conduct: Conduct) -> AbstractAsyncContextManager[int]:
    """Start an upstream with that behaviour; yields its port."""
    return upstream_process(
        "benchmarks.chaos.upstream",
        *("--latency-seconds", str(conduct.latency_seconds)),
        *("--fault-share", str(conduct.fault_share)),
        *("--seed", str(conduct.seed)),
    )


async def asked_of(port: int) -> Asked:
    """Return the counts of the upstream on that port."""
    async with asyncio.timeout(LONGEST_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET /counts HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().rpartition(b"content-length:")[2].split()[0])
            document = json.loads(await reader.readexactly(length))
        finally:
            writer.close()
    return Asked(
        steps=_by_step(document["asked"]),
        cut_off=_by_step(document["cut_off"]),
        faults=document["faults"],
    )


def _by_step(counts: Mapping[str, int]) -> dict[StepName, int]:
    return {StepName(*name.split(" ", 1)): count for name, count in counts.items()}


if __name__ == "__main__":
    run_on_fast_loop(serve(_conduct()))
