"""Hedging: a slow call gets a second one beside it, and the first to answer wins.

Both are ordinary calls: within the budget, rate limits and record, and both are paid. The second is
made only if the budget allows it at once, and never after the first has begun to stream. The loser
is cancelled; its cost is unknown, and the run says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.core.errors import WorkerError
from podium.core.request import Delta, Reply, Request
from podium.core.worker import OnDelta, OnRetry, Worker

if TYPE_CHECKING:
    from podium.engine.calls import CallPolicy, Calls, CanFallBack

LOST_RACE: Final = "cancelled: another call answered first"
"""Error of the call that lost."""


class HedgedReply(NamedTuple):
    """The first reply, and its worker."""

    worker: Worker
    reply: Reply


@dataclass(slots=True, eq=False)
class _HedgedCall:
    worker: Worker
    task: asyncio.Task[Reply | None]
    is_cancelled: bool = False

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the call, once: a second time would cut short how it ends."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.task.cancel(reason)

    @property
    def reply(self) -> Reply | None:
        task = self.task
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()


class Race:
    """Call a worker and, if it is slow, another beside it.

    `other` returns the second worker and its request, or None. Without `on_delta` nothing is
    streamed.
    """

    def __init__(
        self,
        calls: Calls,
        call_policy: CallPolicy,
        worker: Worker,
        other: Callable[[], tuple[Worker, Request] | None],
        *,
        on_delta: OnDelta | None,
        on_retry: OnRetry,
        can_fall_back: CanFallBack,
    ) -> None:
        self._calls = calls
        self._call_policy = call_policy
        self._worker = worker
        self._other = other
        self._on_delta = on_delta
        self._on_retry = on_retry
        self._can_fall_back = can_fall_back
        self._hedged_calls: list[_HedgedCall] = []
        self._leader: _HedgedCall | None = None
        self._began = call_policy.clock()

    async def run(self, request: Request) -> HedgedReply:
        """Return the first reply; raise the first call's error if neither replies."""
        first = self._enter(self._worker, lambda on_delta: self._make(request, on_delta))
        timer = asyncio.create_task(self._wait_for_delay())
        try:
            await asyncio.wait({first.task, timer}, return_when=asyncio.FIRST_COMPLETED)
            waits = self._leader is None and not first.task.done()
            other = self._other() if waits else None
            if other is None:
                return self._declare_winner(first, await first.task)
            worker, second_request = other
            second = self._enter(
                worker,
                lambda on_delta: self._calls.make_hedge(worker, second_request, on_delta),
            )
            return await self._first_reply(first, second)
        finally:
            timer.cancel()
            await self._end()

    async def _first_reply(self, first: _HedgedCall, second: _HedgedCall) -> HedgedReply:
        pending = {first.task, second.task}
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for call in self._hedged_calls:
                if call.reply is not None:
                    return self._declare_winner(call, call.reply)
            if self._leader is second and second.task.done():
                return await self._continue_with(first, second)
        return self._declare_winner(first, await first.task)

    async def _continue_with(self, first: _HedgedCall, second: _HedgedCall) -> HedgedReply:
        """Ask the first worker to continue the reply that the second began and broke off."""
        try:
            await second.task
        except WorkerError as error:
            await asyncio.gather(first.task, return_exceptions=True)
            request = self._on_retry(first.worker.profile.name, error, 0.0)
            reply = await self._make(request, self._on_delta)
            return HedgedReply(first.worker, reply)
        raise AssertionError("a call that has ended without a reply has failed")

    async def _make(self, request: Request, on_delta: OnDelta | None) -> Reply:
        return await self._calls(
            self._worker, request, on_delta, self._on_retry, self._can_fall_back
        )

    async def _wait_for_delay(self) -> None:
        delay = self._call_policy.hedges.delay(self._worker.profile.name)
        if delay is None:
            await asyncio.Event().wait()
        else:
            await self._call_policy.sleep(delay)

    def _enter(
        self,
        worker: Worker,
        make: Callable[[OnDelta | None], Coroutine[Any, Any, Reply | None]],
    ) -> _HedgedCall:
        """Start a call. The first piece of either decides, and the other call is cancelled."""
        on_delta = self._on_delta

        def receive(delta: Delta) -> None:
            assert on_delta is not None, "streaming needs a listener"
            if self._leader is None and delta.kind != "start":
                self._set_leader(call)
            if self._leader is call:
                on_delta(delta)

        call = _HedgedCall(
            worker, asyncio.create_task(make(receive if on_delta is not None else None))
        )
        self._hedged_calls.append(call)
        return call

    def _declare_winner(self, call: _HedgedCall, reply: Reply | None) -> HedgedReply:
        assert reply is not None, "a call that wins has a reply"
        if self._leader is None:
            self._set_leader(call)
        return HedgedReply(call.worker, reply)

    def _set_leader(self, call: _HedgedCall) -> None:
        self._leader = call
        latency = self._call_policy.clock() - self._began
        self._call_policy.hedges.record(self._worker.profile.name, latency)
        for other in self._hedged_calls:
            if other is not call:
                other.cancel(LOST_RACE)

    async def _end(self) -> None:
        """Cancel what is still running, and wait until it is recorded."""
        for call in self._hedged_calls:
            call.cancel()
        await asyncio.gather(*(call.task for call in self._hedged_calls), return_exceptions=True)
