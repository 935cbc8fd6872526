"""Hedging: a call that takes long gets a second one beside it, and the first that answers wins.

Both are calls like any other: within the budget, through the gates, on record, and paid for. The
second is made only where it can be paid at once, and never when the first has begun to stream. The
one that loses is cancelled; what that cost nobody knows, and so the run says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.core.errors import WorkerError
from podium.core.request import Delta, Reply, Request
from podium.core.retry import Hedge
from podium.core.worker import Worker

if TYPE_CHECKING:
    from podium.engine.calls import CallPolicy, Calls, MayGiveWay, OnDelta, OnRetry

FEWEST: Final = 20
"""Calls that must have been seen before a percentile of them means anything."""

REMEMBERED: Final = 200
"""Calls that a percentile is taken of: the latest."""

GAVE_WAY: Final = "given up, for another call answered first"
"""What stands as the error of the call that lost."""


class Hedges:
    """Who is hedged and how, by name, and how long their calls took to begin."""

    def __init__(self, policies: Mapping[str, Hedge]) -> None:
        self.policies = dict(policies)
        self._took: dict[str, deque[float]] = {}

    def patience(self, worker: str) -> float | None:
        """Seconds to wait for that worker before another is asked; None while nobody can say."""
        hedge, took = self.policies[worker], self._took.get(worker, ())
        if hedge.after_percentile is None or len(took) < FEWEST:
            return hedge.after_seconds
        return _percentile(sorted(took), hedge.after_percentile)

    def began(self, worker: str, seconds: float) -> None:
        """A call of that worker took so long to its first word, or longer."""
        self._took.setdefault(worker, deque(maxlen=REMEMBERED)).append(seconds)


def _percentile(ordered: Sequence[float], percentile: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percentile / 100))]


@dataclass(frozen=True, slots=True)
class Listener:
    """Whoever wants the reply: hears its pieces and of retries, and says who else could give it.
    Without `on_delta` nothing is streamed."""

    on_delta: OnDelta | None
    on_retry: OnRetry
    may_give_way: MayGiveWay


class Won(NamedTuple):
    """The reply, and the worker that gave it."""

    worker: Worker
    reply: Reply


@dataclass(slots=True, eq=False)
class _Lane:
    """One of the two calls."""

    worker: Worker
    task: asyncio.Task[Reply | None]
    is_given_up: bool = False

    def give_up(self, why: str | None = None) -> None:
        """Cancel the call, once: a second time would cut short how it ends."""
        if not self.is_given_up:
            self.is_given_up = True
            self.task.cancel(why)

    @property
    def reply(self) -> Reply | None:
        """What came of it, if anything did."""
        task = self.task
        if not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()


class Race:
    """A call to one worker and, if it takes long, another beside it. `other` says whom to ask then,
    and what; None where nobody can be."""

    def __init__(
        self,
        calls: Calls,
        call_policy: CallPolicy,
        worker: Worker,
        listener: Listener,
        other: Callable[[], tuple[Worker, Request] | None],
    ) -> None:
        self._calls = calls
        self._call_policy = call_policy
        self._worker = worker
        self._listener = listener
        self._other = other
        self._lanes: list[_Lane] = []
        self._leader: _Lane | None = None
        self._began = call_policy.clock()

    async def run(self, request: Request) -> Won:
        """Whoever answers first; raises what the first call raised where neither does."""
        first = self._enter(self._worker, lambda hear: self._make(request, hear))
        timer = asyncio.create_task(self._lose_patience())
        try:
            await asyncio.wait({first.task, timer}, return_when=asyncio.FIRST_COMPLETED)
            waits = self._leader is None and not first.task.done()
            other = self._other() if waits else None
            if other is None:
                return self._won(first, await first.task)
            worker, asked = other
            second = self._enter(worker, lambda hear: self._calls.beside(worker, asked, hear))
            return await self._decided(first, second)
        finally:
            timer.cancel()
            await self._end()

    async def _decided(self, first: _Lane, second: _Lane) -> Won:
        pending = {first.task, second.task}
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for lane in self._lanes:
                if lane.reply is not None:
                    return self._won(lane, lane.reply)
            if self._leader is second and second.task.done():
                return await self._gone_on_with(first, second)
        return self._won(first, await first.task)

    async def _gone_on_with(self, first: _Lane, second: _Lane) -> Won:
        """The second had begun its reply, and failed: the first is asked to go on after that."""
        try:
            await second.task
        except WorkerError as error:
            await asyncio.gather(first.task, return_exceptions=True)
            request = self._listener.on_retry(first.worker.profile.name, error, 0.0)
            reply = await self._make(request, self._listener.on_delta)
            return Won(first.worker, reply)
        raise AssertionError("a call that has ended without a reply has failed")

    async def _make(self, request: Request, on_delta: OnDelta | None) -> Reply:
        listener = self._listener
        return await self._calls.make(
            self._worker, request, on_delta, listener.on_retry, listener.may_give_way
        )

    async def _lose_patience(self) -> None:
        patience = self._call_policy.hedges.patience(self._worker.profile.name)
        if patience is None:
            await asyncio.Event().wait()
        else:
            await self._call_policy.sleep(patience)

    def _enter(
        self,
        worker: Worker,
        make: Callable[[OnDelta | None], Coroutine[Any, Any, Reply | None]],
    ) -> _Lane:
        """Make a call. The first piece that comes of either decides, and the other call ends."""
        on_delta = self._listener.on_delta

        def hear(delta: Delta) -> None:
            assert on_delta is not None, "nobody streams where nobody listens"
            if self._leader is None:
                self._lead(lane)
            if self._leader is lane:
                on_delta(delta)

        lane = _Lane(worker, asyncio.create_task(make(hear if on_delta is not None else None)))
        self._lanes.append(lane)
        return lane

    def _won(self, lane: _Lane, reply: Reply | None) -> Won:
        assert reply is not None, "a call that wins has a reply"
        if self._leader is None:
            self._lead(lane)
        return Won(lane.worker, reply)

    def _lead(self, lane: _Lane) -> None:
        self._leader = lane
        took = self._call_policy.clock() - self._began
        self._call_policy.hedges.began(self._worker.profile.name, took)
        for other in self._lanes:
            if other is not lane:
                other.give_up(GAVE_WAY)

    async def _end(self) -> None:
        """Cancel what still goes on, and wait until it is on record."""
        for lane in self._lanes:
            lane.give_up()
        await asyncio.gather(*(lane.task for lane in self._lanes), return_exceptions=True)
