"""An upstream that survives kills, counts its calls, and injects faults.

It runs in a process of its own (`python -m benchmarks.chaos.upstream`), identifies a question by
its mark and a step by its model. `GET /counts` returns the counts. Faults are drawn from the seed,
the mark and the number of earlier calls, so that equal questions meet equal faults.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from benchmarks.chaos.checks import StepName
from benchmarks.processes import run_on_fast_loop, upstream_process
from benchmarks.upstream import Upstream, completion, http_chunk, http_response, serve

MARK: Final = re.compile(r"chaos-[a-z0-9-]+")
ANSWER: Final = "Certainly: what holds is what was tried."

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

LONGEST_SECONDS: Final = 30.0
SERVER_ERRORS: Final = {500: "Internal Server Error", 502: "Bad Gateway", 503: "Unavailable"}


def tokens_of(mark: str) -> tuple[int, int]:
    """Return input and output tokens of a call with that mark, different for every mark."""
    digest = hashlib.blake2b(mark.encode(), digest_size=2).digest()
    return 20 + digest[0], 8 + digest[1] % 32


@dataclass(frozen=True, slots=True)
class UpstreamOptions:
    """The latency of calls and the share of faults."""

    latency_seconds: float = 0.0
    fault_share: float = 0.0
    seed: int = 0

    def fault_of(self, mark: str, before: int) -> str:
        chance = random.Random(f"{self.seed}:{mark}:{before}")  # noqa: S311 -- repeatable
        return chance.choice(WIRE_FAULTS) if chance.random() < self.fault_share else ""


class FaultyUpstream(Upstream):
    """One connection; `counts` is shared by all of them."""

    def __init__(self, options: UpstreamOptions, counts: Mapping[str, Counter[str]]) -> None:
        super().__init__()
        self._options = options
        self._counts = counts
        self._pending = ""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._pending:
            self._counts["cut_off"][self._pending] += 1

    def answer(self, body: bytes) -> None:
        if not body:  # the counts, or a peer's probe
            self.send((http_response(json.dumps(self._counts).encode()),), 0)
            return
        request = json.loads(body)
        mark = next(iter(MARK.findall(json.dumps(request["messages"]))), "")
        self._pending = f"{mark} {request['model']}"
        self._counts["steps"][self._pending] += 1
        fault = self._options.fault_of(mark, self._counts["marks"][mark])
        self._counts["marks"][mark] += 1
        if fault:
            self._counts["faults"][fault] += 1
        latency = self._options.latency_seconds + (SLOW_SECONDS if fault == "latency" else 0.0)
        asyncio.get_running_loop().call_later(latency, self._reply, request, mark, fault)

    def _reply(self, request: Mapping[str, Any], mark: str, fault: str) -> None:
        text = ANSWER[len(_begun(request)) :]
        pieces = re.findall(r"\W*\w+\W?", text) or [text]
        fields = {"id": f"chatcmpl-{mark}", "model": request["model"]}
        is_streaming = bool(request.get("stream"))
        parts = completion(pieces, tokens_of(mark), fields, stream=is_streaming)
        match fault:
            case "rate_limited":
                parts = (_refusal(429, "Too Many Requests"),)
            case "rate_limited_with_retry_after":
                header = f"retry-after: {RETRY_AFTER_SECONDS}\r\n"
                parts = (_refusal(429, "Too Many Requests", header),)
            case "server_error":
                status = sorted(SERVER_ERRORS)[self._counts["faults"][fault] % len(SERVER_ERRORS)]
                parts = (_refusal(status, SERVER_ERRORS[status]),)
            case "reset":
                self._pending = ""
                if self.transport is not None:
                    self.transport.abort()
                return
            case "truncated" if is_streaming:
                parts = parts[: len(parts) // 2]
            case "truncated":
                parts = (parts[0][: -len(parts[0]) // 3],)
            case "malformed_json" if is_streaming:
                head, first, *rest = parts
                parts = (head, first, http_chunk(b'data: {"choices": [{"delta": {"con\n\n'), *rest)
            case "malformed_json":
                parts = (http_response(b'{"choices": [{"message": {"con'),)
        self.send(parts, PAUSE_SECONDS, self._close if fault == "truncated" else self._end)

    def _end(self) -> None:
        self._pending = ""

    def _close(self) -> None:
        self._end()
        if self.transport is not None:
            self.transport.close()


def _begun(request: Mapping[str, Any]) -> str:
    """Return the part of the answer that the conversation already ends with.

    Whole answers belong to other steps, which a nested run reads as a conversation.
    """
    before = request["messages"][-2:-1]
    text = before[0]["content"] if before and before[0]["role"] == "assistant" else ""
    is_part = isinstance(text, str) and text != ANSWER and ANSWER.startswith(text)
    return text if is_part else ""


def _refusal(status: int, reason: str, headers: str = "") -> bytes:
    body = json.dumps({"error": {"message": reason, "type": "injected", "code": status}}).encode()
    return http_response(body, status, reason, headers)


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls by step, calls whose client went away, and faults by kind."""

    steps: Mapping[StepName, int]
    cut_off: Mapping[StepName, int]
    faults: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.steps.values())

    def calls(self, mark: str) -> int:
        return sum(count for step, count in self.steps.items() if step.mark == mark)


def chaos_upstream(options: UpstreamOptions) -> AbstractAsyncContextManager[int]:
    """Start an upstream with those options; yields its port."""
    return upstream_process(
        "benchmarks.chaos.upstream",
        *("--latency-seconds", str(options.latency_seconds)),
        *("--fault-share", str(options.fault_share)),
        *("--seed", str(options.seed)),
    )


async def read_counts(port: int) -> CallCounts:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=LONGEST_SECONDS) as client:  # noqa: S501 -- plain HTTP
        document = (await client.get(f"http://127.0.0.1:{port}/counts")).json()
    return CallCounts(
        _by_step(document["steps"]), _by_step(document["cut_off"]), document["faults"]
    )


def _by_step(counts: Mapping[str, int]) -> dict[StepName, int]:
    return {StepName(*name.split(" ", 1)): count for name, count in counts.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-seconds", type=float, default=0.0)
    parser.add_argument("--fault-share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    OPTIONS = UpstreamOptions(**vars(parser.parse_args()))
    COUNTS = {name: Counter[str]() for name in ("steps", "cut_off", "marks", "faults")}
    run_on_fast_loop(serve(lambda: FaultyUpstream(OPTIONS, COUNTS)))
