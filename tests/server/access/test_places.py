from __future__ import annotations

import asyncio

import pytest

from podium.server.access.concurrency import ConcurrencyLimiter
from podium.server.api_error import ApiError


async def test_who_comes_first_is_served_first() -> None:
    places = ConcurrencyLimiter(in_flight=1, queue=2)
    await places.take()
    served: list[str] = []

    async def visit(name: str) -> None:
        await places.take()
        served.append(name)
        places.give_back()

    first, second = asyncio.create_task(visit("first")), asyncio.create_task(visit("second"))
    await asyncio.sleep(0)
    assert (places.taken, places.waiting) == (1, 2)
    places.give_back()
    await asyncio.gather(first, second)
    assert served == ["first", "second"]
    assert places.taken == 0


async def test_beyond_the_queue_a_request_is_told_when_to_come_back() -> None:
    places = ConcurrencyLimiter(in_flight=1, queue=0)
    await places.take()
    with pytest.raises(ApiError) as refused:
        await places.take()
    assert refused.value.status == 503
    assert refused.value.retry_after == 2.0
    places.give_back()
    await places.take()


async def test_a_request_that_gives_up_waiting_leaves_the_queue() -> None:
    places = ConcurrencyLimiter(in_flight=1, queue=1)
    await places.take()
    waiting = asyncio.create_task(places.take())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert places.waiting == 0
    places.give_back()
    assert places.taken == 0


async def test_a_place_that_comes_as_its_taker_gives_up_is_not_lost() -> None:
    places = ConcurrencyLimiter(in_flight=1, queue=1)
    await places.take()
    waiting = asyncio.create_task(places.take())
    await asyncio.sleep(0)
    places.give_back()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert places.taken == 0
    await places.take()


async def test_closing_refuses_what_is_new_and_waits_for_what_goes_on() -> None:
    places = ConcurrencyLimiter(in_flight=2, queue=2)
    await places.take()
    closing = asyncio.create_task(places.close(10))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="about to stop"):
        await places.take()
    places.give_back()
    assert await closing


async def test_closing_does_not_wait_for_ever() -> None:
    places = ConcurrencyLimiter(in_flight=2, queue=2)
    await places.take()
    assert not await places.close(0.001)
