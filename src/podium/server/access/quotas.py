"""What a key may spend: its budgets of the day, the month and in all, in money and in tokens.

Every request in flight has a *tab* on its key's purse. It claims what the request will probably
use, or what its calls have used as soon as that is more; and each call in flight holds what it may
use at most. A request begins only while the claims and what was charged leave something of every
cap, and each of its calls only while the caps have room for its hold beside all others'; while
calls in flight may turn out cheaper than their holds, it waits for them. So a cap holds for all
requests together, however many run at once: it can be passed by no more than what a call uses
beyond its hold, which is the error of guessing the size of its input. When a request is done, its
tab is replaced by what it did use; what stays unknown of that is charged as it was claimed: a
budget must not be escaped by not telling. A request that is settled after midnight counts for the
day on which it is.

Where other processes serve the same key from the same store, they have tabs of their own, and what
is here is a view: a hold is certain only when the `till` has secured it in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeVar, get_args

from podium.core.budget import CallReservation, Remaining
from podium.core.errors import BudgetExhausted, BudgetUnavailable, StoreError
from podium.core.pool import Pool
from podium.store.keys import NO_CAP, ZERO, Allowance, Amount, KeyCharges, Rules
from podium.store.quotas import (
    NO_OTHERS,
    OtherProcesses,
    ReservationResult,
    ReservationRow,
    ReservationStore,
    larger_of,
)

NEWEST_COUNTS: Final = 0.1
"""How much the newest request counts in the experience, against all before it."""


class CostEstimator:
    """What requests for a model come to.

    A tier's plan may take ten calls or one, of workers at any price; how much that is shows only
    as it happens, and no longer question tells it. So a request is taken to come to what those
    before it did on average, and to no less than what reading it costs: its tokens, at `dearest`
    dollars each.
    """

    def __init__(self, dearest: float) -> None:
        self._means: dict[str, tuple[float, float]] = {}
        self._dearest = dearest

    def estimate(self, model: str, tokens: int) -> Amount:
        """What a request of so many tokens will probably come to."""
        mean_usd, mean_tokens = self._means.get(model, (0.0, 0.0))
        return Amount(max(mean_usd, tokens * self._dearest), max(round(mean_tokens), tokens))

    def learn(self, model: str, used: Amount) -> None:
        """A request has come to this."""
        usd, tokens = self._means.get(model, (used.usd, float(used.tokens)))
        self._means[model] = (
            usd + NEWEST_COUNTS * (used.usd - usd),
            tokens + NEWEST_COUNTS * (used.tokens - tokens),
        )


def dearest(pool: Pool) -> float:
    """The most that reading a token costs anywhere in the pool, in dollars, as far as known."""
    prices = (worker.price for worker in pool if worker.price is not None)
    return max((price.highest_input for price in prices), default=0.0) / 1_000_000


Period = Literal["day", "month", "total"]


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A cap that leaves nothing: of which period, on what, and how much it is. `held` says that
    requests in flight claim the rest, so that some of it may come back."""

    period: Period
    what: Literal["usd", "tokens"]
    cap: float
    held: bool


class Sharing(Protocol):
    """Where the tabs of every process with the same key meet."""

    async def secure(self, tab: Reservation) -> bool:
        """Have the store grant all that the tab takes; False where the caps have no room for it,
        and what they have is known anew."""
        ...

    def changed(self, tab: Reservation) -> None:
        """Write down soon that the tab takes less, or that more of it is used."""
        ...

    async def look(self, change: asyncio.Future[None]) -> None:
        """Wait for that change, or for one elsewhere."""
        ...


class KeyBudget:
    """The budgets of one key. It lives on one event loop. `till` is where it is shared with other
    processes, if it is."""

    __slots__ = (
        "_calls",
        "_caps",
        "_charged",
        "_claimed",
        "_elsewhere",
        "_reserved",
        "_tabs",
        "_waiting",
        "till",
    )

    def __init__(self, rules: Rules) -> None:
        caps: tuple[tuple[Period, Allowance], ...] = (
            ("day", rules.per_day),
            ("month", rules.per_month),
            ("total", rules.in_total),
        )
        self._caps = tuple(cap for cap in caps if cap[1] != NO_CAP)
        self._charged: dict[Period, Amount] = dict.fromkeys(get_args(Period), ZERO)
        self._claimed = ZERO
        self._reserved = ZERO
        self._tabs = 0
        self._calls = 0
        self._elsewhere = NO_OTHERS
        self.till: Sharing | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_capped(self) -> bool:
        """Whether there is any cap, so that it matters what was charged."""
        return bool(self._caps)

    @property
    def has_calls(self) -> bool:
        """Whether calls are in flight, which may be settled for less than they hold."""
        return self._calls > 0 or self._elsewhere.calls > 0

    def stand(self, standing: KeyCharges, elsewhere: OtherProcesses | None = None) -> None:
        """So much has been charged, and is claimed elsewhere; what is claimed here stays so."""
        self._charged = {"day": standing.day, "month": standing.month, "total": standing.total}
        if elsewhere is not None:
            self._elsewhere = elsewhere

    def covers(self, granted: Amount, needed: Amount) -> bool:
        """Whether nothing is needed beyond what was granted, of what is capped."""
        return not any(
            (cap.usd is not None and needed.usd > granted.usd)
            or (cap.tokens is not None and needed.tokens > granted.tokens)
            for _, cap in self._caps
        )

    def exhausted(self) -> Exhausted | None:
        """The first cap that leaves nothing, or None while each leaves something."""
        claimed = self._claimed + self._elsewhere.claimed
        for period, cap in self._caps:
            charged = self._charged[period]
            if cap.usd is not None and charged.usd + claimed.usd >= cap.usd:
                return Exhausted(period, "usd", cap.usd, held=charged.usd < cap.usd)
            if cap.tokens is not None and charged.tokens + claimed.tokens >= cap.tokens:
                return Exhausted(period, "tokens", cap.tokens, held=charged.tokens < cap.tokens)
        return None

    def left(self, own: Amount = ZERO) -> Allowance:
        """What may still be used, besides what is claimed by others than `own`."""
        return self._besides(self._claimed + self._elsewhere.claimed, own)

    def left_for_calls(self, own: Amount) -> Allowance:
        """The same, besides what calls in flight hold beyond those claims."""
        return self._besides(self._reserved + self._elsewhere.taken, own)

    def _besides(self, taken: Amount, own: Amount) -> Allowance:
        usd: float | None = None
        tokens: int | None = None
        for period, cap in self._caps:
            charged = self._charged[period]
            if cap.usd is not None:
                rest = max(0.0, cap.usd - charged.usd - taken.usd + own.usd)
                usd = rest if usd is None else min(usd, rest)
            if cap.tokens is not None:
                remaining = max(0, cap.tokens - charged.tokens - taken.tokens + own.tokens)
                tokens = remaining if tokens is None else min(tokens, remaining)
        return Allowance(usd=usd, tokens=tokens)

    def open_tab(self, estimate: Amount) -> Reservation:
        """A request begins: it claims the estimate, or what is left where that is less."""
        left = self.left()
        estimate = Amount(
            estimate.usd if left.usd is None else min(estimate.usd, left.usd),
            estimate.tokens if left.tokens is None else min(estimate.tokens, left.tokens),
        )
        self._tabs += 1
        self._claimed += estimate
        self._reserved += estimate
        return Reservation(self, estimate)

    def take_up(self, used: Amount) -> Reservation:
        """A run goes on that has used so much without being charged for it yet."""
        used = larger_of(used, ZERO)
        self._tabs += 1
        self._claimed += used
        self._reserved += used
        tab = Reservation(self, ZERO, used)
        tab.takes_over = True
        return tab

    def change_by(self, claimed: Amount, reserved: Amount, calls: Literal[1, -1]) -> None:
        """A call of a tab begins or has ended, which makes so much of a difference."""
        self._claimed += claimed
        self._reserved += reserved
        self._calls += calls
        if calls < 0:
            self._wake()

    def settle(self, tab: Reservation, used: Amount) -> None:
        """In the place of what the tab claims, charge what was used."""
        self._claimed = self._claimed - tab.claim
        self._reserved = self._reserved - tab.reserved
        self._tabs -= 1
        if not self._tabs:
            self._claimed = self._reserved = ZERO  # sums of fractions leave crumbs
        self.charge(used)
        self._wake()

    def charge(self, used: Amount) -> None:
        """Charge what was used without a tab."""
        self._charged = {period: sum_ + used for period, sum_ in self._charged.items()}

    def tightest(self, what: str) -> float:
        """The cap on `usd` or `tokens` that leaves least."""
        leaves = [
            (getattr(cap, what) - getattr(self._charged[period], what), getattr(cap, what))
            for period, cap in self._caps
            if getattr(cap, what) is not None
        ]
        return float(min(leaves)[1])

    async def change(self) -> None:
        """Wait until a call has ended, or a request was settled."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await (future if self.till is None else self.till.look(future))
        finally:
            self._waiting.discard(future)  # who looks elsewhere may wait for long, again and again

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Reservation:
    """What one request in flight claims of its key's purse; an `Account` for its run's ledger.

    Where the purse is shared, others know the tab by its `id` and by the `run_id` of the run on
    record that is charged in its place, and `granted` is what its calls may take without asking:
    nothing at first, for others' calls may hold what it claims.
    """

    __slots__ = (
        "_calls",
        "_estimate",
        "_held",
        "_purse",
        "_used",
        "granted",
        "id",
        "model",
        "run_id",
        "takes_over",
    )

    def __init__(self, purse: KeyBudget, estimate: Amount, used: Amount = ZERO) -> None:
        self._purse = purse
        self._estimate = estimate
        self._held = ZERO
        self._used = used
        self._calls = 0
        self.id = ""
        self.model = ""
        self.run_id = ""
        self.takes_over = False
        self.granted = ZERO

    @property
    def used(self) -> Amount:
        """What its calls have used."""
        return self._used

    @property
    def claim(self) -> Amount:
        """What others must leave to this request: the estimate, or what its calls have used where
        that is more."""
        return larger_of(self._estimate, self._used)

    @property
    def reserved(self) -> Amount:
        """The same, with what its calls in flight may use."""
        return larger_of(self._estimate, self.needed)

    @property
    def needed(self) -> Amount:
        """What its calls have used, and may use."""
        return self._used + self._held

    @property
    def left(self) -> Remaining:
        """What another call of this request may use."""
        allowed, mine = self._purse.left_for_calls(self.reserved), self.needed
        return Remaining(
            None if allowed.tokens is None else allowed.tokens - mine.tokens,
            None if allowed.usd is None else allowed.usd - mine.usd,
        )

    @property
    def may_get_back(self) -> bool:
        """Whether calls with the same key are in flight."""
        return self._purse.has_calls

    def exhausted(self, cap: str) -> BudgetExhausted:
        """The error that says that it is the key's."""
        return BudgetExhausted(cap, self._purse.tightest(cap), "the key's budget")

    def hold(self, hold: CallReservation) -> None:
        """A call begins that may use so much."""
        self._change(Amount(hold.usd, hold.tokens), ZERO, 1)

    def settle(self, hold: CallReservation, tokens: int, usd: float) -> None:
        """That call has ended, and this is what it counts for."""
        self._change(Amount(-hold.usd, -hold.tokens), Amount(usd, tokens), -1)
        if self._purse.till is not None:
            self._purse.till.changed(self)

    @property
    def is_shared(self) -> bool:
        """Whether other processes have tabs on the same purse."""
        return self._purse.till is not None

    async def secure(self) -> bool:
        """Make sure of all that the tab takes, with every process."""
        till = self._purse.till
        if till is None or self._purse.covers(self.granted, self.needed):
            return True
        return await till.secure(self)

    def row(self, key_id: str) -> ReservationRow:
        """The tab as others are to see it."""
        return ReservationRow(
            id=self.id,
            key_id=key_id,
            model=self.model,
            run_id=self.run_id,
            takes_over=self.takes_over,
            used=self._used,
            claimed=self.claim,
            taken=self.reserved,
            needed=self.needed,
            granted=self.granted,
            calls=self._calls,
        )

    def _change(self, held: Amount, used: Amount, calls: Literal[1, -1]) -> None:
        claim, reserved = self.claim, self.reserved
        self._held += held
        self._used += used
        self._calls += calls
        self._purse.change_by(self.claim - claim, self.reserved - reserved, calls)

    async def change(self) -> None:
        """Wait until a call with the same key has ended, or a request was settled."""
        await self._purse.change()


log = logging.getLogger("podium")

SOON: Final = 0.05
"""Seconds until others are told that a tab takes less; most tabs ask for more by then."""

LOOK_SECONDS: Final = 0.25
"""How often a call that waits for money looks at what other processes have given back."""

AGAIN_SECONDS: Final = 1.0
"""When to try again what could not be written."""

Asker = TypeVar("Asker", ReservationRow, Reservation)

_Answer = asyncio.Future[Amount | None]


class SharedBudget:
    """The tabs of one key and process, on their way to the store. It belongs to one event loop.

    `closing` has the row of a tab taken from the store, together with what its request is charged.
    """

    def __init__(
        self,
        tabs: ReservationStore,
        key_id: str,
        rules: Rules,
        purse: KeyBudget,
        *,
        today: Callable[[], str],
        closing: Callable[[str], None],
    ) -> None:
        self._tabs = tabs
        self._key_id = key_id
        self._rules = rules
        self._purse = purse
        self._today = today
        self._closing = closing
        self._being_written: set[str] = set()
        self._to_close_again: set[str] = set()
        self._opening: list[tuple[ReservationRow, _Answer]] = []
        self._growing: list[tuple[Reservation, _Answer]] = []
        self._looking: list[_Answer] = []
        self._changed: dict[str, Reservation] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def open(self, tab_id: str, model: str, estimate: Amount) -> Amount | None:
        """A request begins that will probably use so much: what it may claim of that, or None
        where the caps leave nothing. Raises `BudgetUnavailable` where the store cannot be asked."""
        row = ReservationRow(
            id=tab_id, key_id=self._key_id, model=model, claimed=estimate, taken=estimate
        )
        answer = self._answer()
        self._opening.append((row, answer))
        try:
            return await self._asked(answer)
        except asyncio.CancelledError:
            self.close_tab(tab_id)  # it may have been opened all the same
            raise

    async def secure(self, tab: Reservation) -> bool:
        """Have the store grant all that the tab takes; False where the caps have no room for it."""
        answer = self._answer()
        self._growing.append((tab, answer))
        granted = await self._asked(answer)
        if granted is None:
            await asyncio.sleep(SOON)  # what is left is known now; nobody need ask in a hurry
        return granted is not None

    def changed(self, tab: Reservation) -> None:
        """Write down soon that the tab takes less, or that more of it is used."""
        self._changed[tab.id] = tab
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write_now)

    def close_tab(self, tab_id: str) -> None:
        """The request of that tab is over. Should the tab be written just now, it is closed once
        more after that, for nobody knows which comes first."""
        self._changed.pop(tab_id, None)
        if tab_id in self._being_written:
            self._to_close_again.add(tab_id)
        self._closing(tab_id)

    async def look(self, change: asyncio.Future[None]) -> None:
        """Wait for that change, or for one elsewhere."""
        await asyncio.wait({change}, timeout=LOOK_SECONDS)
        if not change.done():
            answer = self._answer()
            self._looking.append(answer)
            await self._asked(answer)

    async def close(self) -> None:
        """Wait for what is being written; what was not asked for is not any more."""
        if self._soon is not None:
            self._soon.cancel()
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._soon is not None:
            self._soon.cancel()  # what could not be written

    def _answer(self) -> _Answer:
        return asyncio.get_running_loop().create_future()

    async def _asked(self, answer: _Answer) -> Amount | None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())
        return await answer

    def _write_now(self) -> None:
        self._soon = None
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Ask for everything that is wanted, until nothing is any more."""
        failed = False
        while self._is_asked or (self._changed and not failed):
            opening, self._opening = _still_wanted(self._opening), []
            growing, self._growing = _still_wanted(self._growing), []
            looking, self._looking = self._looking, []
            changed, self._changed = self._changed, {}
            answers = [answer for _, answer in (*opening, *growing)] + looking
            try:
                drawn = await self._drawn(opening, growing, changed)
            except StoreError as error:
                log.warning("what keys have left cannot be looked up: %s", error)
                self._try_again(changed)
                _fail(answers, BudgetUnavailable(f"what this key has left cannot be told: {error}"))
                failed = True
                continue
            except BaseException as error:  # whoever waits must not wait for ever
                _fail(answers, error)
                raise
            finally:
                self._close_again()
            failed = False
            self._purse.stand(drawn.standing, drawn.elsewhere)
            for row, answer in opening:
                _tell(answer, drawn.granted.get(row.id))
            for tab, answer in growing:
                _tell(answer, drawn.granted.get(tab.id))
            for answer in looking:
                _tell(answer, None)

    async def _drawn(
        self,
        opening: Sequence[tuple[ReservationRow, _Answer]],
        growing: Sequence[tuple[Reservation, _Answer]],
        changed: dict[str, Reservation],
    ) -> ReservationResult:
        grown = {tab.id: tab for tab, _ in growing}
        self._being_written = {*(row.id for row, _ in opening), *grown, *changed}
        shrunk = [tab for tab in changed.values() if tab.id not in grown]
        rows = [tab.row(self._key_id) for tab in grown.values()]
        less = []
        for tab in shrunk:
            row = tab.row(self._key_id)
            if self._purse.covers(tab.granted, row.needed):  # else it is about to ask for more
                tab.granted = row.needed
                less.append(row)
        drawn = await self._tabs.draw(
            self._key_id,
            self._rules,
            self._today(),
            opened=[row for row, _ in opening],
            grown=rows,
            changed=less,
        )
        for tab_id, granted in drawn.granted.items():
            if tab_id in grown:
                grown[tab_id].granted = granted
        return drawn

    @property
    def _is_asked(self) -> bool:
        return bool(self._opening or self._growing or self._looking)

    def _close_again(self) -> None:
        self._being_written = set()
        closing, self._to_close_again = self._to_close_again, set()
        for tab_id in closing:
            self._closing(tab_id)

    def _try_again(self, changed: dict[str, Reservation]) -> None:
        """Write that later, less what was closed meanwhile: nobody would close it once more."""
        closed = self._to_close_again
        kept = {tab_id: tab for tab_id, tab in changed.items() if tab_id not in closed}
        self._changed = kept | self._changed
        if self._soon is None and self._changed:
            loop = asyncio.get_running_loop()
            self._soon = loop.call_later(AGAIN_SECONDS, self._write_now)


def _still_wanted(asking: list[tuple[Asker, _Answer]]) -> list[tuple[Asker, _Answer]]:
    return [each for each in asking if not each[1].cancelled()]


def _tell(answer: _Answer, granted: Amount | None) -> None:
    if not answer.done():  # whoever asked may be gone
        answer.set_result(granted)


def _fail(answers: Sequence[_Answer], error: BaseException) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
