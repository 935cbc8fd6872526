"""Usage of keys: what a request used, what it will probably use, and writing it to the store.

A request must not wait for a disk, so usage is summed in memory per key, day and model, and written
a quarter of a second later. The store charges a run as it writes the run's end; it is recorded here
once more, for runs that are not stored or whose end could not be written, and charging a run twice
charges it once. A killed process therefore loses at most its last quarter second of gateway calls.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from podium.core.errors import StoreError
from podium.core.pool import Pool
from podium.core.request import NO_USAGE
from podium.server.access.policy import RequestCost
from podium.store.keys import (
    ZERO,
    Amount,
    KeyCharges,
    KeyUsage,
    RunCharge,
    charged_amount,
    is_plausible,
    merge_usage,
)

if TYPE_CHECKING:
    from podium.store.sql.quotas import QuotaStore

log = logging.getLogger("podium")

WRITE_SECONDS: Final = 0.25
"""The delay until usage is written with others; the most that a crash loses."""

ROUNDING_ERROR: Final = 1e-9
"""The most that a difference of sums of dollars is off by."""

NEWEST_WEIGHT: Final = 0.1
"""The weight of the newest request in the moving average of a model."""


class BackgroundWriter:
    """Runs `write` in a task, now or after a delay, one at a time. It belongs to one event loop."""

    __slots__ = ("_is_due", "_task", "_timer", "_write")

    def __init__(self, write: Callable[[], Awaitable[object]]) -> None:
        self._write = write
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_due = False

    def start(self) -> None:
        self.cancel_timer()
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def start_in(self, seconds: float) -> None:
        """Write after a delay, unless a write is scheduled already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.start)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait(self) -> None:
        """Wait for the write in progress, and cancel scheduled ones."""
        self.cancel_timer()
        if self._task is not None:
            await asyncio.wait({self._task})
        self.cancel_timer()  # a retry

    async def _run(self) -> None:
        while self._is_due:
            self._is_due = False
            await self._write()


class CostEstimator:
    """Estimates what requests for a model cost: the moving average of those before, and no less
    than reading the input at `highest_price` dollars a token."""

    def __init__(self, highest_price: float) -> None:
        self._means: dict[str, tuple[float, float]] = {}
        self._highest_price = highest_price

    def estimate(self, model: str, tokens: int) -> Amount:
        """Estimate a request of so many input tokens."""
        mean_usd, mean_tokens = self._means.get(model, (0.0, 0.0))
        return Amount(max(mean_usd, tokens * self._highest_price), max(round(mean_tokens), tokens))

    def learn(self, model: str, used: Amount) -> None:
        """Update the average with what a request used."""
        usd, tokens = self._means.get(model, (used.usd, float(used.tokens)))
        self._means[model] = (
            usd + NEWEST_WEIGHT * (used.usd - usd),
            tokens + NEWEST_WEIGHT * (used.tokens - tokens),
        )


def highest_input_price(pool: Pool) -> float:
    """Return the highest known price of an input token in the pool, in dollars."""
    prices = (worker.price for worker in pool if worker.price is not None)
    return max((price.highest_input for price in prices), default=0.0) / 1_000_000


def measure_usage(
    key_id: str,
    day: str,
    model: str,
    spent: RequestCost,
    estimate: Amount,
    seen: Amount = ZERO,
) -> KeyUsage:
    """Return the usage of one request. Unknown parts are charged at the estimate, known ones at
    least at what its calls were `seen` to use."""
    usage, planning, cost_usd = spent.usage, spent.orchestration, spent.cost_usd
    if cost_usd is not None and not -ROUNDING_ERROR <= cost_usd < math.inf:
        cost_usd = None
    cost = max(0.0, cost_usd or 0.0)
    is_known = is_plausible(usage)
    if not is_known:
        usage = planning = NO_USAGE
    elif not is_plausible(planning):
        planning = NO_USAGE
    missing = uncharged_amount(seen, Amount(cost, usage.total_tokens or 0))
    assumed_usd = estimate.usd if cost_usd is None else missing.usd
    assumed_tokens = missing.tokens if is_known else estimate.tokens
    return KeyUsage(
        key_id=key_id,
        day=day,
        model=model,
        requests=1,
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        orchestration_input_tokens=planning.input_tokens or 0,
        orchestration_output_tokens=planning.output_tokens or 0,
        cost_usd=cost,
        unknown_usage_count=int(not is_known or assumed_tokens > 0),
        unknown_cost_count=int(cost_usd is None or assumed_usd > 0),
        assumed_tokens=assumed_tokens,
        assumed_usd=assumed_usd,
    )


def uncharged_amount(seen: Amount, charged: Amount) -> Amount:
    """Return what calls were seen to use beyond what is charged."""
    usd = seen.usd - charged.usd
    return Amount(usd if usd > ROUNDING_ERROR else 0.0, max(0, seen.tokens - charged.tokens))


class UsageWriter:
    """Sums usage and writes it to the store. It belongs to one event loop."""

    def __init__(self, store: QuotaStore) -> None:
        self._store = store
        self._lines: list[KeyUsage] = []
        self._runs: dict[str, RunCharge] = {}
        self._settled: set[str] = set()
        self._writing = asyncio.Lock()
        self._writer = BackgroundWriter(self.write)
        self._closed = False

    def add(self, usage: KeyUsage, run: RunCharge | None = None) -> None:
        """Add usage, and what the run of its request has used by now."""
        self._lines.append(usage)
        if run is not None:
            self._runs[run.run_id] = run
        self._write_soon()

    def settle_reservation(self, reservation_id: str) -> None:
        """Delete a shared reservation with the usage added for its request, at once: other
        processes wait for what it releases."""
        self._settled.add(reservation_id)
        if not self._closed:
            self._writer.start()

    def _write_soon(self) -> None:
        if not self._closed:
            self._writer.start_in(WRITE_SECONDS)

    async def charges(self, key_id: str, day: str) -> KeyCharges:
        """Return what the key was charged, including what is not written yet."""
        if any(charge.usage.key_id == key_id for charge in self._runs.values()):
            await self.write()  # only the store knows how much of a run it charged already
        async with self._writing:  # a write in progress would count twice, or not at all
            stored = await self._store.charges(key_id, day)
        today, month, total = stored.day, stored.month, stored.total
        # A run counts with all that it used: the budget assumes the worst while the store fails.
        runs = (charge.usage for charge in self._runs.values())
        for usage in (*self._lines, *runs):
            if usage.key_id != key_id:
                continue
            charged = charged_amount(usage)
            total += charged
            if usage.day == day:
                today += charged
            if usage.day[:7] == day[:7]:
                month += charged
        return KeyCharges(day=today, month=month, total=total)

    async def write(self) -> None:
        """Write all pending usage; what fails is kept and retried."""
        async with self._writing:
            lines, self._lines = merge_usage(self._lines), []
            runs, self._runs = self._runs, {}
            settled, self._settled = self._settled, set()
            try:
                await self._store.record(lines, tuple(runs.values()), sorted(settled))
            except StoreError as error:
                self._lines += lines
                self._runs = runs | self._runs
                self._settled |= settled
                self._write_soon()
                log.warning("cannot store the usage of keys yet: %s", error)

    async def close(self) -> None:
        self._closed = True
        await self._writer.wait()
        await self.write()
