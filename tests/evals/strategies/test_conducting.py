from __future__ import annotations

from evals.support import IdealConductor, case_of, context_of, oracle_cases
from podium.core.request import Request, user
from podium.evals.strategies.conducting import conductor_strategy, ideal_plan, random_plan
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes import FAMILIES
from podium_lab.etudes.workers import MISLEADING_REPLY, OracleWorker, oracle_workers


async def test_ideal_plans_by_perfect_workers_are_always_right() -> None:
    cases = oracle_cases(40)
    for case in cases:
        run = await ideal_plan(case, context_of(oracle_workers()))
        assert await case.task.grader(run.answer or ""), case.task.question
        assert run.rounds[0].workflow == case.ideal
    assert {case.skills for case in cases} == {1, 2, 3, 4, 5}


async def test_a_perfect_specialist_knows_its_own_family_alone() -> None:
    (case,) = [case for case in oracle_cases(30) if case.task.kind == "one"][:1]
    assert case.ideal is not None
    needed = case.ideal.steps[0].worker
    for family in FAMILIES:
        reply = await OracleWorker(family.value).reply(Request((user(case.task.question),)))
        assert await case.task.grader(reply.text) is (family.value == needed)
        assert reply.usage.input_tokens == len(case.task.question.split())


async def test_the_misleading_worker_is_as_sure_as_it_is_wrong() -> None:
    reply = await OracleWorker("misleading").reply(Request((user("Which day follows Monday?"),)))
    assert reply.text == MISLEADING_REPLY


async def test_random_plans_are_well_formed_and_repeat_with_the_seed() -> None:
    cases = oracle_cases(30)

    async def plans(seed: int) -> list[object]:
        runs = [await random_plan(case, context_of(oracle_workers(), seed)) for case in cases]
        assert all(run.status == "answered" for run in runs)
        return [run.rounds[0].workflow for run in runs]

    first = await plans(1)
    assert await plans(1) == first
    assert await plans(2) != first


async def test_half_of_the_random_plans_have_the_true_subtasks_and_the_others_the_question() -> (
    None
):
    whole = 0
    cases = [case for case in oracle_cases(60) if case.skills != 1]
    for case in cases:
        run = await random_plan(case, context_of(oracle_workers()))
        workflow = run.rounds[0].workflow
        assert workflow is not None
        assert case.ideal is not None
        subtasks = [step.subtask for step in workflow.steps]
        whole += subtasks == [case.task.question]
        assert subtasks in (
            [case.task.question],
            [step.subtask for step in case.ideal.steps],
        )
    assert 0.25 < whole / len(cases) < 0.75


async def test_a_random_plan_for_a_task_of_any_suite_is_one_worker_with_the_whole_question() -> (
    None
):
    workers = [ScriptedWorker("solver", "42")]
    run = await random_plan(case_of("Why?", "42", workers), context_of(workers))
    assert [(step.worker, step.subtask) for step in run.steps] == [("solver", "Why?")]


async def test_a_conductor_plans_as_often_as_it_has_rounds() -> None:
    (case,) = oracle_cases(1)
    first_time, twice = IdealConductor([case]), IdealConductor([case])
    first = await conductor_strategy(first_time, rounds=1)(case, context_of(oracle_workers()))
    second = await conductor_strategy(twice, rounds=2)(case, context_of(oracle_workers()))
    assert (first_time.planner.calls, twice.planner.calls) == (1, 2)
    assert [round_.accepts_answer for round_ in first.rounds] == [False]
    assert [round_.accepts_answer for round_ in second.rounds] == [False, True]
    assert first.pool == second.pool == case.pool
