from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from evals.support import case_of, setup_of
from podium.core.errors import BadReply, BudgetExhausted, Unavailable
from podium.core.request import Price, Reply, Request, Usage, user
from podium.engine import RetryPolicy
from podium.evals.evaluation import Evaluation
from podium.evals.sample import CountedWorker, EvalBudget, sample_context
from podium.workers.scripted import ScriptedWorker


def test_without_a_cap_every_sample_may_start() -> None:
    budget = EvalBudget()
    budget.spent = 1e9
    assert budget.can_start_sample


def test_a_sample_starts_only_if_all_in_flight_fit_at_the_highest_price() -> None:
    budget = EvalBudget(1.0)
    for _ in range(2):
        assert budget.can_start_sample
        budget.start_sample()
    budget.finish_sample(0.3)
    assert budget.can_start_sample  # 0.3 spent, one under way, one more: 0.9
    budget.start_sample()
    assert not budget.can_start_sample
    budget.finish_sample(0.1)
    budget.finish_sample(0.1)
    assert budget.can_start_sample  # 0.5 spent and no call in flight
    assert budget.spent == 0.5


def test_earlier_spending_counts() -> None:
    budget = EvalBudget(1.0)
    budget.spent = 1.0
    assert not budget.can_start_sample


def test_free_workers_run_with_a_cap_of_zero() -> None:
    budget = EvalBudget(0.0)
    budget.start_sample()
    budget.finish_sample(0.0)
    assert budget.can_start_sample
    budget.start_sample()
    budget.finish_sample(0.01)
    assert not budget.can_start_sample


def test_the_price_is_unknown_until_a_sample_was_paid_for() -> None:
    budget = EvalBudget(1.0)
    assert budget.needs_probe
    budget.start_sample()
    budget.finish_sample(0.4)
    assert not budget.needs_probe
    budget.start_strategy()
    assert budget.needs_probe
    assert budget.spent == 0.4
    assert not EvalBudget().needs_probe


def test_earlier_samples_show_the_price_and_are_not_paid_again() -> None:
    budget = EvalBudget(1.0)
    budget.spent = 0.6
    budget.record_price(0.6)
    assert not budget.needs_probe
    assert not budget.can_start_sample
    assert budget.spent == 0.6


def test_a_sample_that_failed_at_no_cost_does_not_show_the_price() -> None:
    budget = EvalBudget(1.0)
    budget.start_sample()
    budget.finish_sample(0.0, 0.0, failed=True)
    assert budget.needs_probe
    budget.start_sample()
    budget.finish_sample(0.2, failed=True)
    assert not budget.needs_probe


async def test_a_first_sample_that_fails_does_not_disarm_the_cap() -> None:
    """Else all 1,000 samples would start at once, each at an unknown price."""
    price = Price(input=0, output=1_000_000)
    worker = ScriptedWorker("ann", [Unavailable("busy")] * 3 + ["yes"] * 1000, price=price)
    counted = CountedWorker(worker, Counter())
    cases = [case_of(f"{n}?", "yes", [worker]) for n in range(1000)]
    setup = replace(setup_of([counted]), retry=RetryPolicy(attempts=1))
    budget = EvalBudget(3.0)
    evaluation = Evaluation(setup, cases, seed=0, concurrency=1000, budget=budget)
    with pytest.raises(BudgetExhausted):
        await evaluation.row("single:ann")
    assert budget.spent == 3.0
    assert worker.calls == 6
    assert evaluation.unfinished == {"single:ann": 6}


async def test_unreported_usage_is_charged_at_its_estimate() -> None:
    price = Price(input=0, output=1_000_000)

    class Silent(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            return Reply("yes", usage=Usage())

    silent = Silent("ann", "yes", price=price)
    request = Request((user("Why?"),), max_tokens=5)
    with sample_context() as sample:
        await CountedWorker(silent, Counter()).reply(request)
    assert sample.paid_usd == 5.0


async def test_a_failed_call_that_is_billed_is_charged_at_its_estimate() -> None:
    price = Price(input=0, output=1_000_000)
    request = Request((user("Why?"),), max_tokens=5)
    for error, charged in ((BadReply("cut off"), 5.0), (Unavailable("busy"), 0.0)):
        with sample_context() as sample, pytest.raises(type(error)):
            await CountedWorker(ScriptedWorker("ann", [error], price=price), Counter()).reply(
                request
            )
        assert sample.paid_usd == charged
