from __future__ import annotations

import pytest

from evals.support import case_of, setup_of
from podium.core.errors import BudgetExhausted, ConfigError, PodiumError, Unavailable
from podium.core.run import Run
from podium.evals import evaluation as performing
from podium.evals.evaluation import Evaluation
from podium.evals.sample import Case, EvalContext
from podium.workers.scripted import ScriptedWorker


async def test_a_strategy_that_throws_is_a_fault_of_its_own_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(case: Case, context: EvalContext) -> Run:
        raise ZeroDivisionError("of one's own")

    monkeypatch.setattr(performing, "make_strategy", lambda name, setup: broken)
    worker = ScriptedWorker("ann", "a")
    perform = Evaluation(setup_of([worker]), [], seed=0, concurrency=1).run_sample
    sample, run = await perform("mine", case_of("a?", "a", [worker]), 0)
    assert (sample.right, sample.error_source) == (False, "the strategy")
    assert sample.error == run.error == "the strategy raised ZeroDivisionError: of one's own"


@pytest.mark.parametrize("error", [Unavailable("ann is away"), BudgetExhausted("calls", 3)])
async def test_a_worker_or_a_budget_that_ends_a_strategy_ends_that_task_alone(
    error: PodiumError, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(case: Case, context: EvalContext) -> Run:
        raise error

    monkeypatch.setattr(performing, "make_strategy", lambda name, setup: ended)
    worker = ScriptedWorker("ann", "a")
    perform = Evaluation(setup_of([worker]), [], seed=0, concurrency=1).run_sample
    sample, _ = await perform("mine", case_of("a?", "a", [worker]), 0)
    assert sample.error_source == "the strategy"
    assert str(error) in (sample.error or "")


async def test_a_strategy_that_returns_no_run_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgetful(case: Case, context: EvalContext) -> str:
        return "42"

    monkeypatch.setattr(performing, "make_strategy", lambda name, setup: forgetful)
    worker = ScriptedWorker("ann", "a")
    perform = Evaluation(setup_of([worker]), [], seed=0, concurrency=1).run_sample
    sample, _ = await perform("mine", case_of("a?", "a", [worker]), 0)
    assert sample.error_source == "the strategy"
    assert "expected a strategy to return a Run, not str" in (sample.error or "")


async def test_an_error_that_needs_a_person_ends_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(case: Case, context: EvalContext) -> Run:
        raise ConfigError("no price is known")

    monkeypatch.setattr(performing, "make_strategy", lambda name, setup: refused)
    worker = ScriptedWorker("ann", "a")
    with pytest.raises(ConfigError, match="no price"):
        await Evaluation(setup_of([worker]), [], seed=0, concurrency=1).run_sample(
            "mine", case_of("a?", "a", [worker]), 0
        )


async def test_chance_is_another_one_in_every_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []

    async def drawing(case: Case, context: EvalContext) -> Run:
        drawn.append(context.random(case, "plan").random())
        raise ZeroDivisionError

    monkeypatch.setattr(performing, "make_strategy", lambda name, setup: drawing)
    worker = ScriptedWorker("ann", "a")
    perform, case = (
        Evaluation(setup_of([worker]), [], seed=0, concurrency=1).run_sample,
        case_of("a?", "a", [worker]),
    )
    for repeat in (0, 1, 2, 0, 1, 2):
        await perform("random", case, repeat)
    assert drawn[:3] == drawn[3:]
    assert len(set(drawn)) == 3
