"""Fault injection: a worker that fails as networks and vendors do.

    worker = FaultyWorker(worker, Faults.evenly(0.2), seed=7)
    worker = FaultyWorker(worker, Faults(server_error=0.5, reset=0.1))

It wraps any worker and raises the errors that `http` and `errors` raise, for tests.

A call's fault follows from the seed, the worker's name, the request's text and how often it was
asked before. So the same calls meet the same faults in any order and at any concurrency; a retry
and a fallback have draws of their own. Only among identical concurrent calls is it open which gets
which draw.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import Final, Self

from podium.core.errors import BadReply, ConfigError, Unavailable, WorkerError
from podium.core.request import UNKNOWN_USAGE, Delta, Reply, Request, Usage
from podium.core.worker import Worker
from podium.workers.errors import error_from_status
from podium.workers.http import MAX_REPLY_BYTES

MAX_REMEMBERED: Final = 10_000
"""Requests whose number of calls is remembered; the least recently used are dropped."""

ENDLESS_PIECE: Final = "and so on and on " * 1024
"""The repeated text of an endless reply."""

_SERVER_ERRORS: Final = (500, 502, 503, 529)

_WRONG_USAGES: Final = (
    Usage(-40, -2, 0, 0, 0),
    Usage(10**15, 10**15, 0, 0, 0),
    Usage(10, 5, 10**6, 10**6, 10**6),
    UNKNOWN_USAGE,
)
"""Impossible counts: negative, huge, parts over their whole, and none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The share of calls, from 0 to 1, that have each fault; together at most 1.

    `latency` delays a call by `latency_seconds` on average, exponentially distributed, and does no
    harm. `rate_limited` is a 429 without a Retry-After, `rate_limited_with_retry_after` one that
    asks for `retry_after_seconds`. `server_error` is a 5xx. `reset` loses the connection before the
    reply, `truncated_stream` in the middle of it. `malformed_json` cannot be parsed. `wrong_usage`
    is a good reply with impossible or missing token counts. `endless` is a reply that never ends.
    """

    latency: float = 0.0
    rate_limited: float = 0.0
    rate_limited_with_retry_after: float = 0.0
    server_error: float = 0.0
    reset: float = 0.0
    truncated_stream: float = 0.0
    malformed_json: float = 0.0
    wrong_usage: float = 0.0
    endless: float = 0.0
    latency_seconds: float = 0.05
    retry_after_seconds: float = 0.05

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = float("inf") if field.name.endswith("_seconds") else 1.0
            if not 0 <= value <= most or value == float("inf"):
                raise ConfigError(
                    f"faults.{field.name} is {value}; expected a number from 0 to {most:g}"
                )
        if sum(share for _, share in self.shares) > 1 + 1e-9:
            raise ConfigError("the shares of faults add up to more than 1; lower some of them")

    @classmethod
    def evenly(
        cls, share: float = 0.2, *, latency_seconds: float = 0.05, retry_after_seconds: float = 0.05
    ) -> Self:
        """Every fault equally often, `share` of the calls in all."""
        per_fault = share / len(FAULT_NAMES)
        return cls(
            **dict.fromkeys(FAULT_NAMES, per_fault),
            latency_seconds=latency_seconds,
            retry_after_seconds=retry_after_seconds,
        )

    @property
    def shares(self) -> Iterator[tuple[str, float]]:
        """Yield each fault's name and share."""
        return ((kind, getattr(self, kind)) for kind in FAULT_NAMES)


FAULT_NAMES: Final = tuple(
    field.name for field in fields(Faults) if not field.name.endswith("_seconds")
)
"""The names of the faults."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """The fault of one call, or none; `chance` decides its details."""

    kind: str
    chance: random.Random


class FaultyWorker:
    """A worker with faults. `calls` counts calls and `injected` the faults by name.

    Args:
        worker: Answers where no fault comes first.
        faults: How often each fault happens.
        seed: Chooses the faults.
        sleep: Waits for delays.

    """

    def __init__(
        self,
        worker: Worker,
        faults: Faults,
        seed: int = 0,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.profile = worker.profile
        self.worker = worker
        self.faults = faults
        self.injected: Counter[str] = Counter()
        self.calls = 0
        self._seed = seed
        self._sleep = sleep
        self._call_counts: OrderedDict[bytes, int] = OrderedDict()

    async def reply(self, request: Request) -> Reply:
        """Return the worker's reply, or fail."""
        draw = self._draw(request)
        await self._disturb(draw)
        if draw.kind == "truncated_stream":
            raise self._truncation_error()
        if draw.kind == "endless":
            await self._fail_endless()
        return _report_usage(await self.worker.reply(request), draw)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the worker's reply, or fail, also in the middle."""
        draw = self._draw(request)
        await self._disturb(draw)
        while draw.kind == "endless":
            yield Delta(ENDLESS_PIECE)
            await asyncio.sleep(0)  # as between any two pieces from the network
        left = draw.chance.randint(0, 5) if draw.kind == "truncated_stream" else -1
        async with aclosing(self.worker.stream(request)) as pieces:
            async for piece in pieces:
                if draw.kind == "truncated_stream" and (left == 0 or isinstance(piece, Reply)):
                    break
                left -= 1
                yield _report_usage(piece, draw) if isinstance(piece, Reply) else piece
        if draw.kind == "truncated_stream" and draw.chance.random() < 0.5:
            raise self._truncation_error()

    async def close(self) -> None:
        """Close the wrapped worker."""
        close = getattr(self.worker, "close", None)
        if close is not None:
            await close()

    def _draw(self, request: Request) -> _Draw:
        """Draw this call's fault; a request's limits, which budgets change, play no part."""
        text = repr(request.messages).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        before = self._call_counts.pop(digest, 0)
        self._call_counts[digest] = before + 1
        if len(self._call_counts) > MAX_REMEMBERED:
            self._call_counts.popitem(last=False)
        self.calls += 1
        chance = random.Random(  # noqa: S311 -- tests must be repeatable, not unguessable
            f"{self._seed}:{self.profile.name}:{digest.hex()}:{before}"
        )
        rolled = chance.random()
        for kind, share in self.faults.shares:
            if rolled < share:
                self.injected[kind] += 1
                return _Draw(kind, chance)
            rolled -= share
        return _Draw("", chance)

    async def _disturb(self, draw: _Draw) -> None:
        if draw.kind == "latency":
            seconds = self.faults.latency_seconds
            await self._sleep(draw.chance.expovariate(1 / seconds) if seconds else 0.0)
            return
        error = self._refusal(draw)
        if error is not None:
            await asyncio.sleep(0)  # others have their turn, as in any real call
            raise error

    def _refusal(self, draw: _Draw) -> WorkerError | None:
        """Return the error of a failed call, worded as the real one."""
        name = self.profile.name
        body = b'{"error": {"message": "injected"}}'
        match draw.kind:
            case "rate_limited":
                return error_from_status(name, 429, {}, body)
            case "rate_limited_with_retry_after":
                wait = {"Retry-After": f"{self.faults.retry_after_seconds:.3f}"}
                return error_from_status(name, 429, wait, body)
            case "server_error":
                return error_from_status(name, draw.chance.choice(_SERVER_ERRORS), {}, body)
            case "reset":
                return Unavailable(
                    f"{name} lost the connection: reset by peer (injected)", billed=True
                )
            case "malformed_json":
                return BadReply(
                    f"{name} sent an invalid reply: expected JSON, got "
                    f"str '{{\"choices\": [{{' (injected)"
                )
        return None

    def _truncation_error(self) -> WorkerError:
        return Unavailable(
            f"{self.profile.name} stopped streaming before its reply was complete (injected)",
            billed=True,
        )

    async def _fail_endless(self) -> None:
        """Fail as the HTTP client does on an endless reply."""
        for _ in range(0, MAX_REPLY_BYTES, len(ENDLESS_PIECE)):
            await asyncio.sleep(0)
        raise BadReply(
            f"{self.profile.name} sent more than {MAX_REPLY_BYTES // 1024**2} MiB; "
            f"reading stopped there (injected)"
        )


def _report_usage(reply: Reply, draw: _Draw) -> Reply:
    if draw.kind != "wrong_usage":
        return reply
    return replace(reply, usage=draw.chance.choice(_WRONG_USAGES))
