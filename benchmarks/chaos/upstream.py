"""An upstream that survives kills and counts its calls.

It runs in a process of its own (`python -m benchmarks.chaos.upstream SECONDS`), answers after so
many seconds, identifies a question by its mark and a step by its model. `GET /counts` returns the
counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.processes import run_on_fast_loop, upstream_process
from benchmarks.upstream import Upstream, completion, http_response, serve

MARK: Final = re.compile(r"chaos-[a-z0-9-]+")
ANSWER: Final = "Certainly: what holds is what was tried."
PAUSE_SECONDS: Final = 0.002
"""Pause between two chunks of a stream."""

LONGEST_SECONDS: Final = 30.0


class StepName(NamedTuple):
    """A step as an upstream knows it: the question's mark and the worker."""

    mark: str
    worker: str


def tokens_of(mark: str) -> tuple[int, int]:
    """Return input and output tokens of a call with that mark, different for every mark."""
    digest = hashlib.blake2b(mark.encode(), digest_size=2).digest()
    return 20 + digest[0], 8 + digest[1] % 32


class CountingUpstream(Upstream):
    """One connection; `counts` is shared by all of them."""

    def __init__(self, latency_seconds: float, counts: Mapping[str, Counter[str]]) -> None:
        super().__init__()
        self._latency_seconds = latency_seconds
        self._counts = counts
        self._pending = ""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._pending:
            self._counts["cut_off"][self._pending] += 1

    def answer(self, body: bytes) -> None:
        if not body:
            self.send((http_response(json.dumps(self._counts).encode()),), 0)
            return
        request = json.loads(body)
        mark = next(iter(MARK.findall(json.dumps(request["messages"]))), "")
        self._pending = f"{mark} {request['model']}"
        self._counts["steps"][self._pending] += 1
        asyncio.get_running_loop().call_later(self._latency_seconds, self._reply, request, mark)

    def _reply(self, request: Mapping[str, Any], mark: str) -> None:
        text = ANSWER[len(_begun(request)) :]
        pieces = re.findall(r"\W*\w+\W?", text) or [text]
        fields = {"id": f"chatcmpl-{mark}", "model": request["model"]}
        is_streaming = bool(request.get("stream"))
        parts = completion(pieces, tokens_of(mark), fields, stream=is_streaming)
        self.send(parts, PAUSE_SECONDS, self._end)

    def _end(self) -> None:
        self._pending = ""


def _begun(request: Mapping[str, Any]) -> str:
    """Return the part of the answer that the conversation already ends with.

    Whole answers belong to other steps, which a nested run reads as a conversation.
    """
    before = request["messages"][-2:-1]
    text = before[0]["content"] if before and before[0]["role"] == "assistant" else ""
    is_part = isinstance(text, str) and text != ANSWER and ANSWER.startswith(text)
    return text if is_part else ""


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls by step, and calls whose client went away."""

    steps: Mapping[StepName, int]
    cut_off: Mapping[StepName, int]

    @property
    def total(self) -> int:
        return sum(self.steps.values())

    def calls(self, mark: str) -> int:
        return sum(count for step, count in self.steps.items() if step.mark == mark)


def chaos_upstream(latency_seconds: float = 0.0) -> AbstractAsyncContextManager[int]:
    return upstream_process("benchmarks.chaos.upstream", str(latency_seconds))


async def read_counts(port: int) -> CallCounts:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=LONGEST_SECONDS) as client:  # noqa: S501 -- plain HTTP
        document = (await client.get(f"http://127.0.0.1:{port}/counts")).json()
    return CallCounts(_by_step(document["steps"]), _by_step(document["cut_off"]))


def _by_step(counts: Mapping[str, int]) -> dict[StepName, int]:
    return {StepName(*name.split(" ", 1)): count for name, count in counts.items()}


if __name__ == "__main__":
    COUNTS = {name: Counter[str]() for name in ("steps", "cut_off")}
    run_on_fast_loop(serve(lambda: CountingUpstream(float(sys.argv[1]), COUNTS)))
