from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from podium.core.budget import Budget, CallReservation, Ledger, Remaining
from podium.core.errors import BudgetExhausted
from podium.core.pool import WorkerProfile
from podium.core.request import Request, user
from podium.core.usage import Price, Usage
from podium.server.access.quotas import Exhausted, KeyBudget
from podium.store.keys import Allowance, Amount, KeyCharges, Rules

ASK = Request((user("a question"),), max_tokens=1000)
DEAR = WorkerProfile(name="dear", price=Price(input=0.0, output=1000.0))
A_DOLLAR_A_DAY = Rules(per_day=Allowance(usd=1.0))


def test_what_is_claimed_is_not_left_for_others_but_for_its_own_request() -> None:
    purse = KeyBudget(Rules(per_day=Allowance(usd=1.0, tokens=100)))
    tab = purse.open_tab(Amount(0.75, 60))
    assert tab.claim == Amount(0.75, 60)
    assert purse.left() == Allowance(usd=0.25, tokens=40)
    assert purse.left(own=tab.claim) == Allowance(usd=1.0, tokens=100)
    assert tab.left == Remaining(tokens=100, usd=1.0)


def test_a_claim_is_no_more_than_what_is_left() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    purse.open_tab(Amount(0.75, 60))
    assert purse.open_tab(Amount(0.75, 60)).claim == Amount(0.25, 60)
    assert purse.exhausted() == Exhausted("day", "usd", 1.0, held=True)


def test_a_settled_tab_is_replaced_by_what_was_used() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    purse.settle(purse.open_tab(Amount(0.75, 60)), Amount(0.5, 10))
    assert purse.left() == Allowance(usd=0.5)


def test_tabs_of_fractions_leave_no_crumbs() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    tabs = [purse.open_tab(Amount(share, 1)) for share in (0.1, 0.2, 0.3)]
    for tab in tabs:
        purse.settle(tab, Amount())
    assert purse.left() == Allowance(usd=1.0)


def test_what_calls_hold_beyond_the_estimate_is_claimed_as_it_happens() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    tab, other = purse.open_tab(Amount(0.25, 0)), purse.open_tab(Amount(0.25, 0))
    tab.hold(CallReservation(usd=0.125))
    assert other.left.usd == 0.75, "within the estimate"
    tab.hold(CallReservation(usd=0.5))
    assert (tab.left.usd, other.left.usd) == (0.125, 0.375)
    assert purse.left() == Allowance(usd=0.5), "what calls hold keeps nobody from beginning"
    tab.settle(CallReservation(usd=0.5), 10, 0.25)
    tab.settle(CallReservation(usd=0.125), 10, 0.125)
    assert tab.claim == Amount(0.375, 20)
    assert other.left.usd == 0.625


def test_the_tightest_cap_is_the_one_that_is_named() -> None:
    purse = KeyBudget(Rules(per_day=Allowance(usd=1.0), per_month=Allowance(usd=10.0)))
    purse.stand(KeyCharges(day=Amount(0.25, 0), month=Amount(9.5, 0)))
    error = purse.open_tab(Amount()).exhausted("usd")
    assert str(error) == "the key's budget is spent: usd is capped at $10"


async def test_a_run_waits_for_calls_of_others_with_its_key_and_is_told_when_there_are_none() -> (
    None
):
    purse = KeyBudget(A_DOLLAR_A_DAY)
    first, second = (Ledger(Budget(), account=purse.open_tab(Amount())) for _ in range(2))
    held = first.hold(DEAR, ASK)
    assert held is not None
    assert held.usd == 1.0
    assert second.hold(DEAR, ASK) is None, "some of it may come back"
    waiting = asyncio.create_task(second.change())
    await asyncio.sleep(0)
    first.settle(held, Usage(0, 1000), 1.0)
    await asyncio.wait_for(waiting, 5)
    with pytest.raises(BudgetExhausted, match="the key's budget is spent"):
        second.hold(DEAR, ASK)


def test_a_run_whose_own_budget_is_spent_does_not_wait_for_others() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    other = Ledger(Budget(), account=purse.open_tab(Amount()))
    assert other.hold(DEAR, replace(ASK, max_tokens=100)) is not None
    mine = Ledger(Budget(usd=0.001), account=purse.open_tab(Amount()))
    with pytest.raises(BudgetExhausted, match="the run's budget is spent"):
        mine.hold(DEAR, ASK)


@pytest.mark.parametrize(
    ("rules", "standing", "exhausted"),
    [
        (
            Rules(per_day=Allowance(usd=1.0)),
            KeyCharges(day=Amount(1.0, 0)),
            Exhausted("day", "usd", 1.0, held=False),
        ),
        (
            Rules(per_day=Allowance(tokens=10)),
            KeyCharges(day=Amount(0.0, 11)),
            Exhausted("day", "tokens", 10, held=False),
        ),
        (
            Rules(per_month=Allowance(usd=1.0)),
            KeyCharges(month=Amount(2.0, 0)),
            Exhausted("month", "usd", 1.0, held=False),
        ),
        (
            Rules(in_total=Allowance(tokens=10)),
            KeyCharges(total=Amount(0.0, 10)),
            Exhausted("total", "tokens", 10, held=False),
        ),
        (
            Rules(in_total=Allowance(usd=0.0)),
            KeyCharges(),
            Exhausted("total", "usd", 0.0, held=False),
        ),
        (Rules(per_day=Allowance(usd=1.0)), KeyCharges(total=Amount(9.0, 9)), None),
        (Rules(), KeyCharges(total=Amount(1e9, 10**12)), None),
    ],
)
def test_each_cap_is_of_its_own_period(
    rules: Rules, standing: KeyCharges, exhausted: Exhausted | None
) -> None:
    purse = KeyBudget(rules)
    purse.stand(standing)
    assert purse.exhausted() == exhausted


def test_the_tightest_cap_says_what_is_left() -> None:
    purse = KeyBudget(
        Rules(
            per_day=Allowance(usd=1.0), per_month=Allowance(usd=10.0), in_total=Allowance(tokens=50)
        )
    )
    purse.stand(
        KeyCharges(day=Amount(0.25, 5), month=Amount(9.5, 20), total=Amount(30.0, 20)),
    )
    assert purse.left() == Allowance(usd=0.5, tokens=30)


def test_a_new_standing_leaves_the_claims_alone() -> None:
    purse = KeyBudget(A_DOLLAR_A_DAY)
    tab = purse.open_tab(Amount(0.5, 0))
    purse.stand(KeyCharges(day=Amount(0.25, 0)))
    assert purse.left() == Allowance(usd=0.25)
    purse.settle(tab, Amount(0.5, 0))
    assert purse.left() == Allowance(usd=0.25)
