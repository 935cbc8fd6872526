from __future__ import annotations

import asyncio

from podium.core.pool import Limits
from podium.engine.calls import WorkerLimiter


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def wait_of(limiter: WorkerLimiter, time: Time, tokens: int = 0) -> float:
    """Enter the limiter once; return the seconds that it waited."""
    before = len(time.slept)
    async with limiter.enter(tokens):
        pass
    return sum(time.slept[before:])


async def test_a_limiter_admits_a_minutes_calls_and_then_spaces_them_evenly() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(requests_per_minute=60), time, time.sleep)
    assert [await wait_of(limiter, time) for _ in range(60)] == [0.0] * 60
    assert await wait_of(limiter, time) == 1.0
    assert await wait_of(limiter, time) == 2.0
    time.now = 2.0
    assert await wait_of(limiter, time) == 1.0


async def test_a_limiter_never_saves_more_than_a_minute() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(tokens_per_minute=60), time, time.sleep)
    time.now = 1e6
    assert await wait_of(limiter, time, 60) == 0.0
    assert await wait_of(limiter, time, 1) == 1.0


async def test_a_request_larger_than_the_limit_waits_a_minute_not_for_ever() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(tokens_per_minute=60), time, time.sleep)
    await wait_of(limiter, time, 60)
    assert await wait_of(limiter, time, 1_000_000) == 60.0


async def test_tokens_that_were_not_used_are_given_back() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(tokens_per_minute=600), time, time.sleep)
    async with limiter.enter(600):
        pass
    limiter.correct(600, 100)
    async with limiter.enter(500):
        pass
    assert time.slept == []
    async with limiter.enter(10):
        pass
    assert time.slept == [1.0]


async def test_no_more_tokens_are_given_back_than_a_minute_has() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(tokens_per_minute=600), time, time.sleep)
    for _ in range(3):
        async with limiter.enter(3000):
            pass
        limiter.correct(3000, 1200)
    assert time.slept == [120.0, 240.0]  # each took two minutes' worth, and no time goes by


async def test_no_more_calls_are_in_flight_than_the_limit_allows() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(concurrency=2), time, time.sleep)
    inside = most = 0

    async def call() -> None:
        nonlocal inside, most
        async with limiter.enter(1):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(call() for _ in range(20)))
    assert most == 2


async def test_a_place_is_given_back_when_the_wait_for_it_is_cancelled() -> None:
    time = Time()
    limiter = WorkerLimiter(Limits(concurrency=1), time, time.sleep)

    inside: list[int] = []

    async def hold() -> None:
        async with limiter.enter(1):
            inside.append(1)
            await asyncio.Event().wait()

    holder, waiter = asyncio.create_task(hold()), asyncio.create_task(hold())
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    third = asyncio.create_task(hold())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(inside) == 2, "the third got the place that the first gave back"
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)


async def test_a_cancelled_wait_returns_its_allowance() -> None:
    time = Time()

    async def never(seconds: float) -> None:
        time.slept.append(seconds)
        await asyncio.Event().wait()

    limiter = WorkerLimiter(Limits(requests_per_minute=60, tokens_per_minute=60), time, never)
    async with limiter.enter(60):
        pass

    async def call() -> None:
        async with limiter.enter(30):
            pass

    waiting = [asyncio.create_task(call()) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    last = asyncio.create_task(call())
    await asyncio.sleep(0)
    assert time.slept[-1] == 30.0
    last.cancel()
    await asyncio.gather(last, return_exceptions=True)


def test_a_worker_without_limits_is_unlimited() -> None:
    time = Time()
    assert WorkerLimiter(Limits(), time, time.sleep).is_unlimited
    assert not WorkerLimiter(Limits(requests_per_minute=1), time, time.sleep).is_unlimited
