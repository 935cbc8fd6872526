from __future__ import annotations

import json
from dataclasses import replace

from evals.support import IdealConductor, case_of, context_of, oracle_cases, pool_of
from podium.conductors import ModelConductor, RulesConductor
from podium.core.budget import Budget
from podium.core.errors import Unavailable
from podium.core.request import Price, Reply, Usage
from podium.core.roles import Role
from podium.core.run import load
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.evals.sample import Case, Sample, grade_run
from podium.evals.strategies.conducting import conductor_strategy, ideal_plan, single_worker
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.tasks import everyday_task
from podium_lab.etudes.workers import oracle_workers

SPARE = ScriptedWorker("spare", "never asked")
"""A second worker: a prompted conductor does not plan for a pool of one."""


async def test_planning_and_work_are_counted_apart() -> None:
    (case,) = oracle_cases(1)
    context = context_of(oracle_workers())
    conducted_run = await conductor_strategy(IdealConductor([case]), rounds=1)(case, context)
    sample = await grade_run(case, conducted_run)
    alone = await grade_run(case, await ideal_plan(case, context))
    assert alone.orchestration_tokens == 0
    assert sample.orchestration_tokens == len(case.task.question.split()) + len(["two", "words"])
    assert sample.worker_tokens == alone.worker_tokens
    assert sample.worker_tokens == sum(step.usage.total_tokens or 0 for step in conducted_run.steps)


async def test_a_sample_says_what_was_planned_and_whether_it_was_right() -> None:
    case = next(case for case in oracle_cases(30) if case.task.kind == "join-2")
    sample = await grade_run(case, await ideal_plan(case, context_of(oracle_workers())))
    assert case.ideal is not None
    assert (sample.right, sample.valid, sample.error) == (True, True, None)
    assert (sample.kind, sample.skills, sample.steps) == ("join-2", 3, 3)
    assert sample.shape == "fan-out/join"
    assert sample.workers == tuple(step.worker for step in case.ideal.steps)
    assert (sample.first_right, sample.accepted) == (None, None)


async def test_unknown_tokens_stay_unknown() -> None:
    worker = ScriptedWorker("vague", "42", usage=Usage(None, 1))
    case = case_of("Why?", "42", [worker])
    sample = await grade_run(case, await single_worker("vague")(case, context_of([worker])))
    assert sample.worker_tokens is None
    assert sample.orchestration_tokens == 0


async def test_a_plan_that_had_to_be_replaced_is_not_valid() -> None:
    workers = [ScriptedWorker("solver", "42"), SPARE]
    case = case_of("Why?", "42", workers)
    good = ScriptedWorker("planner", 'model_id = [0]\nsubtasks = ["Why?"]\naccess_list = [[]]')
    bad = ScriptedWorker("planner", "I would rather not plan")
    samples = [
        await grade_run(
            case,
            await conductor_strategy(ModelConductor(planner), rounds=1)(case, context_of(workers)),
        )
        for planner in (good, bad)
    ]
    assert [sample.valid for sample in samples] == [True, False]
    assert [sample.right for sample in samples] == [True, True]


async def test_a_planner_that_cannot_be_reached_leaves_no_valid_plan_and_is_at_fault() -> None:
    workers = [ScriptedWorker("solver", "42"), SPARE]
    case = case_of("Why?", "42", workers)
    planner = ScriptedWorker("planner", Unavailable("gone"))
    run = await conductor_strategy(ModelConductor(planner), rounds=1)(case, context_of(workers))
    sample = await grade_run(case, run)
    assert (sample.valid, sample.right) == (False, True)
    assert (sample.error, sample.error_source) == ("gone", "the conductor")


async def test_a_planner_that_is_reached_in_the_end_is_not_at_fault() -> None:
    workers = [ScriptedWorker("solver", "42"), SPARE]
    case = case_of("Why?", "42", workers)
    text = 'model_id = [0]\nsubtasks = ["Why?"]\naccess_list = [[]]'
    planner = ScriptedWorker("planner", [Unavailable("busy", retry_after=0), text])
    patient = replace(context_of(workers), call_policy=CallPolicy(RetryPolicy(attempts=2)))
    run = await conductor_strategy(ModelConductor(planner), rounds=1)(case, patient)
    sample = await grade_run(case, run)
    assert (sample.valid, sample.error, sample.error_source) == (True, None, "")
    assert sample.calls == 3


async def test_a_fault_is_kept_and_counts_as_wrong() -> None:
    worker = ScriptedWorker("solver", Unavailable("gone fishing"))
    case = case_of("Why?", "42", [worker])
    sample = await grade_run(case, await single_worker("solver")(case, context_of([worker])))
    assert (sample.right, sample.error) == (False, "gone fishing")


async def test_an_answer_that_was_cut_off_is_no_fault() -> None:
    workers = [ScriptedWorker("solver", Reply("42", finish="length"))]
    case = case_of("Why?", "42", workers)
    run = await conductor_strategy(RulesConductor(), rounds=1)(case, context_of(workers))
    assert run.error is not None
    assert (await grade_run(case, run)).error is None


async def test_of_two_rounds_the_first_answer_is_graded_too() -> None:
    case = next(case for case in oracle_cases(30) if case.task.kind == "one")
    conductor = conductor_strategy(IdealConductor([case]), rounds=2)
    accepted = await grade_run(case, await conductor(case, context_of(oracle_workers())))
    assert (accepted.right, accepted.first_right, accepted.accepted) == (True, True, True)

    assert case.ideal is not None
    needed = case.ideal.steps[0].worker
    declining = ScriptedWorker(needed, ["I do not know.", case.task.answer])
    others = [worker for worker in oracle_workers() if worker.profile.name != needed]
    replanned = await grade_run(case, await conductor(case, context_of([declining, *others])))
    assert (replanned.right, replanned.first_right, replanned.accepted) == (True, False, False)
    assert replanned.steps == 2


async def test_a_line_of_a_file_holds_the_whole_run() -> None:
    (case,) = oracle_cases(1)
    run = await ideal_plan(case, context_of(oracle_workers()))
    line = json.loads(json.dumps((await grade_run(case, run)).document(run)))
    assert load(line["run"]) == run
    assert (line["task"], line["right"]) == (case.task.id, True)


async def test_an_answer_that_stands_for_want_of_a_plan_was_not_accepted() -> None:
    workers = [ScriptedWorker("solver", "42"), SPARE]
    case = case_of("Why?", "42", workers)
    first = 'model_id = [0]\nsubtasks = ["Why?"]\naccess_list = [[]]'
    accepting = ["model_id = []\nsubtasks = []\naccess_list = []"]
    for second, accepted in ((accepting, True), (["Well.", "Hm."], False)):
        conductor = ModelConductor(ScriptedWorker("planner", [first, *second]))
        run = await conductor_strategy(conductor, rounds=2)(case, context_of(workers))
        sample = await grade_run(case, run)
        assert run.rounds[-1].accepts_answer
        assert (sample.first_right, sample.accepted) == (True, accepted)


async def test_a_plan_that_is_graded_must_be_the_conductors_own() -> None:
    """The fallback passes the question unchanged: sensible, but not planned."""
    workers = [ScriptedWorker("generalist", "never asked"), SPARE]
    task = everyday_task("Why do we dream?")
    case = Case(task, pool_of(workers))
    lists = 'model_id = [0]\nsubtasks = ["{}"]\naccess_list = [[]]'
    for text, right, valid in (
        (lists.format("Why do we dream?"), True, True),
        (lists.format("Dreams?"), False, True),
        ("no plan", False, False),
    ):
        conductor = ModelConductor(ScriptedWorker("planner", text), fallback="generalist")
        run = await conductor_strategy(conductor, rounds=1)(case, context_of(workers))
        sample = await grade_run(case, run)
        assert (sample.right, sample.valid, sample.worker_tokens) == (right, valid, 0)
        assert sample.orchestration_tokens
    assert workers[0].calls == 0


async def test_a_plan_that_could_not_be_made_is_a_fault() -> None:
    workers = [ScriptedWorker("generalist", "never asked"), SPARE]
    case = Case(everyday_task("Why do we dream?"), pool_of(workers))
    tight = replace(context_of(workers), options=Options(budget=Budget(calls=0)))
    conductor = ModelConductor(ScriptedWorker("planner", "no plan"))
    sample = await grade_run(case, await conductor_strategy(conductor, rounds=1)(case, tight))
    assert (sample.right, sample.steps) == (False, 0)
    assert sample.error is not None
    assert "the cap on calls is 0" in sample.error


async def test_a_sample_counts_every_call_and_what_it_cost_and_says_what_steps_are_for() -> None:
    price = Price(input=1_000_000, output=0)
    worker = ScriptedWorker("solver", "42", price=price)
    planner = ScriptedWorker("planner", 'model_id = [0]\nsubtasks = ["Why?"]\naccess_list = [[]]')
    case = replace(
        case_of("Why?", "42", [worker, SPARE]),
        task=replace(case_of("Why?", "42", [worker]).task, answer="42", difficulty="hard"),
    )
    context = context_of([worker, SPARE])
    alone = await grade_run(case, await single_worker("solver")(case, context))
    run = await conductor_strategy(ModelConductor(planner), rounds=1)(case, context)
    planned = await grade_run(case, run)
    assert (alone.calls, alone.cost_usd) == (1, 1.0)
    assert (planned.calls, planned.cost_usd) == (2, run.cost_usd)
    assert planned.roles == (Role.SOLVE,)
    assert (planned.expected, planned.difficulty, planned.judge) == ("42", "hard", None)


async def test_a_grader_that_throws_is_named_and_the_answer_counts_as_wrong() -> None:
    async def grader(answer: str) -> bool:
        raise ZeroDivisionError("no tests")

    worker = ScriptedWorker("solver", "42")
    case = case_of("Why?", "42", [worker])
    case = replace(case, task=replace(case.task, grader=grader))
    sample = await grade_run(case, await single_worker("solver")(case, context_of([worker])))
    assert (sample.right, sample.error_source) == (False, "the grader")
    assert sample.error == "the grader raised ZeroDivisionError: no tests"


async def test_a_worker_that_fails_is_named() -> None:
    workers = [ScriptedWorker("solver", Unavailable("gone fishing")), ScriptedWorker("other", "1")]
    case = case_of("Why?", "42", workers)
    samples = [
        await grade_run(case, await single_worker(worker.profile.name)(case, context_of(workers)))
        for worker in workers
    ]
    assert [sample.error_source for sample in samples] == ["solver", ""]


async def test_a_sample_can_be_read_again_as_it_was_written() -> None:
    (case,) = oracle_cases(1)
    run = await ideal_plan(case, context_of(oracle_workers()))
    sample = replace(await grade_run(case, run), repeat=2, paid_usd=0.5)
    line = json.loads(json.dumps(sample.document(run)))
    assert Sample.from_document(line) == sample
    assert Sample.from_document({**line, "from": "a later Podium"}) == sample
