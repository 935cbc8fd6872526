from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from podium.core.budget import Budget, CallReservation, Ledger, Remaining
from podium.core.errors import BudgetExhausted
from podium.core.pool import WorkerProfile
from podium.core.request import Price, Request, Usage, user
from podium.server.access.quotas import ExhaustedCap, KeyBudget
from podium.store.keys import Allowance, Amount, KeyCharges, Rules

ASK = Request((user("a question"),), max_tokens=1000)
DEAR = WorkerProfile(name="dear", price=Price(input=0.0, output=1000.0))
A_DOLLAR_A_DAY = Rules(per_day=Allowance(usd=1.0))


def test_claimed_runs_are_left_to_their_own_request() -> None:
    budget = KeyBudget(Rules(per_day=Allowance(usd=1.0, tokens=100)))
    reservation = budget.reserve(Amount(0.75, 60))
    assert reservation.withheld_from_requests == Amount(0.75, 60)
    assert budget.left() == Allowance(usd=0.25, tokens=40)
    assert budget.left(own=reservation.withheld_from_requests) == Allowance(usd=1.0, tokens=100)
    assert reservation.left == Remaining(tokens=100, usd=1.0)


def test_a_reservation_is_at_most_what_is_left() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    budget.reserve(Amount(0.75, 60))
    assert budget.reserve(Amount(0.75, 60)).withheld_from_requests == Amount(0.25, 60)
    assert budget.exhausted_cap() == ExhaustedCap("day", "usd", 1.0, 0.0, is_reserved=True)


def test_a_settled_reservation_is_replaced_by_what_was_used() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    budget.settle(budget.reserve(Amount(0.75, 60)), Amount(0.5, 10))
    assert budget.left() == Allowance(usd=0.5)


def test_reservations_of_fractions_leave_no_rounding_error() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    reservations = [budget.reserve(Amount(usd, 1)) for usd in (0.1, 0.2, 0.3)]
    for reservation in reservations:
        budget.settle(reservation, Amount())
    assert budget.left() == Allowance(usd=1.0)


def test_calls_reserve_beyond_the_estimate_as_they_are_made() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    reservation, other = budget.reserve(Amount(0.25, 0)), budget.reserve(Amount(0.25, 0))
    reservation.reserve(CallReservation(usd=0.125))
    assert other.left.usd == 0.75, "within the estimate"
    reservation.reserve(CallReservation(usd=0.5))
    assert (reservation.left.usd, other.left.usd) == (0.125, 0.375)
    assert budget.left() == Allowance(usd=0.5), "what calls hold keeps nobody from beginning"
    reservation.settle(CallReservation(usd=0.5), 10, 0.25)
    reservation.settle(CallReservation(usd=0.125), 10, 0.125)
    assert reservation.withheld_from_requests == Amount(0.375, 20)
    assert other.left.usd == 0.625


def test_the_tightest_cap_is_the_one_that_is_named() -> None:
    budget = KeyBudget(Rules(per_day=Allowance(usd=1.0), per_month=Allowance(usd=10.0)), "Ada")
    budget.set_charges(KeyCharges(day=Amount(0.25, 0), month=Amount(9.5, 0)))
    error = budget.reserve(Amount()).exhausted_error("usd")
    assert str(error) == (
        "monthly budget of key 'Ada' is too small for this call: $9.5 used of $10, "
        "resets on the 1st, 00:00 UTC"
    )


async def test_a_run_waits_for_other_calls_of_its_key_and_wakes_when_there_are_none() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    first, second = (Ledger(Budget(), shared_budget=budget.reserve(Amount())) for _ in range(2))
    held = first.reserve(DEAR, ASK)
    assert held is not None
    assert held.usd == 1.0
    assert second.reserve(DEAR, ASK) is None, "some of it may come back"
    waiting = asyncio.create_task(second.wait_for_change())
    await asyncio.sleep(0)
    first.settle(held, Usage(0, 1000), 1.0)
    await asyncio.wait_for(waiting, 5)
    with pytest.raises(BudgetExhausted, match="daily budget of key .* is spent"):
        second.reserve(DEAR, ASK)


def test_a_run_with_a_spent_budget_does_not_wait_for_others() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    other = Ledger(Budget(), shared_budget=budget.reserve(Amount()))
    assert other.reserve(DEAR, replace(ASK, max_tokens=100)) is not None
    mine = Ledger(Budget(usd=0.001), shared_budget=budget.reserve(Amount()))
    with pytest.raises(BudgetExhausted, match="the run's budget is spent"):
        mine.reserve(DEAR, ASK)


@pytest.mark.parametrize(
    ("rules", "charges", "spent"),
    [
        (
            Rules(per_day=Allowance(usd=1.0)),
            KeyCharges(day=Amount(1.0, 0)),
            ExhaustedCap("day", "usd", 1.0, 1.0, is_reserved=False),
        ),
        (
            Rules(per_day=Allowance(tokens=10)),
            KeyCharges(day=Amount(0.0, 11)),
            ExhaustedCap("day", "tokens", 10, 11, is_reserved=False),
        ),
        (
            Rules(per_month=Allowance(usd=1.0)),
            KeyCharges(month=Amount(2.0, 0)),
            ExhaustedCap("month", "usd", 1.0, 2.0, is_reserved=False),
        ),
        (
            Rules(in_total=Allowance(tokens=10)),
            KeyCharges(total=Amount(0.0, 10)),
            ExhaustedCap("total", "tokens", 10, 10, is_reserved=False),
        ),
        (
            Rules(in_total=Allowance(usd=0.0)),
            KeyCharges(),
            ExhaustedCap("total", "usd", 0.0, 0.0, is_reserved=False),
        ),
        (Rules(per_day=Allowance(usd=1.0)), KeyCharges(total=Amount(9.0, 9)), None),
        (Rules(), KeyCharges(total=Amount(1e9, 10**12)), None),
    ],
)
def test_each_cap_is_of_its_own_period(
    rules: Rules, charges: KeyCharges, spent: ExhaustedCap | None
) -> None:
    budget = KeyBudget(rules)
    budget.set_charges(charges)
    assert budget.exhausted_cap() == spent


def test_the_tightest_cap_says_what_is_left() -> None:
    budget = KeyBudget(
        Rules(
            per_day=Allowance(usd=1.0), per_month=Allowance(usd=10.0), in_total=Allowance(tokens=50)
        )
    )
    budget.set_charges(
        KeyCharges(day=Amount(0.25, 5), month=Amount(9.5, 20), total=Amount(30.0, 20)),
    )
    assert budget.left() == Allowance(usd=0.5, tokens=30)


def test_a_new_standing_leaves_the_claims_alone() -> None:
    budget = KeyBudget(A_DOLLAR_A_DAY)
    reservation = budget.reserve(Amount(0.5, 0))
    budget.set_charges(KeyCharges(day=Amount(0.25, 0)))
    assert budget.left() == Allowance(usd=0.25)
    budget.settle(reservation, Amount(0.5, 0))
    assert budget.left() == Allowance(usd=0.25)
