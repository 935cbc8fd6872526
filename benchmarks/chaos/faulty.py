"""A worker whose calls fail as networks and vendors do.

The fault of a call follows from the seed, the worker's name, the request's text and how often it
was asked before: the same calls meet the same faults in any order, and a retry draws anew.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from podium.core.errors import BadReply, Unavailable, WorkerError
from podium.core.request import UNKNOWN_USAGE, Delta, Reply, Request, Usage
from podium.core.worker import Worker
from podium.workers.errors import error_from_status

FAULTS: Final = (
    *("latency", "rate_limited", "rate_limited_with_retry_after", "server_error", "reset"),
    *("truncated_stream", "malformed_json", "wrong_usage", "endless"),
)
SECONDS: Final = 0.0002
"""The mean delay, and the value of Retry-After."""

ENDLESS_PIECE: Final = "and so on and on " * 1024
ENDLESS_PIECES: Final = 1000
"""The pieces that the HTTP client reads before it gives up."""

_WRONG_USAGES: Final = (
    Usage(-40, -2, 0, 0, 0),
    Usage(10**15, 10**15, 0, 0, 0),
    Usage(10, 5, 10**6, 10**6, 10**6),
    UNKNOWN_USAGE,
)


def evenly(share: float) -> dict[str, float]:
    """Return every fault equally often, `share` of the calls in all."""
    return dict.fromkeys(FAULTS, share / len(FAULTS))


class FaultyWorker:
    """A worker with a share of calls for each fault. `injected` counts the faults by name."""

    def __init__(self, worker: Worker, shares: Mapping[str, float], seed: int = 0) -> None:
        self.profile = worker.profile
        self.worker = worker
        self.injected: Counter[str] = Counter()
        self.calls = 0
        self._shares = shares
        self._seed = seed
        self._asked: Counter[str] = Counter()

    async def reply(self, request: Request) -> Reply:
        fault, rng = self._draw(request)
        await self._fail(fault, rng)
        if fault == "truncated_stream":
            raise self._broken_off()
        if fault == "endless":
            for _ in range(ENDLESS_PIECES):
                await asyncio.sleep(0)
            raise BadReply(f"{self.profile.name} sent too much (injected)")
        return _with_usage(await self.worker.reply(request), fault, rng)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        fault, rng = self._draw(request)
        await self._fail(fault, rng)
        while fault == "endless":
            yield Delta(ENDLESS_PIECE)
            await asyncio.sleep(0)
        is_truncated = fault == "truncated_stream"
        left = rng.randint(0, 5) if is_truncated else -1
        async with aclosing(self.worker.stream(request)) as pieces:
            async for piece in pieces:
                if is_truncated and (left == 0 or isinstance(piece, Reply)):
                    break
                left -= 1
                yield _with_usage(piece, fault, rng) if isinstance(piece, Reply) else piece
        if is_truncated and rng.random() < 0.5:
            raise self._broken_off()

    def _draw(self, request: Request) -> tuple[str, random.Random]:
        text = repr(request.messages)
        self.calls += 1
        self._asked[text] += 1
        key = f"{self._seed}:{self.profile.name}:{self._asked[text]}:{text}"
        rng = random.Random(key)  # noqa: S311 - repeatable, not secret
        rolled = rng.random()
        for fault, share in self._shares.items():
            if rolled < share:
                self.injected[fault] += 1
                return fault, rng
            rolled -= share
        return "", rng

    async def _fail(self, fault: str, rng: random.Random) -> None:
        name, body, headers = self.profile.name, b'{"error": {"message": "injected"}}', {}
        if fault == "latency":
            await asyncio.sleep(rng.expovariate(1 / SECONDS))
        elif fault:
            await asyncio.sleep(0)  # others have their turn, as in any real call
        match fault:
            case "rate_limited" | "rate_limited_with_retry_after":
                if fault != "rate_limited":
                    headers = {"Retry-After": f"{SECONDS}"}
                raise error_from_status(name, 429, headers, body)
            case "server_error":
                raise error_from_status(name, rng.choice((500, 502, 503, 529)), {}, body)
            case "reset":
                raise Unavailable(f"{name} lost the connection (injected)", billed=True)
            case "malformed_json":
                raise BadReply(f"{name} sent an invalid reply (injected)")

    def _broken_off(self) -> WorkerError:
        return Unavailable(f"{self.profile.name} stopped streaming (injected)", billed=True)


def _with_usage(reply: Reply, fault: str, rng: random.Random) -> Reply:
    if fault != "wrong_usage":
        return reply
    return replace(reply, usage=rng.choice(_WRONG_USAGES))
