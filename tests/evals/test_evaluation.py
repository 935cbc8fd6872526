from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from evals.support import IdealConductor, case_of, oracle_cases, setup_of
from podium.core.errors import BudgetExhausted, StoreError, UsageError
from podium.core.request import Price, Reply, Request
from podium.core.run import Run
from podium.evals.evaluation import Evaluation
from podium.evals.sample import CountedWorker, EvalBudget, RepeatCachedWorker, Sample, SampleKey
from podium.evals.strategies.registry import STRATEGIES
from podium.workers.cached import ReplyCache
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.workers import oracle_workers
from support.harness import FakeWorker


def measuring(*workers: ScriptedWorker, answers: str = "abcd", concurrency: int = 3) -> Evaluation:
    """An evaluation of four tasks, each with its own right answer, over these workers."""
    cases = [case_of(f"{letter}?", letter, workers) for letter in answers]
    return Evaluation(setup_of(workers), cases, seed=0, concurrency=concurrency)


def knows(name: str, letters: str) -> ScriptedWorker:
    """Answers the tasks of these letters, and no others."""
    return ScriptedWorker(
        name,
        lambda request: letter if (letter := request.messages[-1].text[0]) in letters else "no",
    )


async def test_samples_come_in_the_order_of_the_tasks_whatever_ends_first() -> None:
    evaluation = measuring(knows("ann", "bd"))
    row = await evaluation.row("single:ann")
    assert [sample.task for sample in row.samples] == ["a?", "b?", "c?", "d?"]
    assert [sample.right for sample in row.samples] == [False, True, False, True]


async def test_concurrent_tasks_are_limited() -> None:
    fake = FakeWorker("ann")
    cases = [case_of(f"{n}?", "ok", [fake]) for n in range(20)]
    evaluation = Evaluation(setup_of([fake]), cases, seed=0, concurrency=5)
    await evaluation.row("single:ann")
    assert fake.most_in_flight == 5
    assert len(fake.asked) == 20


async def test_the_best_single_worker_is_the_one_that_is_right_most_often() -> None:
    ann, ben = knows("ann", "b"), knows("ben", "acd")
    evaluation = measuring(ann, ben)
    row = await evaluation.row("best-single")
    assert row.accuracy.value == 0.75
    assert row.candidates == {"single:ann": 0.25, "single:ben": 0.75}
    assert row.note == "single:ben, the best of 2 on these very tasks: an optimistic choice"


async def test_measured_samples_are_not_run_again() -> None:
    ann, ben = knows("ann", "b"), knows("ben", "acd")
    evaluation = measuring(ann, ben)
    await evaluation.row("best-single")
    await evaluation.row("single:ann")
    await evaluation.row("best-single")
    assert (ann.calls, ben.calls) == (4, 4)


async def test_reflection_is_that_of_the_best_single_worker() -> None:
    ann, ben = knows("ann", "b"), knows("ben", "acd")
    row = await measuring(ann, ben).row("reflection")
    assert {worker for sample in row.samples for worker in sample.workers} == {"ben"}
    assert row.candidates == {"reflection:ben/system": 0.75, "reflection:ben/message": 0.0}


async def test_a_mixture_is_shown_in_the_form_and_with_the_aggregator_that_suit_it_best() -> None:
    """Ben is the better one alone, and understands nothing but single messages of the user."""

    def in_one_message(request: Request) -> str:
        question = request.messages[-1].text
        return "no" if len(request.messages) > 1 else question[-2]

    ann, ben = knows("ann", ""), ScriptedWorker("ben", in_one_message)
    row = await measuring(ann, ben).row("moa")
    assert row.candidates is not None
    assert row.candidates["moa:ben/message"] == row.accuracy.value == 1.0
    assert row.candidates["moa:ben/system"] == 0.0
    assert set(row.candidates) == {
        f"moa:{worker}/{form}" for worker in ("drawn", "ben") for form in ("system", "message")
    }
    assert "the best of 4 on these very tasks" in row.note


async def test_every_strategy_can_be_measured_over_perfect_workers() -> None:
    cases = oracle_cases(10)
    evaluation = Evaluation(
        setup_of(oracle_workers(), IdealConductor(cases)), cases, seed=7, concurrency=4
    )
    accuracy = {
        name: (await evaluation.row(name)).accuracy.value
        for name in STRATEGIES
        if name != "baseline-conductor"
    }
    assert accuracy["ideal"] == accuracy["conductor"] == accuracy["recursion"] == 1.0
    for name in ("best-single", "moa", "reflection", "majority", "random"):
        assert accuracy[name] < 0.5


async def test_progress_and_run_callbacks_are_called_for_each_task() -> None:
    seen: list[tuple[str, int, int]] = []
    kept: list[tuple[str, str, str | None]] = []
    worker = knows("ann", "ab")
    evaluation = Evaluation(
        setup_of([worker]),
        [case_of("a?", "a", [worker]), case_of("c?", "c", [worker])],
        seed=0,
        concurrency=1,
        on_progress=lambda *result: seen.append(result),
        on_sample=lambda name, sample, run: kept.append((name, sample.task, run.answer)),
    )
    await evaluation.row("single:ann")
    assert seen == [("single:ann", done, 2) for done in range(3)]
    assert kept == [("single:ann", "a?", "a"), ("single:ann", "c?", "no")]


async def test_errors_outside_runs_end_the_evaluation() -> None:
    def full(name: str, sample: Sample, run: Run) -> None:
        raise StoreError("no room")

    worker = knows("ann", "a")
    cases = [case_of(f"{n}?", "a", [worker]) for n in range(5)]
    evaluation = Evaluation(setup_of([worker]), cases, seed=0, concurrency=3, on_sample=full)
    with pytest.raises(StoreError, match="no room"):
        await evaluation.row("single:ann")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("conducter", "unknown strategy 'conducter'; did you mean 'conductor'?"),
        ("single:an", "names no worker of this pool; did you mean 'ann'?"),
        ("reflection:nobody", "names no worker of this pool; use one of ann"),
        ("baseline-conductor", "needs a conductor that is a model"),
        ("conductor:x", "unknown strategy 'conductor:x'"),
        ("ideal", "needs ideal plans, which only the études have"),
    ],
)
async def test_a_strategy_that_there_is_not_is_refused_before_anyone_is_asked(
    name: str, complaint: str
) -> None:
    worker = knows("ann", "a")
    with pytest.raises(UsageError, match=complaint.replace("?", r"\?")):
        await measuring(worker).row(name)
    assert worker.calls == 0


async def test_with_repeats_every_task_is_put_so_often_repeat_by_repeat() -> None:
    worker = ScriptedWorker("ann", ["a", "no", "no", "b"])
    cases = [case_of("a?", "a", [worker]), case_of("b?", "b", [worker])]
    evaluation = Evaluation(setup_of([worker]), cases, seed=0, concurrency=1, repeats=2)
    row = await evaluation.row("single:ann")
    assert [(sample.task, sample.repeat, sample.right) for sample in row.samples] == [
        ("a?", 0, True),
        ("b?", 0, False),
        ("a?", 1, False),
        ("b?", 1, True),
    ]
    assert row.outcomes == {"a?": 0.5, "b?": 0.5}


async def test_earlier_samples_are_not_run_again() -> None:
    worker = knows("ann", "ab")
    cases = [case_of(f"{letter}?", letter, [worker]) for letter in "abc"]
    first = await Evaluation(setup_of([worker]), cases, seed=0, concurrency=2).row("single:ann")
    known = {SampleKey(sample.task, 0): sample for sample in first.samples if sample.task != "b?"}
    seen: list[tuple[str, int, int]] = []
    again = await Evaluation(
        setup_of([worker]),
        cases,
        seed=0,
        concurrency=2,
        known=lambda name: known,
        on_progress=lambda *result: seen.append(result),
    ).row("single:ann")
    assert worker.calls == 4
    assert [sample.right for sample in again.samples] == [True, True, False]
    assert seen == [("single:ann", 2, 3), ("single:ann", 3, 3)]


async def test_at_the_cap_it_stops_between_two_tasks_and_says_how_far_it_came() -> None:
    price = Price(input=0, output=1_000_000)  # a dollar a word
    worker = ScriptedWorker("ann", "a", price=price)
    cases = [case_of(f"{n}?", "a", [worker]) for n in range(9)]
    setup = replace(setup_of([worker]), workers={"ann": CountedWorker(worker, Counter())})
    budget = EvalBudget(4.0)
    evaluation = Evaluation(setup, cases, seed=0, concurrency=1, budget=budget)
    with pytest.raises(BudgetExhausted, match=r"the cap on usd is \$4"):
        await evaluation.row("single:ann")
    assert evaluation.unfinished == {"single:ann": 4}
    assert (worker.calls, budget.spent) == (4, 4.0)


class Unhurried(ScriptedWorker):
    """Lets everyone else begin before it replies."""

    async def reply(self, request: Request) -> Reply:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().reply(request)


async def test_the_cap_holds_although_many_tasks_may_be_under_way() -> None:
    """The first task of each strategy is alone, so that its cost is known before the others."""
    workers = [
        Unhurried("ann", "a", price=Price(input=0, output=1_000_000)),
        Unhurried("ben", "a b c", price=Price(input=0, output=1_000_000)),
    ]
    cases = [case_of(f"{n}?", "a", workers) for n in range(6)]
    setup = replace(
        setup_of(workers),
        workers={worker.profile.name: CountedWorker(worker, Counter()) for worker in workers},
    )
    budget = EvalBudget(17.0)
    evaluation = Evaluation(setup, cases, seed=0, concurrency=6, budget=budget)
    with pytest.raises(BudgetExhausted):
        await evaluation.row("best-single")
    assert budget.spent == 15.0
    assert evaluation.unfinished == {"single:ben": 3}


async def test_the_cap_holds_although_the_first_task_was_answered_by_a_kept_reply() -> None:
    """It cost nothing, which says nothing of those whose replies are not kept."""
    worker = Unhurried("ann", "a", price=Price(input=0, output=1_000_000))
    cases = [case_of(f"{n}?", "a", [worker]) for n in range(9)]
    kept = RepeatCachedWorker(CountedWorker(worker, Counter()), ReplyCache(None, 1_000_000))
    setup = replace(setup_of([worker]), workers={"ann": kept})
    await Evaluation(setup, cases[:1], seed=0, concurrency=1).row("single:ann")
    budget = EvalBudget(4.0)
    evaluation = Evaluation(setup, cases, seed=0, concurrency=8, budget=budget)
    with pytest.raises(BudgetExhausted):
        await evaluation.row("single:ann")
    assert budget.spent == 4.0
    assert evaluation.unfinished == {"single:ann": 5}


async def test_two_tasks_of_one_id_are_refused() -> None:
    worker = knows("ann", "a")
    cases = [case_of("a?", "a", [worker])] * 2
    with pytest.raises(UsageError, match="two tasks have the id 'a\\?'"):
        Evaluation(setup_of([worker]), cases, seed=0, concurrency=1)
