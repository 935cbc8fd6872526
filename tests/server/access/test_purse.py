from __future__ import annotations

import pytest

from podium.server.access.purse import Exhausted, Experience, Purse
from podium.store.keys import Allowance, Charged, Rules, Standing

A_DOLLAR_A_DAY = Rules(per_day=Allowance(usd=1.0))


def test_what_is_held_is_not_left_for_others_but_for_its_own_request() -> None:
    purse = Purse(Rules(per_day=Allowance(usd=1.0, tokens=100)))
    held = purse.hold(Charged(0.75, 60))
    assert held == Charged(0.75, 60)
    assert purse.left() == Allowance(usd=0.25, tokens=40)
    assert purse.left(own=held) == Allowance(usd=1.0, tokens=100)


def test_a_hold_is_no_more_than_what_is_left() -> None:
    purse = Purse(A_DOLLAR_A_DAY)
    purse.hold(Charged(0.75, 60))
    assert purse.hold(Charged(0.75, 60)) == Charged(0.25, 60)
    assert purse.exhausted() == Exhausted("day", "usd", 1.0, held=True)


def test_a_settled_hold_is_replaced_by_what_was_used() -> None:
    purse = Purse(A_DOLLAR_A_DAY)
    purse.settle(purse.hold(Charged(0.75, 60)), Charged(0.5, 10))
    assert purse.charged("day") == Charged(0.5, 10)
    assert purse.held == Charged()
    assert purse.left() == Allowance(usd=0.5)


def test_holds_of_fractions_leave_no_crumbs() -> None:
    purse = Purse(A_DOLLAR_A_DAY)
    holds = [purse.hold(Charged(0.1, 1)), purse.hold(Charged(0.2, 1)), purse.hold(Charged(0.3, 1))]
    for held in holds:
        purse.settle(held, Charged())
    assert purse.held == Charged()


@pytest.mark.parametrize(
    ("rules", "standing", "exhausted"),
    [
        (
            Rules(per_day=Allowance(usd=1.0)),
            Standing(day=Charged(1.0, 0)),
            Exhausted("day", "usd", 1.0, held=False),
        ),
        (
            Rules(per_day=Allowance(tokens=10)),
            Standing(day=Charged(0.0, 11)),
            Exhausted("day", "tokens", 10, held=False),
        ),
        (
            Rules(per_month=Allowance(usd=1.0)),
            Standing(month=Charged(2.0, 0)),
            Exhausted("month", "usd", 1.0, held=False),
        ),
        (
            Rules(in_total=Allowance(tokens=10)),
            Standing(total=Charged(0.0, 10)),
            Exhausted("total", "tokens", 10, held=False),
        ),
        (
            Rules(in_total=Allowance(usd=0.0)),
            Standing(),
            Exhausted("total", "usd", 0.0, held=False),
        ),
        (Rules(per_day=Allowance(usd=1.0)), Standing(total=Charged(9.0, 9)), None),
        (Rules(), Standing(total=Charged(1e9, 10**12)), None),
    ],
)
def test_each_cap_is_of_its_own_period(
    rules: Rules, standing: Standing, exhausted: Exhausted | None
) -> None:
    purse = Purse(rules)
    purse.stand(standing)
    assert purse.exhausted() == exhausted


def test_the_tightest_cap_says_what_is_left() -> None:
    purse = Purse(
        Rules(
            per_day=Allowance(usd=1.0), per_month=Allowance(usd=10.0), in_total=Allowance(tokens=50)
        )
    )
    purse.stand(
        Standing(day=Charged(0.25, 5), month=Charged(9.5, 20), total=Charged(30.0, 20)),
    )
    assert purse.left() == Allowance(usd=0.5, tokens=30)


def test_a_new_standing_leaves_the_holds_alone() -> None:
    purse = Purse(A_DOLLAR_A_DAY)
    held = purse.hold(Charged(0.5, 0))
    purse.stand(Standing(day=Charged(0.25, 0)))
    assert purse.left() == Allowance(usd=0.25)
    purse.settle(held, Charged(0.5, 0))
    assert purse.left() == Allowance(usd=0.25)


def test_a_request_is_taken_to_come_to_what_those_before_it_did() -> None:
    experience = Experience(dearest=0.001)
    experience.learn("podium", Charged(0.5, 1000))
    assert experience.estimate("podium", 3) == Charged(0.5, 1000)
    assert experience.estimate("podium-mini", 3) == Charged(0.003, 3)


def test_a_request_is_taken_to_come_to_no_less_than_reading_it() -> None:
    experience = Experience(dearest=0.001)
    assert experience.estimate("podium", 2000) == Charged(2.0, 2000)
    experience.learn("podium", Charged(0.5, 1000))
    assert experience.estimate("podium", 2000) == Charged(2.0, 2000)


def test_a_short_question_does_not_make_a_long_one_seem_dearer_than_it_is() -> None:
    experience = Experience(dearest=0.000001)
    experience.learn("podium", Charged(0.5, 1000))
    assert experience.estimate("podium", 100_000).usd == 0.5


def test_experience_follows_what_happens_now() -> None:
    experience = Experience(dearest=0.0)
    experience.learn("podium", Charged(1.0, 1000))
    for _ in range(60):
        experience.learn("podium", Charged(0.1, 100))
    estimate = experience.estimate("podium", 1)
    assert estimate.usd == pytest.approx(0.1, rel=0.05)
    assert estimate.tokens == pytest.approx(100, rel=0.05)
