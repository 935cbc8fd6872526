from __future__ import annotations

from podium.evals.context import EvalBudget


def test_without_a_cap_there_is_always_enough() -> None:
    purse = EvalBudget()
    purse.spent = 1e9
    assert purse.is_enough


def test_a_task_is_begun_only_if_all_under_way_could_be_paid_at_the_dearest_price() -> None:
    purse = EvalBudget(1.0)
    for _ in range(2):
        assert purse.is_enough
        purse.begin()
    purse.end(0.3)
    assert purse.is_enough  # 0.3 spent, one under way, one more: 0.9
    purse.begin()
    assert not purse.is_enough
    purse.end(0.1)
    purse.end(0.1)
    assert purse.is_enough  # 0.5 spent and nobody under way
    assert purse.spent == 0.5


def test_what_was_spent_before_counts() -> None:
    purse = EvalBudget(1.0)
    purse.spent = 1.0
    assert not purse.is_enough


def test_free_workers_are_asked_with_an_empty_purse() -> None:
    purse = EvalBudget(0.0)
    purse.begin()
    purse.end(0.0)
    assert purse.is_enough
    purse.begin()
    purse.end(0.01)
    assert not purse.is_enough


def test_what_a_strategys_tasks_cost_is_unknown_until_one_was_paid_for() -> None:
    purse = EvalBudget(1.0)
    assert purse.is_blind
    purse.begin()
    purse.end(0.4)
    assert not purse.is_blind
    purse.turn()
    assert purse.is_blind
    assert purse.spent == 0.4
    assert not EvalBudget().is_blind


def test_what_is_known_of_an_earlier_sitting_tells_the_price_and_is_not_paid_again() -> None:
    purse = EvalBudget(1.0)
    purse.spent = 0.6
    purse.note(0.6)
    assert not purse.is_blind
    assert not purse.is_enough
    assert purse.spent == 0.6
