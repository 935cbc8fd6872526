from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from podium.core.usage import NO_USAGE, UNKNOWN_USAGE, Usage
from podium.server.access import usage as book_module
from podium.server.access.usage import UsageWriter, used_of
from podium.store.keys import Amount, KeyCharges, KeyUsage
from podium.store.quotas import LARGEST_COUNT, RunCharge
from server.access.support import MemoryKeys

DAY = "2026-01-02"
ONE = used_of(Usage(10, 5, 0, 0, 0), Usage(4, 1, 0, 0, 0), 0.25, Amount(9.0, 900))
UNKNOWN = used_of(UNKNOWN_USAGE, UNKNOWN_USAGE, None, Amount(0.5, 100))


@pytest.fixture
def keys() -> MemoryKeys:
    return MemoryKeys()


async def test_what_is_used_is_summed_up_by_key_day_and_model(keys: MemoryKeys) -> None:
    book = UsageWriter(keys)
    for _ in range(3):
        book.enter("key_1", DAY, "podium", ONE)
    book.enter("key_1", DAY, "mini", ONE)
    book.enter("key_1", "2026-01-03", "podium", ONE)
    book.enter("key_2", DAY, "podium", ONE)
    await book.close()
    assert len(keys.used) == 4
    assert keys.used[0] == KeyUsage(
        key_id="key_1",
        day=DAY,
        model="podium",
        requests=3,
        input_tokens=30,
        output_tokens=15,
        orchestration_input_tokens=12,
        orchestration_output_tokens=3,
        cost_usd=0.75,
    )


async def test_the_unknown_is_counted_as_unknown_and_charged_as_assumed(keys: MemoryKeys) -> None:
    book = UsageWriter(keys)
    book.enter("key_1", DAY, "podium", ONE)
    book.enter("key_1", DAY, "podium", UNKNOWN)
    await book.close()
    (row,) = keys.used
    assert (row.requests, row.unknown_tokens, row.unknown_cost) == (2, 1, 1)
    assert (row.input_tokens, row.output_tokens, row.cost_usd) == (10, 5, 0.25)
    assert (row.assumed_tokens, row.assumed_usd) == (100, 0.5)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(10, None, 0, 0, 0),
        Usage(None, 10, 0, 0, 0),
        Usage(-1, 10, 0, 0, 0),
        Usage(10, LARGEST_COUNT + 1, 0, 0, 0),
    ],
)
def test_tokens_that_are_half_known_or_beyond_belief_are_unknown(usage: Usage) -> None:
    used = used_of(usage, NO_USAGE, 0.25, Amount(9.0, 900))
    assert used.tokens is None
    assert used.charged == Amount(0.25, 900)


@pytest.mark.parametrize("cost", [-0.01, float("nan"), float("inf"), None])
def test_a_cost_beyond_belief_is_unknown(cost: float | None) -> None:
    used = used_of(Usage(1, 1, 0, 0, 0), NO_USAGE, cost, Amount(9.0, 900))
    assert used.charged == Amount(9.0, 2)


def test_a_cost_that_lacks_a_crumb_of_nothing_is_nothing() -> None:
    used = used_of(Usage(1, 1, 0, 0, 0), NO_USAGE, -1e-17, Amount(9.0, 900))
    assert used.charged == Amount(0.0, 2)


async def test_lines_are_written_together_a_while_later(
    keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "WRITE_SECONDS", 0.0)
    book = UsageWriter(keys)
    book.enter("key_1", DAY, "podium", ONE)
    book.enter("key_1", DAY, "podium", ONE)
    assert keys.used == []
    for _ in range(5):
        await asyncio.sleep(0)
    assert [row.requests for row in keys.used] == [2]
    book.enter("key_1", DAY, "podium", ONE)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [row.requests for row in keys.used] == [2, 1]
    await book.close()
    assert [row.requests for row in keys.used] == [2, 1]


async def test_what_cannot_be_written_is_kept_and_written_later(
    keys: MemoryKeys, caplog: pytest.LogCaptureFixture
) -> None:
    book = UsageWriter(keys)
    keys.broken = True
    book.enter("key_1", DAY, "podium", ONE)
    with caplog.at_level(logging.WARNING, logger="podium"):
        await book.write()
    assert "not stored yet: the disk is full" in caplog.text
    book.enter("key_1", DAY, "podium", ONE)
    keys.broken = False
    await book.close()
    assert [row.requests for row in keys.used] == [2]


async def test_a_standing_counts_the_written_and_the_unwritten_once_each(keys: MemoryKeys) -> None:
    book = UsageWriter(keys)
    book.enter("key_1", "2026-01-01", "podium", ONE)
    await book.write()
    book.enter("key_1", DAY, "podium", ONE)
    book.enter("key_1", "2025-12-31", "podium", ONE)
    book.enter("key_2", DAY, "podium", ONE)
    each = Amount(0.25, 15)
    expected = KeyCharges(day=each, month=each + each, total=each + each + each)
    assert await book.standing("key_1", DAY) == expected
    await book.close()
    assert await book.standing("key_1", DAY) == expected


class SlowKeys(MemoryKeys):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = asyncio.Event()
        self.let = asyncio.Event()

    async def record(
        self,
        used: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        closed: Sequence[str] = (),
    ) -> None:
        self.writing.set()
        await self.let.wait()
        await super().record(used, runs, closed)


async def test_a_standing_waits_for_what_is_just_being_written() -> None:
    keys = SlowKeys()
    book = UsageWriter(keys)
    book.enter("key_1", DAY, "podium", ONE)
    writing = asyncio.create_task(book.write())
    await keys.writing.wait()
    book.enter("key_1", DAY, "podium", ONE)
    standing = asyncio.create_task(book.standing("key_1", DAY))
    await asyncio.sleep(0)
    assert not standing.done()
    keys.let.set()
    assert (await standing).day == Amount(0.5, 30)
    await writing
    await book.close()
