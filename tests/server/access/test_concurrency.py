from __future__ import annotations

import asyncio

import pytest

from podium.server.api_error import ApiError
from podium.server.service import ConcurrencyLimiter


async def test_requests_are_served_in_order() -> None:
    limiter = ConcurrencyLimiter(in_flight=1, queue=2)
    await limiter.acquire()
    served: list[str] = []

    async def visit(name: str) -> None:
        await limiter.acquire()
        served.append(name)
        limiter.release()

    first, second = asyncio.create_task(visit("first")), asyncio.create_task(visit("second"))
    await asyncio.sleep(0)
    assert (limiter.in_flight, limiter.waiting) == (1, 2)
    limiter.release()
    await asyncio.gather(first, second)
    assert served == ["first", "second"]
    assert limiter.in_flight == 0


async def test_beyond_the_queue_a_request_gets_a_retry_after() -> None:
    limiter = ConcurrencyLimiter(in_flight=1, queue=0)
    await limiter.acquire()
    with pytest.raises(ApiError) as refused:
        await limiter.acquire()
    assert refused.value.status == 503
    assert refused.value.retry_after == 2.0
    limiter.release()
    await limiter.acquire()


async def test_a_request_that_gives_up_waiting_leaves_the_queue() -> None:
    limiter = ConcurrencyLimiter(in_flight=1, queue=1)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert limiter.waiting == 0
    limiter.release()
    assert limiter.in_flight == 0


async def test_a_place_that_comes_as_its_taker_gives_up_is_not_lost() -> None:
    limiter = ConcurrencyLimiter(in_flight=1, queue=1)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    limiter.release()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert limiter.in_flight == 0
    await limiter.acquire()


async def test_closing_refuses_what_is_new_and_waits_for_what_is_in_progress() -> None:
    limiter = ConcurrencyLimiter(in_flight=2, queue=2)
    await limiter.acquire()
    closing = asyncio.create_task(limiter.close(10))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="shutting down"):
        await limiter.acquire()
    limiter.release()
    assert await closing


async def test_closing_does_not_wait_for_ever() -> None:
    limiter = ConcurrencyLimiter(in_flight=2, queue=2)
    await limiter.acquire()
    assert not await limiter.close(0.001)


async def test_closing_does_not_wait_for_cancelled_requests() -> None:
    limiter = ConcurrencyLimiter(in_flight=1, queue=1)
    await limiter.acquire()
    waiting = asyncio.create_task(limiter.acquire())
    closing = asyncio.create_task(limiter.close(60))
    await asyncio.sleep(0)
    limiter.release()
    waiting.cancel()
    async with asyncio.timeout(5):
        assert await closing
