"""However requests with one key and their calls overlap, its caps hold."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from podium.core.budget import Budget, CallReservation, Ledger
from podium.core.errors import BudgetExhausted
from podium.core.pool import WorkerProfile
from podium.core.request import UNKNOWN_USAGE, Price, Request, Usage, user
from podium.server.access import Principal
from podium.server.access.quotas import KeyBudget, Reservation
from podium.server.api_error import ApiError
from podium.store.keys import Allowance, Amount, Rules
from server.access.support import Server

DAY = 86_400.0
CRUMB = 1e-9
WORKER = WorkerProfile(name="worker", price=Price(input=100.0, output=1000.0))

_ALLOWANCES = st.builds(
    Allowance,
    usd=st.none() | st.floats(0, 5),
    tokens=st.none() | st.integers(0, 5000),
)
_RULES = st.builds(Rules, per_day=_ALLOWANCES, per_month=_ALLOWANCES, in_total=_ALLOWANCES)
_ROOMY = st.builds(Allowance, usd=st.floats(2, 9), tokens=st.none() | st.integers(2000, 9000))
_ROOMY_RULES = st.builds(Rules, per_day=_ROOMY, in_total=_ROOMY)
_CHARGES = st.builds(Amount, usd=st.floats(0, 3), tokens=st.integers(0, 3000))


def is_kept(rules: Rules, charged: Amount) -> bool:
    """Whether that is within every cap."""
    return all(
        (cap.usd is None or charged.usd <= cap.usd + CRUMB)
        and (cap.tokens is None or charged.tokens <= cap.tokens)
        for cap in (rules.per_day, rules.per_month, rules.in_total)
    )


class InFlight(NamedTuple):
    """A request, and those of its calls that have not ended."""

    ledger: Ledger
    reservation: Reservation
    calls: list[CallReservation]


@given(rules=_ROOMY_RULES, data=st.data())
def test_no_cap_is_passed_however_many_calls_of_however_many_requests_overlap(
    rules: Rules, data: st.DataObject
) -> None:
    budget = KeyBudget(rules)
    flying: list[InFlight] = []
    charged, begun = Amount(), 0
    for act in ("b", "b", *data.draw(st.lists(st.sampled_from("bccccee"), min_size=8))):
        if act == "b" and budget.exhausted_cap() is None:
            reservation = budget.reserve(Amount(data.draw(st.floats(0, 1)), 0))
            flying.append(InFlight(Ledger(Budget(), shared_budget=reservation), reservation, []))
        elif act == "c" and flying:
            request = flying[data.draw(st.integers(0, len(flying) - 1))]
            begun += _call(request, data.draw(st.integers(1, 4000)))
        elif act == "e" and flying:
            request = flying[data.draw(st.integers(0, len(flying) - 1))]
            if request.calls:
                _end_call(request, data.draw(st.floats(0, 1)))
            else:
                flying.remove(request)
                spent = Amount(request.ledger.spent.usd, request.ledger.spent.tokens)
                budget.settle(request.reservation, spent)
                charged += spent
        running = sum((_counted(request) for request in flying), Amount())
        assert is_kept(rules, charged + running)
    event(f"{min(begun, 3)} calls or more")


def _call(request: InFlight, max_tokens: int) -> bool:
    try:
        reservation = request.ledger.reserve(WORKER, Request((user("?"),), max_tokens=max_tokens))
    except BudgetExhausted:
        return False
    if reservation is not None:
        request.calls.append(reservation)
    return reservation is not None


def _end_call(request: InFlight, share: float) -> None:
    """A call uses no more than it may, or does not tell."""
    reservation = request.calls.pop()
    if share > 0.9:
        request.ledger.settle(reservation, UNKNOWN_USAGE, None)
    else:
        request.ledger.settle(
            reservation, Usage(1, int(share * (reservation.tokens - 1))), share * reservation.usd
        )


def _counted(request: InFlight) -> Amount:
    spent = request.ledger.spent
    held = sum(
        (Amount(reservation.usd, reservation.tokens) for reservation in request.calls), Amount()
    )
    return Amount(spent.usd, spent.tokens) + held


@settings(max_examples=60)
@given(rules=_RULES, data=st.data())
def test_no_request_is_admitted_beyond_a_cap_and_every_cent_is_recorded(
    rules: Rules, data: st.DataObject
) -> None:
    asyncio.run(Visits(rules, data).go())


class Visits:
    """Requests with one key that begin, end and come to nothing in any order, over days."""

    def __init__(self, rules: Rules, data: st.DataObject) -> None:
        self.rules = rules
        self.data = data
        self.server = Server()
        self.flying: list[Principal] = []
        self.used: list[tuple[int, Amount]] = []
        self.ended = 0

    async def go(self) -> None:
        token = await self.server.token(self.rules)
        for act in self.data.draw(st.lists(st.sampled_from("bbbssaw"), max_size=25)):
            match act:
                case "b":
                    await self.begin(token)
                case "s" if self.flying:
                    await self.settle(self.data.draw(_CHARGES))
                case "a" if self.flying:
                    await self.settle(Amount())
                case "w":
                    self.server.clock.now += self.data.draw(st.sampled_from([0.5, 6.0, DAY]))
        await self.server.access.close()
        written, used = self.server.keys.used, self.total()
        assert sum(row.cost_usd for row in written) == pytest.approx(used.usd)
        assert sum(row.input_tokens for row in written) == used.tokens
        assert sum(row.requests for row in written) == self.ended

    async def begin(self, token: str) -> None:
        principal = await self.server.access.authenticate(token)
        tokens = self.data.draw(st.integers(0, 2000))
        reason = None
        try:
            principal = await self.server.access.reserve(principal, model="podium", tokens=tokens)
        except ApiError as refusal:
            reason = refusal.reason
        if reason is None:
            assert is_left(self.total(self.day), self.rules.per_day)
            assert is_left(self.total(), self.rules.in_total)
            self.flying.append(principal)
        elif reason == "rate_limited":
            assert self.flying, "nobody else holds anything"
        else:
            assert reason == "out_of_budget"

    async def settle(self, used: Amount) -> None:
        principal = self.flying.pop(self.data.draw(st.integers(0, len(self.flying) - 1)))
        await self.server.settle(principal, tokens=used.tokens, usd=used.usd)
        self.used.append((self.day, used))
        self.ended += 1

    @property
    def day(self) -> int:
        return int(self.server.clock.now // DAY)

    def total(self, day: int | None = None) -> Amount:
        return sum((used for when, used in self.used if day in (None, when)), Amount())


def is_left(charged: Amount, cap: Allowance) -> bool:
    """Whether that leaves something of the cap."""
    return (cap.usd is None or charged.usd < cap.usd) and (
        cap.tokens is None or charged.tokens < cap.tokens
    )
