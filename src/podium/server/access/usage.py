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
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from podium.core.errors import StoreError
from podium.core.frozen import fast_init
from podium.core.pool import Pool
from podium.core.request import Usage
from podium.store.keys import KeyUsage
from podium.store.quotas import (
    ZERO,
    Amount,
    KeyCharges,
    RunCharge,
    charged_amount,
    is_plausible,
)

if TYPE_CHECKING:
    from podium.store.sql.quotas import QuotaStore

log = logging.getLogger("podium")

WRITE_SECONDS: Final = 0.25
"""How long usage waits to be written with others; the most that a crash loses."""

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
        """Write now, or again after the write in progress."""
        self.cancel_timer()
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def start_in(self, seconds: float) -> None:
        """Write after a delay, unless a write is scheduled already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self.start)

    def cancel_timer(self) -> None:
        """Cancel the scheduled write."""
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


class TokenCounts(NamedTuple):
    """Known numbers of input and output tokens."""

    input: int
    output: int


@final
@fast_init
@dataclass(frozen=True, slots=True)
class RequestUsage:
    """What a request used. Unknown parts are None; `assumed` is charged besides what is known.
    `orchestration` is included in `tokens`."""

    tokens: TokenCounts | None
    orchestration: TokenCounts | None
    cost_usd: float | None
    assumed: Amount

    @property
    def charged(self) -> Amount:
        """What the key's budget is charged."""
        tokens = 0 if self.tokens is None else sum(self.tokens)
        return Amount((self.cost_usd or 0.0) + self.assumed.usd, tokens + self.assumed.tokens)

    @property
    def is_known(self) -> bool:
        """True if nothing is unknown or assumed."""
        return self.tokens is not None and self.cost_usd is not None and self.assumed == ZERO


def measure_usage(
    usage: Usage,
    orchestration: Usage,
    cost_usd: float | None,
    estimate: Amount,
    seen: Amount = ZERO,
) -> RequestUsage:
    """Compute the usage of a request. Unknown parts are charged at the estimate, known ones at
    least at what its calls were `seen` to use."""
    if cost_usd is not None:
        cost_usd = max(0.0, cost_usd) if -ROUNDING_ERROR <= cost_usd < math.inf else None
    tokens = _token_counts(usage)
    missing = uncharged(seen, Amount(cost_usd or 0.0, 0 if tokens is None else sum(tokens)))
    assumed = Amount(
        estimate.usd if cost_usd is None else missing.usd,
        estimate.tokens if tokens is None else missing.tokens,
    )
    return RequestUsage(tokens, _token_counts(orchestration), cost_usd, assumed)


def uncharged(seen: Amount, charged: Amount) -> Amount:
    """Return what calls were seen to use beyond what is charged."""
    usd = seen.usd - charged.usd
    return Amount(usd if usd > ROUNDING_ERROR else 0.0, max(0, seen.tokens - charged.tokens))


def _token_counts(usage: Usage) -> TokenCounts | None:
    if not is_plausible(usage):
        return None
    return TokenCounts(usage.input_tokens or 0, usage.output_tokens or 0)


@dataclass(slots=True)
class _UsageLine:
    """Sums of one key, day and model that are not in the store yet."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    orchestration_input_tokens: int = 0
    orchestration_output_tokens: int = 0
    cost_usd: float = 0.0
    unknown_tokens: int = 0
    unknown_cost: int = 0
    assumed_tokens: int = 0
    assumed_usd: float = 0.0

    def add(self, used: RequestUsage) -> None:
        self.requests += 1
        if used.tokens is not None:
            self.input_tokens += used.tokens.input
            self.output_tokens += used.tokens.output
            if used.orchestration is not None:
                self.orchestration_input_tokens += used.orchestration.input
                self.orchestration_output_tokens += used.orchestration.output
        self.cost_usd += used.cost_usd or 0.0
        self.assume(used.assumed, tokens=used.tokens is None, cost=used.cost_usd is None)

    def assume(self, assumed: Amount, *, tokens: bool = False, cost: bool = False) -> None:
        self.assumed_tokens += assumed.tokens
        self.assumed_usd += assumed.usd
        self.unknown_tokens += tokens or assumed.tokens > 0
        self.unknown_cost += cost or assumed.usd > 0

    def merge(self, other: _UsageLine) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_LineKey = tuple[str, str, str]
"""Key, day and model."""


class UsageWriter:
    """Sums usage and writes it to the store. It belongs to one event loop."""

    def __init__(self, store: QuotaStore) -> None:
        self._store = store
        self._lines: dict[_LineKey, _UsageLine] = {}
        self._runs: dict[str, RunCharge] = {}
        self._settled: set[str] = set()
        self._writing = asyncio.Lock()
        self._writer = BackgroundWriter(self.write)
        self._closed = False

    def add(self, key_id: str, day: str, model: str, used: RequestUsage) -> None:
        """Add the usage of a request."""
        self._line(key_id, day, model).add(used)
        self._write_soon()

    def add_run(self, charge: RunCharge) -> None:
        """Add a request and what its run has used by now."""
        usage = charge.usage
        self._line(usage.key_id, usage.day, usage.model).requests += 1
        self._runs[charge.run_id] = charge
        self._write_soon()

    def add_assumed(self, key_id: str, day: str, model: str, assumed: Amount) -> None:
        """Add what calls of a request used that its run does not include."""
        self._line(key_id, day, model).assume(assumed)
        self._write_soon()

    def settle_reservation(self, reservation_id: str) -> None:
        """Delete a shared reservation with the usage added for its request, at once: other
        processes wait for what it releases."""
        self._settled.add(reservation_id)
        if not self._closed:
            self._writer.start()

    def _line(self, key_id: str, day: str, model: str) -> _UsageLine:
        key = (key_id, day, model)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _UsageLine()
        return line

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
        for when, charged in self._unwritten(key_id):
            total += charged
            if when == day:
                today += charged
            if when[:7] == day[:7]:
                month += charged
        return KeyCharges(day=today, month=month, total=total)

    def _unwritten(self, key_id: str) -> Iterator[tuple[str, Amount]]:
        """Yield days and amounts that are not written. A run counts with all that it used: the
        budget assumes the worst while the store fails."""
        for key, line in self._lines.items():
            if key[0] == key_id:
                yield key[1], charged_amount(_to_row(key, line))
        for charge in self._runs.values():
            if charge.usage.key_id == key_id:
                yield charge.usage.day, charge.amount

    async def write(self) -> bool:
        """Write all pending usage; what fails is kept and retried. True if it was written."""
        async with self._writing:
            lines, self._lines = self._lines, {}
            runs, self._runs = self._runs, {}
            settled, self._settled = self._settled, set()
            rows = [_to_row(key, line) for key, line in lines.items()]
            try:
                await self._store.record(rows, tuple(runs.values()), sorted(settled))
            except StoreError as error:
                self._runs = runs | self._runs
                self._settled |= settled
                for key, line in self._lines.items():
                    lines.setdefault(key, _UsageLine()).merge(line)
                self._lines = lines
                if lines or self._runs or self._settled:
                    self._write_soon()
                log.warning("cannot store the usage of keys yet: %s", error)
                return False
        return True

    async def close(self) -> None:
        """Write all pending usage, and accept no more."""
        self._closed = True
        await self._writer.wait()
        await self.write()


def _to_row(key: _LineKey, line: _UsageLine) -> KeyUsage:
    sums = {name: getattr(line, name) for name in line.__slots__}
    return KeyUsage(key_id=key[0], day=key[1], model=key[2], **sums)
