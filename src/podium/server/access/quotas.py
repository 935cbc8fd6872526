"""Quotas of a key: budgets per day, month and in total, reservations, and rate limits.

Each request in flight has a reservation: what it is expected to use, or has used if that is more;
each call in flight holds what it may use at most. A request begins while charges and reservations
leave something of every cap, a call while they leave room for its hold. So a cap holds for all
requests together, up to the error in estimating a call's input.

With several processes on one store, each reservation is a row there (`ReservationWriter`). A
process asks the store when a request begins, and when a call needs more than was granted. When it
dies, its holds expire with its lease and what its calls had used is charged. Without the store,
nothing is granted.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, TypeVar, get_args

from podium.core.budget import Budget, CallReservation, Remaining, SharedBudget
from podium.core.errors import BudgetExhausted, BudgetUnavailable, StoreError
from podium.core.run import Run
from podium.server.access.policy import RequestQuota
from podium.server.access.usage import BackgroundWriter
from podium.store.keys import (
    NO_CAP,
    NO_OTHERS,
    ZERO,
    Allowance,
    Amount,
    KeyCharges,
    OtherReservations,
    Period,
    ReservationRow,
    Rules,
    cap_amount,
    max_amount,
    remaining_allowance,
)

if TYPE_CHECKING:
    from podium.store.sql.quotas import QuotaStore, ReservationStore

log = logging.getLogger("podium")

WRITE_SECONDS: Final = 0.05
"""Delay before a smaller reservation is written; most reservations grow again by then."""

POLL_SECONDS: Final = 0.25
"""The interval at which a call that waits for budget checks for released amounts."""

RETRY_SECONDS: Final = 1.0
"""Delay before a failed write is retried."""

CORRECTION_SECONDS: Final = 0.1
"""Delay before token counts of a rate limit are corrected, if no request does so before."""

_PERIOD_NAMES: Final = {"day": "daily budget", "month": "monthly budget", "total": "total budget"}
_RESETS: Final = {
    "day": "resets 00:00 UTC",
    "month": "resets on the 1st, 00:00 UTC",
    "total": "does not reset",
}


Unit = Literal["usd", "tokens"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class ExhaustedCap:
    """A cap that leaves nothing. `is_reserved` if requests in flight hold the rest of it."""

    period: Period
    unit: Unit
    cap: float
    used: float
    is_reserved: bool

    @property
    def name(self) -> str:
        return _PERIOD_NAMES[self.period]

    @property
    def state(self) -> str:
        """Describe the amount used, the cap and when it resets."""
        shown = f"{_show(self.unit, self.used)} used of {_show(self.unit, self.cap)}"
        return f"{shown}, {_RESETS[self.period]}"


def _show(unit: str, value: float) -> str:
    dollars = f"{value:.8f}".rstrip("0").rstrip(".")
    return f"${dollars}" if unit == "usd" else f"{value:,.0f} tokens"


class KeyBudget:
    """The budgets of one key in this process. With others on the same store, `reservation_writer`
    shares its reservations with them. It belongs to one event loop."""

    def __init__(self, rules: Rules, key_name: str = "") -> None:
        self.reservation_writer: ReservationWriter | None = None
        self.set_rules(rules, key_name)
        self._charged: dict[Period, Amount] = dict.fromkeys(get_args(Period), ZERO)
        self._withheld_from_requests = ZERO
        self._withheld_from_calls = ZERO
        self._reservations = 0
        self._calls = 0
        self._others = NO_OTHERS
        self._waiting: set[asyncio.Future[None]] = set()

    def set_rules(self, rules: Rules, key_name: str) -> None:
        """Replace the caps and the name of the key."""
        self.rules, self.key_name = rules, key_name
        caps: dict[Period, Allowance] = {
            "day": rules.per_day,
            "month": rules.per_month,
            "total": rules.in_total,
        }
        self._caps = tuple((period, cap) for period, cap in caps.items() if cap != NO_CAP)
        self.caps_requests = bool(self._caps) or rules.per_request != NO_CAP

    @property
    def is_capped(self) -> bool:
        return bool(self._caps)

    @property
    def has_calls(self) -> bool:
        """True if calls are in flight, which may release part of their holds."""
        return self._calls > 0 or self._others.calls > 0

    def set_charges(self, charges: KeyCharges, others: OtherReservations | None = None) -> None:
        """Replace what was charged, and what other processes reserve."""
        self._charged = {"day": charges.day, "month": charges.month, "total": charges.total}
        if others is not None:
            self._others = others

    def covers(self, granted: Amount, needed: Amount) -> bool:
        """True if the grant includes what is needed, of what is capped."""
        return not any(
            (cap.usd is not None and needed.usd > granted.usd)
            or (cap.tokens is not None and needed.tokens > granted.tokens)
            for _, cap in self._caps
        )

    def exhausted_cap(self) -> ExhaustedCap | None:
        """Return the first cap that leaves nothing to a new request, if any."""
        held = self._withheld_from_requests + self._others.withheld_from_requests
        for (period, cap), unit in product(self._caps, UNITS):
            limit, used = getattr(cap, unit), getattr(self._charged[period], unit)
            if limit is not None and used + getattr(held, unit) >= limit:
                return ExhaustedCap(period, unit, limit, used, used < limit)
        return None

    def exhausted_error(
        self, unit: str, run_limit: float | None, unused: Amount
    ) -> BudgetExhausted | None:
        """Build the error of the cap on `usd` or `tokens` that a call does not fit into; None if
        `run_limit`, the run's own cap, is tighter than what every cap of this key has left.
        `unused` is what the request reserves besides what it has used."""
        per_request = getattr(self.rules.per_request, unit)
        if run_limit is not None and run_limit == per_request:
            limit = f"a request is capped at {_show(unit, per_request)}"
            message = f"budget per request of key {self.key_name!r} is spent: {limit}"
            return BudgetExhausted(unit, per_request, message)
        in_flight = getattr(
            self._withheld_from_requests + self._others.withheld_from_requests - unused, unit
        )
        caps = [
            (getattr(cap, unit), getattr(self._charged[period], unit) + in_flight, period)
            for period, cap in self._caps
            if getattr(cap, unit) is not None
        ]
        if not caps:
            return None
        cap, used, period = min(caps, key=lambda cap: cap[0] - cap[1])
        if run_limit is not None and run_limit < cap - used:
            return None
        verb = "used or reserved" if self._reservations > 1 or self._others.calls else "used"
        state = "is spent" if used >= cap else "is too small for this call"
        message = (
            f"{_PERIOD_NAMES[period]} of key {self.key_name!r} {state}: {_show(unit, used)} "
            f"{verb} of {_show(unit, cap)}, {_RESETS[period]}"
        )
        return BudgetExhausted(unit, float(cap), message)

    def left(self, own: Amount = ZERO) -> Allowance:
        """Return what a request may use besides what others than `own` expect to use."""
        return self._left_beside(
            self._withheld_from_requests + self._others.withheld_from_requests, own
        )

    def left_for_calls(self, own: Amount) -> Allowance:
        """Return what calls may use besides what others than `own` reserve."""
        return self._left_beside(self._withheld_from_calls + self._others.withheld_from_calls, own)

    def _left_beside(self, taken: Amount, own: Amount) -> Allowance:
        caps = [(cap, self._charged[period]) for period, cap in self._caps]
        return remaining_allowance(caps, taken - own)

    def reserve(self, estimate: Amount) -> Reservation:
        """Reserve the estimate for a request, or what is left if that is less."""
        return self.admit(Reservation(self, estimate), estimate)

    def admit(self, reservation: Reservation, granted: Amount) -> Reservation:
        """Count a reservation of what was granted, or of what is left if that is less."""
        reservation.estimate = cap_amount(granted, self.left()) if self._caps else granted
        return self._add(reservation)

    def reserve_used(self, used: Amount) -> Reservation:
        """Reserve what a resumed run has used and was not charged for yet."""
        return self._add(Reservation(self, ZERO, max_amount(used, ZERO), is_takeover=True))

    def _add(self, reservation: Reservation) -> Reservation:
        reservation.is_open = True
        self._reservations += 1
        self._withheld_from_requests += reservation.withheld_from_requests
        self._withheld_from_calls += reservation.withheld_from_calls
        return reservation

    def change(self, from_requests: Amount, from_calls: Amount, calls: Literal[1, -1]) -> None:
        """Count a call that begins or ends, and what it changes."""
        self._withheld_from_requests += from_requests
        self._withheld_from_calls += from_calls
        self._calls += calls
        if calls < 0:
            self._wake()

    def settle(self, reservation: Reservation, charged: Amount) -> None:
        self._withheld_from_requests -= reservation.withheld_from_requests
        self._withheld_from_calls -= reservation.withheld_from_calls
        self._reservations -= 1
        if not self._reservations:
            self._withheld_from_requests = self._withheld_from_calls = ZERO  # drop rounding errors
        self._charged = {period: amount + charged for period, amount in self._charged.items()}
        reservation.is_open = False
        if reservation.id and self.reservation_writer is not None:
            self.reservation_writer.close_reservation(reservation.id)
        self._wake()

    async def wait_for_change(self) -> None:
        """Wait until a call has ended or a request was settled."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            writer = self.reservation_writer
            await (future if writer is None else writer.wait_for_change(future))
        finally:
            self._waiting.discard(future)  # a call may wait here again and again

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Reservation(RequestQuota):
    """The part of its key's budget that a request in flight reserves; its ledger's shared budget.

    Other processes know a shared reservation by its `id` and by `run_id`, the stored run that is
    charged in its place. `granted` is what its calls may hold without asking the store,
    `rate_tokens` what was taken of the key's rate limit.
    """

    def __init__(
        self, budget: KeyBudget, estimate: Amount, used: Amount = ZERO, *, is_takeover: bool = False
    ) -> None:
        self._budget = budget
        self.estimate = estimate
        self._held = ZERO
        self._used = used
        self._calls = 0
        self._is_capped = budget.caps_requests
        self.is_open = False
        self.rate_tokens = 0
        self.id = ""
        self.model = ""
        self.run_id = ""
        self.is_takeover = is_takeover
        self.granted = ZERO

    @property
    def shared_budget(self) -> SharedBudget | None:
        """The reservation itself, if the key had a cap as the request began."""
        return self if self._is_capped else None

    def narrow(self, budget: Budget) -> Budget:
        """Lower the budget to the key's cap per request and to what other requests leave."""
        left = self._budget.left(self.withheld_from_requests if self.is_open else ZERO)
        for cap in (self._budget.rules.per_request, left):
            budget = budget.narrow({"usd": cap.usd, "tokens": cap.tokens})
        return budget

    def attach_run(self, run: Run) -> None:
        if self.id and self._budget.reservation_writer is not None:
            self.run_id = run.id
            self._budget.reservation_writer.write_soon(self)

    @property
    def used(self) -> Amount:
        return self._used

    @property
    def needed(self) -> Amount:
        """Return the amount that its calls have used or hold."""
        return self._used + self._held

    @property
    def withheld_from_requests(self) -> Amount:
        """Return the amount that new requests must leave to it."""
        return max_amount(self.estimate, self._used)

    @property
    def withheld_from_calls(self) -> Amount:
        """Return the amount that new calls must leave to it."""
        return max_amount(self.estimate, self.needed)

    @property
    def left(self) -> Remaining:
        """Return the amount that another call of the request may use."""
        allowed, own = self._budget.left_for_calls(self.withheld_from_calls), self.needed
        return Remaining(
            None if allowed.tokens is None else allowed.tokens - own.tokens,
            None if allowed.usd is None else allowed.usd - own.usd,
        )

    @property
    def has_calls_in_flight(self) -> bool:
        return self._budget.has_calls

    @property
    def is_shared(self) -> bool:
        return bool(self.id) and self._budget.reservation_writer is not None

    def exhausted_error(self, cap: str, run_limit: float | None = None) -> BudgetExhausted | None:
        return self._budget.exhausted_error(
            cap, run_limit, self.withheld_from_requests - self._used
        )

    def reserve(self, reservation: CallReservation) -> None:
        self._change(Amount(reservation.usd, reservation.tokens), ZERO, 1)

    def settle(self, reservation: CallReservation, tokens: int, usd: float) -> None:
        self._change(Amount(-reservation.usd, -reservation.tokens), Amount(usd, tokens), -1)
        if self.id and self._budget.reservation_writer is not None:
            self._budget.reservation_writer.write_soon(self)

    async def confirm(self) -> bool:
        """Have the store grant what the calls need; False if the caps have no room for it."""
        writer = self._budget.reservation_writer
        if writer is None or not self.id or self._budget.covers(self.granted, self.needed):
            return True
        return await writer.request_more(self)

    async def wait_for_change(self) -> None:
        await self._budget.wait_for_change()

    def to_row(self, key_id: str) -> ReservationRow:
        """Return the reservation as other processes see it."""
        return ReservationRow(
            id=self.id,
            key_id=key_id,
            model=self.model,
            run_id=self.run_id,
            is_takeover=self.is_takeover,
            used=self._used,
            withheld_from_requests=self.withheld_from_requests,
            withheld_from_calls=self.withheld_from_calls,
            needed=self.needed,
            granted=self.granted,
            calls=self._calls,
        )

    def _change(self, held: Amount, used: Amount, calls: Literal[1, -1]) -> None:
        from_requests, from_calls = self.withheld_from_requests, self.withheld_from_calls
        self._held += held
        self._used += used
        self._calls += calls
        self._budget.change(
            self.withheld_from_requests - from_requests,
            self.withheld_from_calls - from_calls,
            calls,
        )


Result = TypeVar("Result")

_Answer = asyncio.Future[Amount | None]


class ReservationWriter:
    """Writes the reservations of one key and process to the store. It belongs to one event loop.

    `settle_row` deletes the row of a reservation together with the charge of its request.
    """

    def __init__(
        self,
        store: ReservationStore,
        key_id: str,
        budget: KeyBudget,
        *,
        today: Callable[[], str],
        settle_row: Callable[[str], None],
    ) -> None:
        self._store = store
        self._key_id = key_id
        self._budget = budget
        self._today = today
        self._settle_row = settle_row
        self._being_written: set[str] = set()
        self._settle_again: set[str] = set()
        self._asking: list[tuple[Reservation | None, _Answer]] = []
        self._changed: dict[str, Reservation] = {}
        self._writer = BackgroundWriter(self._write)

    async def open(self, model: str, estimate: Amount) -> Reservation | None:
        """Reserve the estimate for a request, or what is left; None if nothing is. Raises
        `BudgetUnavailable` if the store cannot be reached."""
        reservation = Reservation(self._budget, estimate)
        reservation.id, reservation.model = secrets.token_hex(16), model
        try:
            granted = await self._ask(reservation)
        except asyncio.CancelledError:
            self.close_reservation(reservation.id)  # the row may have been written
            raise
        return None if granted is None else self._budget.admit(reservation, granted)

    async def request_more(self, reservation: Reservation) -> bool:
        """Have the store grant what the reservation needs; False if the caps have no room."""
        granted = await self._ask(reservation)
        if granted is None:
            await asyncio.sleep(WRITE_SECONDS)  # the state is now known; wait before asking again
        return granted is not None

    def write_soon(self, reservation: Reservation) -> None:
        """Write a reservation that needs less, or has used more."""
        self._changed[reservation.id] = reservation
        self._writer.start_in(WRITE_SECONDS)

    def close_reservation(self, reservation_id: str) -> None:
        """Delete the row of a request that is over: twice if it is being written now."""
        self._changed.pop(reservation_id, None)
        if reservation_id in self._being_written:
            self._settle_again.add(reservation_id)
        self._settle_row(reservation_id)

    async def wait_for_change(self, change: asyncio.Future[None]) -> None:
        """Wait for a change in this process, or read the state of the others."""
        await asyncio.wait({change}, timeout=POLL_SECONDS)
        if not change.done():
            await self._ask(None)

    async def close(self) -> None:
        await self._writer.wait()

    async def _ask(self, reservation: Reservation | None) -> Amount | None:
        """Ask for what the reservation needs; for None, only read the state."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._asking.append((reservation, answer))
        self._writer.start()
        return await answer

    async def _write(self) -> None:
        failed = False
        while self._asking or (self._changed and not failed):
            asking = [item for item in self._asking if not item[1].cancelled()]
            changed, self._asking, self._changed = self._changed, [], {}
            answers = [answer for _, answer in asking]
            try:
                granted = await self._update_store([item for item, _ in asking if item], changed)
            except StoreError as error:
                log.warning("cannot look up the budgets of keys: %s", error)
                self._retry(changed)
                _fail(answers, BudgetUnavailable(f"cannot look up what this key has left: {error}"))
                failed = True
                continue
            except BaseException as error:  # no caller may wait for ever
                _fail(answers, error)
                raise
            finally:
                self._being_written = set()
                settled, self._settle_again = self._settle_again, set()
                for reservation_id in settled:
                    self._settle_row(reservation_id)
            failed = False
            for reservation, answer in asking:
                _resolve(answer, granted.get(reservation.id) if reservation else None)

    async def _update_store(
        self, asking: Sequence[Reservation], changed: dict[str, Reservation]
    ) -> Mapping[str, Amount]:
        """Return what was granted, by reservation."""
        asked = {reservation.id: reservation for reservation in asking}
        self._being_written = {*asked, *changed}
        smaller = []
        for reservation in changed.values():
            row = reservation.to_row(self._key_id)
            if reservation.id in asked or not self._budget.covers(reservation.granted, row.needed):
                continue  # written with its growth, or about to ask for more
            reservation.granted = row.needed
            smaller.append(row)
        rows = [(item.is_open, item.to_row(self._key_id)) for item in asked.values()]
        result = await self._store.update(
            self._key_id,
            self._budget.rules,
            self._today(),
            new=[row for is_open, row in rows if not is_open],
            increased=[row for is_open, row in rows if is_open],
            decreased=smaller,
        )
        for reservation_id, granted in result.granted.items():
            if asked[reservation_id].is_open:
                asked[reservation_id].granted = granted
        self._budget.set_charges(result.charges, result.others)
        return result.granted

    def _retry(self, changed: dict[str, Reservation]) -> None:
        """Write these later, except those closed meanwhile."""
        closed = self._settle_again
        kept = {id_: reservation for id_, reservation in changed.items() if id_ not in closed}
        self._changed = kept | self._changed
        if self._changed:
            self._writer.start_in(RETRY_SECONDS)


def _resolve(answer: asyncio.Future[Result], result: Result) -> None:
    if not answer.done():  # the caller may be gone
        answer.set_result(result)


def _fail(answers: Sequence[asyncio.Future[Result]], error: BaseException) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)


class SharedRates:
    """The rate limits of one key, shared through the store. It belongs to one event loop."""

    def __init__(self, store: QuotaStore, key_id: str, rules: Rules) -> None:
        self._store = store
        self._key_id = key_id
        self._rules = rules
        self._asking: list[tuple[int, asyncio.Future[float]]] = []
        self._correction = 0
        self._writer = BackgroundWriter(self._write)

    async def take(self, tokens: int) -> float:
        """Begin a request of so many tokens and return 0, or the seconds until it may begin."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asking.append((tokens, answer))
        self._writer.start()
        return await answer

    def correct(self, tokens: int) -> None:
        """Count tokens used beyond those taken; a negative number is put back."""
        if not tokens or self._rules.tokens_per_minute is None:
            return
        self._correction += tokens
        self._writer.start_in(CORRECTION_SECONDS)

    async def close(self) -> None:
        if self._correction:
            self._writer.start()
        await self._writer.wait()

    async def _write(self) -> None:
        while self._asking or self._correction:
            asking, self._asking = [item for item in self._asking if not item[1].cancelled()], []
            correction, self._correction = self._correction, 0
            tokens = [count for count, _ in asking]
            answers = [answer for _, answer in asking]
            try:
                waits = await self._store.take(self._key_id, self._rules, tokens, correction)
            except StoreError as error:
                # The correction is lost: a rate limit that is a little off once does no harm.
                log.warning("cannot look up the rate limits of keys: %s", error)
                _fail(answers, error)
            except BaseException as error:  # no caller may wait for ever
                _fail(answers, error)
                raise
            else:
                for answer, wait in zip(answers, waits, strict=True):
                    _resolve(answer, wait)
