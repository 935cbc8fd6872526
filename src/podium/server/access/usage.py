"""The book of what was used with each key: summed up in memory, written to the store in batches.

A request must not wait for a disk, so what it used is added to a line in memory (one for each
key, day and model) and the lines are written together a quarter of a second later. What a run used
is charged by the store as it writes the run's end; here it is entered once more, for a run may be
one that is not kept, or one that could not be written, and charging it twice charges it once. So a
process that is killed loses the calls of workers by their own names in its last quarter of a
second, and no more; one that ends in order loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from podium.core.errors import StoreError
from podium.core.frozen import fast_init
from podium.core.usage import Usage
from podium.store.keys import ZERO, Amount, KeyCharges, KeyStore, KeyUsage
from podium.store.quotas import RunCharge, is_plausible

log = logging.getLogger("podium")

WRITE_SECONDS: Final = 0.25
"""How long a line waits for others to be written with it; what a crash may cost."""

CRUMB: Final = 1e-9
"""What a difference of sums may lack of nothing, as fractions of a dollar are counted."""


class Tokens(NamedTuple):
    """Tokens that are known."""

    input: int
    output: int


@final
@fast_init
@dataclass(frozen=True, slots=True)
class Used:
    """What a request used. What is unknown of it is None, and `assumed` is what its key is
    charged besides what is known; `orchestration` is a part of `tokens`."""

    tokens: Tokens | None
    orchestration: Tokens | None
    cost_usd: float | None
    assumed: Amount

    @property
    def charged(self) -> Amount:
        """What the key's budget is charged."""
        tokens = 0 if self.tokens is None else sum(self.tokens)
        return Amount((self.cost_usd or 0.0) + self.assumed.usd, tokens + self.assumed.tokens)

    @property
    def is_known(self) -> bool:
        """Whether that is nothing but what was used."""
        return self.tokens is not None and self.cost_usd is not None and self.assumed == ZERO


def used_of(
    usage: Usage,
    orchestration: Usage,
    cost_usd: float | None,
    claimed: Amount,
    seen: Amount = ZERO,
) -> Used:
    """What was used, of which nothing is believed that cannot be. The unknown is charged as it was
    `claimed`, and the known as what the request's calls were `seen` to use where that is more."""
    if cost_usd is not None:
        cost_usd = max(0.0, cost_usd) if -CRUMB <= cost_usd < math.inf else None
    tokens = _tokens(usage)
    beyond = missing(seen, Amount(cost_usd or 0.0, 0 if tokens is None else sum(tokens)))
    assumed = Amount(
        claimed.usd if cost_usd is None else beyond.usd,
        claimed.tokens if tokens is None else beyond.tokens,
    )
    return Used(tokens, _tokens(orchestration), cost_usd, assumed)


def missing(seen: Amount, charged: Amount) -> Amount:
    """What calls were seen to use and nobody is charged for."""
    usd = seen.usd - charged.usd
    return Amount(usd if usd > CRUMB else 0.0, max(0, seen.tokens - charged.tokens))


def _tokens(usage: Usage) -> Tokens | None:
    if not is_plausible(usage):
        return None
    return Tokens(usage.input_tokens or 0, usage.output_tokens or 0)


class _Line:
    """The sums of one key, day and model that are not in the store yet."""

    __slots__ = (
        "assumed_tokens",
        "assumed_usd",
        "cost_usd",
        "input_tokens",
        "orchestration_input_tokens",
        "orchestration_output_tokens",
        "output_tokens",
        "requests",
        "unknown_cost",
        "unknown_tokens",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.orchestration_input_tokens = 0
        self.orchestration_output_tokens = 0
        self.cost_usd = 0.0
        self.unknown_tokens = 0
        self.unknown_cost = 0
        self.assumed_tokens = 0
        self.assumed_usd = 0.0

    def add(self, used: Used) -> None:
        self.requests += 1
        if used.tokens is not None:
            self.input_tokens += used.tokens.input
            self.output_tokens += used.tokens.output
            if used.orchestration is not None:
                self.orchestration_input_tokens += used.orchestration.input
                self.orchestration_output_tokens += used.orchestration.output
        self.cost_usd += used.cost_usd or 0.0
        self.assume(
            used.assumed,
            unknown_tokens=used.tokens is None,
            unknown_cost=used.cost_usd is None,
        )

    def assume(
        self, assumed: Amount, *, unknown_tokens: bool = False, unknown_cost: bool = False
    ) -> None:
        self.assumed_tokens += assumed.tokens
        self.assumed_usd += assumed.usd
        self.unknown_tokens += unknown_tokens or assumed.tokens > 0
        self.unknown_cost += unknown_cost or assumed.usd > 0

    def merge(self, other: _Line) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def charged(self) -> Amount:
        return Amount(
            self.cost_usd + self.assumed_usd,
            self.input_tokens + self.output_tokens + self.assumed_tokens,
        )


_Place = tuple[str, str, str]
"""Key, day and model."""


class UsageWriter:
    """What was used, on its way to the store. It belongs to one event loop."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._lines: dict[_Place, _Line] = {}
        self._runs: dict[str, RunCharge] = {}
        self._closed_tabs: set[str] = set()
        self._writing = asyncio.Lock()
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    def enter(self, key_id: str, day: str, model: str, used: Used) -> None:
        """Add what a request used. Returns at once; must be called on the event loop."""
        self._line(key_id, day, model).add(used)
        if self._soon is None:
            self._write_soon()

    def enter_run(self, charge: RunCharge) -> None:
        """Add a request, and what the run that it began or went on with has used by now. Returns
        at once; must be called on the event loop."""
        used = charge.used
        self._line(used.key_id, used.day, used.model).requests += 1
        self._runs[charge.run_id] = charge
        if self._soon is None:
            self._write_soon()

    def enter_missing(self, key_id: str, day: str, model: str, assumed: Amount) -> None:
        """Add what calls of a request used that are not on the run that it was entered with.
        Returns at once; must be called on the event loop."""
        self._line(key_id, day, model).assume(assumed)
        if self._soon is None:
            self._write_soon()

    def close_tab(self, tab_id: str) -> None:
        """The tab that every process knows of is charged by what was entered for its request. That
        is written at once, for others wait for what it gives back."""
        self._closed_tabs.add(tab_id)
        if self._closed or (self._writer is not None and not self._writer.done()):
            return  # who writes now goes on with this
        if self._soon is not None:
            self._soon.cancel()
        self._write_now()

    def _line(self, key_id: str, day: str, model: str) -> _Line:
        place = (key_id, day, model)
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = _Line()
        return line

    async def standing(self, key_id: str, day: str) -> KeyCharges:
        """What the key has been charged: what the store knows, of every process, and what this
        one has not written yet."""
        if any(charge.used.key_id == key_id for charge in self._runs.values()):
            await self.write()  # only the store knows how much of that it was told already
        async with self._writing:  # or else what is being written would count twice, or not at all
            stored = await self._keys.standing(key_id, day)
        today, month, total = stored.day, stored.month, stored.total
        for when, charged in self._unwritten(key_id):
            total += charged
            if when == day:
                today += charged
            if when[:7] == day[:7]:
                month += charged
        return KeyCharges(day=today, month=month, total=total)

    def _unwritten(self, key_id: str) -> Iterator[tuple[str, Amount]]:
        """What was used with the key, and on which day. A run is there with all that it used: the
        budget assumes the worst while nothing can be written."""
        for (whose, when, _), line in self._lines.items():
            if whose == key_id:
                yield when, line.charged
        for charge in self._runs.values():
            if charge.used.key_id == key_id:
                yield charge.used.day, charge.charged

    async def write(self) -> bool:
        """Write what there is, and say whether it was. What could not be is kept, and tried again
        soon."""
        async with self._writing:
            lines, self._lines = self._lines, {}
            runs, self._runs = self._runs, {}
            closed, self._closed_tabs = self._closed_tabs, set()
            rows = [_row(place, line) for place, line in lines.items()]
            try:
                await self._keys.record(rows, tuple(runs.values()), sorted(closed))
            except StoreError as error:
                self._runs = runs | self._runs
                self._closed_tabs |= closed
                self._keep(lines)
                log.warning("what was used with keys is not stored yet: %s", error)
                return False
        return True

    async def close(self) -> None:
        """Write what there is, and take nothing more."""
        self._closed = True
        if self._soon is not None:
            self._soon.cancel()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self.write()

    def _keep(self, lines: dict[_Place, _Line]) -> None:
        for place, line in self._lines.items():
            lines.setdefault(place, _Line()).merge(line)
        self._lines = lines
        if (lines or self._runs or self._closed_tabs) and self._soon is None:
            self._write_soon()

    def _write_soon(self) -> None:
        if not self._closed:
            self._soon = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_now)

    def _write_now(self) -> None:
        self._soon = None
        self._writer = asyncio.get_running_loop().create_task(self._write_out())

    async def _write_out(self) -> None:
        while await self.write() and self._closed_tabs:
            pass


def _row(place: _Place, line: _Line) -> KeyUsage:
    sums = {name: getattr(line, name) for name in line.__slots__}
    return KeyUsage(key_id=place[0], day=place[1], model=place[2], **sums)
