"""However requests with one key overlap, its caps are passed by no more than what those in flight
used beyond their estimates."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.server.access import Visitor
from podium.server.access.purse import Purse
from podium.server.refusal import Reason, Refusal
from podium.store.keys import Allowance, Charged, Rules
from server.access.support import Server

DAY = 86_400.0
CRUMB = 1e-9

_ALLOWANCES = st.builds(
    Allowance,
    usd=st.none() | st.floats(0, 5),
    tokens=st.none() | st.integers(0, 5000),
)
_RULES = st.builds(Rules, per_day=_ALLOWANCES, per_month=_ALLOWANCES, in_total=_ALLOWANCES)
_CHARGES = st.builds(Charged, usd=st.floats(0, 3), tokens=st.integers(0, 3000))


def passed_by(purse: Purse, rules: Rules, allowed: Charged) -> bool:
    """Whether spent and held pass a cap by more than is allowed."""
    for period, cap in (
        ("day", rules.per_day),
        ("month", rules.per_month),
        ("total", rules.in_total),
    ):
        charged = purse.charged(period) + purse.held  # type: ignore[arg-type]
        if cap.usd is not None and charged.usd > cap.usd + allowed.usd + CRUMB:
            return True
        if cap.tokens is not None and charged.tokens > cap.tokens + allowed.tokens:
            return True
    return False


@given(rules=_RULES, data=st.data())
def test_caps_are_passed_by_no_more_than_the_estimates_in_flight_were_wrong(
    rules: Rules, data: st.DataObject
) -> None:
    purse = Purse(rules)
    flying: list[Charged] = []
    wrong = Charged()  # by how much those in flight at the last beginning used more than was held
    for _ in range(data.draw(st.integers(1, 30))):
        ends = data.draw(st.booleans())
        if flying and ends:
            held = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            used = data.draw(_CHARGES)
            purse.settle(held, used)
            beyond = Charged(max(0.0, used.usd - held.usd), max(0, used.tokens - held.tokens))
            wrong += beyond
        elif purse.exhausted() is None:
            flying.append(purse.hold(data.draw(_CHARGES)))
            wrong = Charged()
        assert not passed_by(purse, rules, wrong)
    for held in flying:
        purse.settle(held, Charged())
    assert purse.held == Charged()


@settings(max_examples=60)
@given(rules=_RULES, data=st.data())
def test_a_gatekeeper_lets_nobody_in_beyond_a_cap_and_writes_down_every_cent(
    rules: Rules, data: st.DataObject
) -> None:
    asyncio.run(Visits(rules, data).go())


class Visits:
    """Requests with one key that begin, end and come to nothing in any order, over days."""

    def __init__(self, rules: Rules, data: st.DataObject) -> None:
        self.rules = rules
        self.data = data
        self.server = Server()
        self.flying: list[Visitor] = []
        self.used: list[tuple[int, Charged]] = []
        self.ended = 0

    async def go(self) -> None:
        token = await self.server.token(self.rules)
        for deed in self.data.draw(st.lists(st.sampled_from("bbbssaw"), max_size=25)):
            match deed:
                case "b":
                    await self.begin(token)
                case "s" if self.flying:
                    await self.settle(self.data.draw(_CHARGES))
                case "a" if self.flying:
                    await self.settle(Charged())
                case "w":
                    self.server.clock.now += self.data.draw(st.sampled_from([0.5, 6.0, DAY]))
        await self.server.door.close()
        written, used = self.server.keys.used, self.total()
        assert sum(row.cost_usd for row in written) == pytest.approx(used.usd)
        assert sum(row.input_tokens for row in written) == used.tokens
        assert sum(row.requests for row in written) == self.ended

    async def begin(self, token: str) -> None:
        visitor = await self.server.door.admit(token)
        tokens = self.data.draw(st.integers(0, 2000))
        reason = await self.refused(visitor, tokens)
        if reason is None:
            assert is_left(self.total(self.day), self.rules.per_day)
            assert is_left(self.total(), self.rules.in_total)
            self.flying.append(visitor)
        elif reason == "rate_limited":
            assert self.flying, "nobody else holds anything"
        else:
            assert reason == "out_of_budget"

    async def refused(self, visitor: Visitor, tokens: int) -> Reason | None:
        try:
            await self.server.door.begin(visitor, tier_or_worker="podium", tokens=tokens)
        except Refusal as refusal:
            return refusal.reason
        return None

    async def settle(self, used: Charged) -> None:
        visitor = self.flying.pop(self.data.draw(st.integers(0, len(self.flying) - 1)))
        await self.server.settle(visitor, tokens=used.tokens, usd=used.usd)
        self.used.append((self.day, used))
        self.ended += 1

    @property
    def day(self) -> int:
        return int(self.server.clock.now // DAY)

    def total(self, day: int | None = None) -> Charged:
        return sum((used for when, used in self.used if day in (None, when)), Charged())


def is_left(charged: Charged, cap: Allowance) -> bool:
    """Whether that leaves something of the cap."""
    return (cap.usd is None or charged.usd < cap.usd) and (
        cap.tokens is None or charged.tokens < cap.tokens
    )
