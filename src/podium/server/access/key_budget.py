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
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from podium.core.budget import Hold, Left
from podium.core.errors import BudgetExhausted
from podium.core.pool import Pool
from podium.store.keys import NO_CAP, NOTHING, Allowance, Charged, Rules, Standing
from podium.store.quotas import NOWHERE, Elsewhere, TabRow, most

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

    def estimate(self, model: str, tokens: int) -> Charged:
        """What a request of so many tokens will probably come to."""
        mean_usd, mean_tokens = self._means.get(model, (0.0, 0.0))
        return Charged(max(mean_usd, tokens * self._dearest), max(round(mean_tokens), tokens))

    def learn(self, model: str, used: Charged) -> None:
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
        self._charged: dict[Period, Charged] = dict.fromkeys(get_args(Period), NOTHING)
        self._claimed = NOTHING
        self._reserved = NOTHING
        self._tabs = 0
        self._calls = 0
        self._elsewhere = NOWHERE
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

    def stand(self, standing: Standing, elsewhere: Elsewhere | None = None) -> None:
        """So much has been charged, and is claimed elsewhere; what is claimed here stays so."""
        self._charged = {"day": standing.day, "month": standing.month, "total": standing.total}
        if elsewhere is not None:
            self._elsewhere = elsewhere

    def covers(self, granted: Charged, needed: Charged) -> bool:
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

    def left(self, own: Charged = NOTHING) -> Allowance:
        """What may still be used, besides what is claimed by others than `own`."""
        return self._besides(self._claimed + self._elsewhere.claimed, own)

    def left_for_calls(self, own: Charged) -> Allowance:
        """The same, besides what calls in flight hold beyond those claims."""
        return self._besides(self._reserved + self._elsewhere.taken, own)

    def _besides(self, taken: Charged, own: Charged) -> Allowance:
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

    def open_tab(self, estimate: Charged) -> Reservation:
        """A request begins: it claims the estimate, or what is left where that is less."""
        left = self.left()
        estimate = Charged(
            estimate.usd if left.usd is None else min(estimate.usd, left.usd),
            estimate.tokens if left.tokens is None else min(estimate.tokens, left.tokens),
        )
        self._tabs += 1
        self._claimed += estimate
        self._reserved += estimate
        return Reservation(self, estimate)

    def take_up(self, used: Charged) -> Reservation:
        """A run goes on that has used so much without being charged for it yet."""
        used = most(used, NOTHING)
        self._tabs += 1
        self._claimed += used
        self._reserved += used
        tab = Reservation(self, NOTHING, used)
        tab.takes_over = True
        return tab

    def change_by(self, claimed: Charged, reserved: Charged, calls: Literal[1, -1]) -> None:
        """A call of a tab begins or has ended, which makes so much of a difference."""
        self._claimed += claimed
        self._reserved += reserved
        self._calls += calls
        if calls < 0:
            self._wake()

    def settle(self, tab: Reservation, used: Charged) -> None:
        """In the place of what the tab claims, charge what was used."""
        self._claimed = self._claimed - tab.claim
        self._reserved = self._reserved - tab.reserved
        self._tabs -= 1
        if not self._tabs:
            self._claimed = self._reserved = NOTHING  # sums of fractions leave crumbs
        self.charge(used)
        self._wake()

    def charge(self, used: Charged) -> None:
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

    def __init__(self, purse: KeyBudget, estimate: Charged, used: Charged = NOTHING) -> None:
        self._purse = purse
        self._estimate = estimate
        self._held = NOTHING
        self._used = used
        self._calls = 0
        self.id = ""
        self.model = ""
        self.run_id = ""
        self.takes_over = False
        self.granted = NOTHING

    @property
    def used(self) -> Charged:
        """What its calls have used."""
        return self._used

    @property
    def claim(self) -> Charged:
        """What others must leave to this request: the estimate, or what its calls have used where
        that is more."""
        return most(self._estimate, self._used)

    @property
    def reserved(self) -> Charged:
        """The same, with what its calls in flight may use."""
        return most(self._estimate, self.needed)

    @property
    def needed(self) -> Charged:
        """What its calls have used, and may use."""
        return self._used + self._held

    @property
    def left(self) -> Left:
        """What another call of this request may use."""
        allowed, mine = self._purse.left_for_calls(self.reserved), self.needed
        return Left(
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

    def hold(self, hold: Hold) -> None:
        """A call begins that may use so much."""
        self._change(Charged(hold.usd, hold.tokens), NOTHING, 1)

    def settle(self, hold: Hold, tokens: int, usd: float) -> None:
        """That call has ended, and this is what it counts for."""
        self._change(Charged(-hold.usd, -hold.tokens), Charged(usd, tokens), -1)
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

    def row(self, key_id: str) -> TabRow:
        """The tab as others are to see it."""
        return TabRow(
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

    def _change(self, held: Charged, used: Charged, calls: Literal[1, -1]) -> None:
        claim, reserved = self.claim, self.reserved
        self._held += held
        self._used += used
        self._calls += calls
        self._purse.change_by(self.claim - claim, self.reserved - reserved, calls)

    async def change(self) -> None:
        """Wait until a call with the same key has ended, or a request was settled."""
        await self._purse.change()
