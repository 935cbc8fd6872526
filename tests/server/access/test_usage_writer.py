from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Usage
from podium.server.access import RequestCost
from podium.server.access import usage as usage_module
from podium.server.access.usage import UsageWriter, measure_usage
from podium.store.keys import MAX_TOKENS, Amount, KeyCharges, KeyUsage, RunCharge, charged_amount
from server.access.support import MemoryKeys

DAY = "2026-01-02"
ONE = measure_usage(
    "key_1",
    DAY,
    "podium",
    RequestCost(Usage(10, 5, 0, 0, 0), Usage(4, 1, 0, 0, 0), 0.25),
    Amount(9.0, 900),
)
UNKNOWN = measure_usage(
    "key_1", DAY, "podium", RequestCost(UNKNOWN_USAGE, UNKNOWN_USAGE, None), Amount(0.5, 100)
)


@pytest.fixture
def keys() -> MemoryKeys:
    return MemoryKeys()


async def test_usage_is_summed_by_key_day_and_model(keys: MemoryKeys) -> None:
    usage_writer = UsageWriter(keys)
    for _ in range(3):
        usage_writer.add(ONE)
    usage_writer.add(replace(ONE, model="mini"))
    usage_writer.add(replace(ONE, day="2026-01-03"))
    usage_writer.add(replace(ONE, key_id="key_2"))
    await usage_writer.close()
    assert len(keys.used) == 4
    assert keys.used[1] == KeyUsage(
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
    usage_writer = UsageWriter(keys)
    usage_writer.add(ONE)
    usage_writer.add(UNKNOWN)
    await usage_writer.close()
    (row,) = keys.used
    assert (row.requests, row.unknown_usage_count, row.unknown_cost_count) == (2, 1, 1)
    assert (row.input_tokens, row.output_tokens, row.cost_usd) == (10, 5, 0.25)
    assert (row.assumed_tokens, row.assumed_usd) == (100, 0.5)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(10, None, 0, 0, 0),
        Usage(None, 10, 0, 0, 0),
        Usage(-1, 10, 0, 0, 0),
        Usage(10, MAX_TOKENS + 1, 0, 0, 0),
    ],
)
def test_partial_or_implausible_token_counts_are_unknown(usage: Usage) -> None:
    used = measure_usage(
        "key_1", DAY, "podium", RequestCost(usage, NO_USAGE, 0.25), Amount(9.0, 900)
    )
    assert (used.unknown_usage_count, used.input_tokens, used.output_tokens) == (1, 0, 0)
    assert charged_amount(used) == Amount(0.25, 900)


@pytest.mark.parametrize("cost", [-0.01, float("nan"), float("inf"), None])
def test_an_implausible_cost_is_unknown(cost: float | None) -> None:
    used = measure_usage(
        "key_1", DAY, "podium", RequestCost(Usage(1, 1, 0, 0, 0), NO_USAGE, cost), Amount(9.0, 900)
    )
    assert charged_amount(used) == Amount(9.0, 2)


def test_a_cost_below_zero_by_rounding_is_zero() -> None:
    used = measure_usage(
        "key_1",
        DAY,
        "podium",
        RequestCost(Usage(1, 1, 0, 0, 0), NO_USAGE, -1e-17),
        Amount(9.0, 900),
    )
    assert charged_amount(used) == Amount(0.0, 2)


async def test_usage_is_written_in_batches(
    keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_module, "WRITE_SECONDS", 0.0)
    usage_writer = UsageWriter(keys)
    usage_writer.add(ONE)
    usage_writer.add(ONE)
    assert keys.used == []
    for _ in range(5):
        await asyncio.sleep(0)
    assert [row.requests for row in keys.used] == [2]
    usage_writer.add(ONE)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [row.requests for row in keys.used] == [2, 1]
    await usage_writer.close()
    assert [row.requests for row in keys.used] == [2, 1]


async def test_failed_writes_are_retried_later(
    keys: MemoryKeys, caplog: pytest.LogCaptureFixture
) -> None:
    usage_writer = UsageWriter(keys)
    keys.broken = True
    usage_writer.add(ONE)
    with caplog.at_level(logging.WARNING, logger="podium"):
        await usage_writer.write()
    assert "cannot store the usage of keys yet: the disk is full" in caplog.text
    usage_writer.add(ONE)
    keys.broken = False
    await usage_writer.close()
    assert [row.requests for row in keys.used] == [2]


async def test_charges_count_written_and_pending_usage_once(keys: MemoryKeys) -> None:
    usage_writer = UsageWriter(keys)
    usage_writer.add(replace(ONE, day="2026-01-01"))
    await usage_writer.write()
    usage_writer.add(ONE)
    usage_writer.add(replace(ONE, day="2025-12-31"))
    usage_writer.add(replace(ONE, key_id="key_2"))
    item = Amount(0.25, 15)
    expected = KeyCharges(day=item, month=item + item, total=item + item + item)
    assert await usage_writer.charges("key_1", DAY) == expected
    await usage_writer.close()
    assert await usage_writer.charges("key_1", DAY) == expected


class SlowKeys(MemoryKeys):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = asyncio.Event()
        self.let = asyncio.Event()

    async def record(
        self,
        usage: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        settled: Sequence[str] = (),
    ) -> None:
        self.writing.set()
        await self.let.wait()
        await super().record(usage, runs, settled)


async def test_a_standing_waits_for_what_is_just_being_written() -> None:
    keys = SlowKeys()
    usage_writer = UsageWriter(keys)
    usage_writer.add(ONE)
    writing = asyncio.create_task(usage_writer.write())
    await keys.writing.wait()
    usage_writer.add(ONE)
    standing = asyncio.create_task(usage_writer.charges("key_1", DAY))
    await asyncio.sleep(0)
    assert not standing.done()
    keys.let.set()
    assert (await standing).day == Amount(0.5, 30)
    await writing
    await usage_writer.close()
