"""What several want at once, done in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from podium.store.sql.run_store import MAX_BATCH, Batcher


class Desk:
    """Serves numbers when it may; the wrong one spoils what is done together, and fails alone."""

    def __init__(self, wrong: int | None = None) -> None:
        self.wrong = wrong
        self.alone: list[int] = []
        self.together: list[list[int]] = []
        self.may_serve = asyncio.Event()
        self.may_serve.set()
        self.batcher = Batcher[int](self.serve)

    async def serve(self, numbers: Sequence[int]) -> None:
        if len(numbers) == 1:
            self.alone += numbers
            await self.may_serve.wait()
        else:
            self.together.append(list(numbers))
            await asyncio.sleep(0)
        if self.wrong in numbers:
            raise ValueError(f"{self.wrong} is wrong")

    def ask(self, *numbers: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.batcher.add(number)) for number in numbers]

    async def keep_busy(self) -> asyncio.Task[None]:
        """Have it serve one, until it may."""
        self.may_serve.clear()
        (first,) = self.ask(0)
        while not self.alone:
            await asyncio.sleep(0)
        return first


async def test_a_single_request_is_a_batch_of_one() -> None:
    desk = Desk()
    for number in (1, 2):
        await desk.batcher.add(number)
    assert (desk.alone, desk.together) == ([1, 2], [])


async def test_waiting_requests_form_batches_up_to_the_limit() -> None:
    desk = Desk()
    first = await desk.keep_busy()
    later = desk.ask(*range(1, MAX_BATCH + 3))
    await asyncio.sleep(0)
    assert not desk.together
    desk.may_serve.set()
    await asyncio.gather(first, *later)
    assert desk.together == [list(range(1, MAX_BATCH + 1)), [MAX_BATCH + 1, MAX_BATCH + 2]]
    assert desk.alone == [0]


async def test_one_that_fails_costs_no_other_anything() -> None:
    desk = Desk(wrong=2)
    ended = await asyncio.gather(*desk.ask(1, 2, 3), return_exceptions=True)
    assert [str(item) for item in ended] == ["None", "2 is wrong", "None"]
    assert (desk.together, desk.alone) == ([[1, 2, 3]], [1, 2, 3])


async def test_a_cancelled_request_is_not_served() -> None:
    desk = Desk()
    first = await desk.keep_busy()
    gone, stays = desk.ask(1, 2)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    desk.may_serve.set()
    await asyncio.gather(first, stays)
    assert (desk.alone, desk.together) == ([0, 2], [])


async def test_a_cancelled_request_does_not_fail_its_batch() -> None:
    desk = Desk()
    first = await desk.keep_busy()
    (later,) = desk.ask(1)
    await asyncio.sleep(0)
    first.cancel()
    desk.may_serve.set()
    await later
    assert desk.alone == [0, 1]


async def test_closing_waits_for_what_is_being_done() -> None:
    desk = Desk()
    first = await desk.keep_busy()
    closing = asyncio.create_task(desk.batcher.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    desk.may_serve.set()
    await closing
    await first


async def test_waiters_fail_when_the_worker_process_ends() -> None:
    desk = Desk()
    first = await desk.keep_busy()
    assert desk.batcher._writer is not None
    desk.batcher._writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(first, 5)
