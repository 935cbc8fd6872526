"""What plans earn, carried out by the real engine over small workers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from podium.conductors.plan import write
from podium.core.errors import ConfigError, RequestRefused, Unavailable, UnknownWorker, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Usage
from podium.core.run import Round
from podium.core.task import Task
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker
from podium.train.score import PAPER, RELEASED, Reward, Score, Scorer, score
from podium_lab.etudes import FAMILIES
from podium_lab.etudes.etude import held_out
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.tasks import etude_task
from podium_lab.etudes.workers import pool_profiles
from support.harness import FakeWorker

ACCEPT = "model_id = []\nsubtasks = []\naccess_list = []"
ONE = Workflow((Step("solver", "Solve it"),))
JOIN = Workflow((Step("solver", "Once"), Step("other", "Twice"), Step("judge", "Choose", (0, 1))))


async def is_42(answer: str) -> bool:
    return answer == "42"


TASK = Task(id="t", question="What is six times seven?", grader=is_42, kind="sums")


def pool_of(*workers: Worker) -> Pool:
    return Pool(tuple(worker.profile for worker in workers))


def call_policy(attempts: int = 1) -> CallPolicy:
    async def no_time(seconds: float) -> None:
        await asyncio.sleep(0)

    return CallPolicy(RetryPolicy(attempts=attempts), sleep=no_time)


async def scored(
    workflow: Workflow | str,
    *workers: Worker,
    task: Task = TASK,
    reward: Reward = PAPER,
    attempts: int = 1,
    rounds: tuple[Round, ...] = (),
    ended: bool = True,
    may_continue: bool = False,
) -> Score:
    pool = pool_of(*workers)
    text = workflow if isinstance(workflow, str) else write(workflow, pool)
    scorer = Scorer(workers, reward=reward, call_policy=call_policy(attempts))
    return await scorer.score(
        text, task, pool, rounds=rounds, ended=ended, may_continue=may_continue
    )


def saying(name: str, reply: str = "42", *, fallback: str | None = None) -> FakeWorker:
    return FakeWorker(name, lambda request: reply, fallback=fallback)


def failing(
    name: str, error: Exception | None = None, *, fallback: str | None = None
) -> FakeWorker:
    return FakeWorker(name, lambda request: error or Unavailable("down"), fallback=fallback)


# ---- outcomes


async def test_a_right_answer_earns_all_of_it_and_keeps_its_run() -> None:
    result = await scored(ONE, saying("solver"))
    assert (result.reward, result.valid, result.right, result.problem) == (1.0, True, True, "")
    assert result.parts == {"format": 0.5, "answer": 0.5}
    assert result.workflow == ONE
    assert result.run is not None
    assert (result.run.status, result.run.answer, result.run.question) == (
        "answered",
        "42",
        TASK.question,
    )
    assert [step.reply for step in result.steps] == ["42"]


async def test_a_wrong_answer_earns_what_a_plan_is_worth() -> None:
    result = await scored(ONE, saying("solver", "41"))
    assert (result.reward, result.valid, result.right) == (0.5, True, False)


async def test_the_reward_is_the_one_that_was_chosen() -> None:
    assert (await scored(ONE, saying("solver"), reward=RELEASED)).reward == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I would ask the solver.", "plan"),
        ("model_id = [7]\nsubtasks = ['Solve it']\naccess_list = [[]]", "model_id"),
        ("model_id = [0]\nsubtasks = ['Solve it']\naccess_list = [[]]\nThat is it.", "follow"),
        (ACCEPT, "no answer yet"),
    ],
)
async def test_malformed_plans_earn_nothing_and_make_no_call(text: str, message: str) -> None:
    solver = saying("solver")
    result = await scored(text, solver)
    assert (result.reward, result.valid, result.run) == (0.0, False, None)
    assert message in result.problem
    assert result.text == text
    assert not solver.asked


async def test_a_plan_that_was_cut_off_is_malformed_even_if_it_looks_whole() -> None:
    result = await scored(ONE, saying("solver"), ended=False)
    assert (result.reward, result.valid) == (0.0, False)
    assert "cut off" in result.problem


async def test_steps_read_what_their_access_names() -> None:
    judge = saying("judge")
    result = await scored(JOIN, saying("solver", "forty"), saying("other", "two"), judge)
    assert result.right
    assert "forty" in judge.asked[0]
    assert "two" in judge.asked[0]


async def test_right_results_on_the_way_earn_their_share_where_the_reward_counts_them() -> None:
    async def is_6(answer: str) -> bool:
        return answer == "6"

    async def is_7(answer: str) -> bool:
        return answer == "7"

    task = Task(id="t", question="Six times seven?", grader=is_42, milestones=(is_6, is_7))
    said = {"solver": "6", "other": "8", "judge": "48"}
    workers = [FakeWorker(name, lambda _, reply=reply: reply) for name, reply in said.items()]  # type: ignore[misc]
    near = await scored(JOIN, *workers, task=task, reward=Reward(wrong=0.1, milestones=0.4))
    assert near.reward == pytest.approx(0.3)
    assert near.parts["milestones"] == pytest.approx(0.2)
    assert (await scored(JOIN, *workers, task=task)).reward == 0.5


async def test_a_plan_grader_judges_the_plan_and_nothing_is_executed() -> None:
    solver = saying("solver")
    lenient = Task(id="p", question="Hello", grader=is_42, plan_grader=lambda plan: len(plan) == 1)
    result = await scored(ONE, solver, task=lenient)
    assert (result.reward, result.right, result.run) == (1.0, True, None)
    two = Workflow((*ONE.steps, Step("solver", "Again", (0,))))
    assert (await scored(two, solver, task=lenient)).reward == 0.5
    assert not solver.asked


# ---- faults


@pytest.mark.parametrize("error", [Unavailable("down"), RequestRefused("too long"), OSError("?")])
async def test_a_workers_fault_drops_the_rollout(error: Exception) -> None:
    result = await scored(ONE, failing("solver", error))
    assert (result.reward, result.valid, result.parts) == (None, True, {})
    assert str(error) in result.problem
    assert result.run is not None


async def test_a_fault_in_what_the_answer_depends_on_drops_it_though_there_is_an_answer() -> None:
    result = await scored(JOIN, saying("solver"), failing("other"), saying("judge"))
    assert result.run is not None
    assert result.run.answer == "42"
    assert result.reward is None
    assert result.problem == "step 1 (other): down"


async def test_a_fault_that_the_answer_does_not_depend_on_changes_nothing() -> None:
    aside = Workflow((Step("other", "Aside"), Step("solver", "Solve it")))
    assert (await scored(aside, failing("other"), saying("solver"))).reward == 1.0


async def test_a_worker_that_answers_when_asked_again_is_no_fault() -> None:
    outcomes: Iterator[str | Exception] = iter([Unavailable("busy"), "42"])
    solver = FakeWorker("solver", lambda request: next(outcomes))
    assert (await scored(ONE, solver, attempts=2)).reward == 1.0


async def test_a_fallback_that_stands_in_does_not_earn_the_plan_its_reward() -> None:
    result = await scored(ONE, failing("solver", fallback="other"), saying("other"))
    assert result.run is not None
    assert result.run.answer == "42"
    assert result.reward is None


async def test_an_empty_reply_is_an_answer_and_a_wrong_one() -> None:
    result = await scored(ONE, saying("solver", ""))
    assert (result.reward, result.right) == (0.5, False)
    assert "empty reply" in result.problem


async def test_an_empty_last_reply_leaves_the_best_answer_so_far_as_in_every_run() -> None:
    chain = Workflow((Step("solver", "Solve it"), Step("other", "Check it", (0,))))
    result = await scored(chain, saying("solver"), saying("other", ""))
    assert result.run is not None
    assert result.run.status == "partial"
    assert result.reward == 1.0


async def test_a_fault_anywhere_counts_when_the_last_step_gave_no_answer() -> None:
    steps = (Step("other", "Aside"), Step("solver", "Solve it"), Step("judge", "Check it", (1,)))
    result = await scored(Workflow(steps), failing("other"), saying("solver"), saying("judge", ""))
    assert result.reward is None


# ---- further rounds


async def first_round(*workers: Worker, workflow: Workflow = ONE) -> tuple[Round, ...]:
    result = await scored(workflow, *workers)
    assert result.run is not None
    return result.run.rounds


async def test_accepting_earns_what_the_earlier_answer_is_worth() -> None:
    for reply, reward in (("42", 1.0), ("41", 0.5)):
        solver = saying("solver", reply)
        rounds = await first_round(solver)
        result = await scored(ACCEPT, solver, rounds=rounds)
        assert (result.reward, result.workflow, result.steps) == (reward, None, ())
        assert result.run is not None
        assert result.run.answer == reply
        assert result.run.rounds[-1].accepts_answer
        assert len(solver.asked) == 1


async def test_a_new_plan_replaces_the_answer_and_all_reads_the_round_before() -> None:
    solver, other = saying("solver", "forty-one"), saying("other")
    rounds = await first_round(solver, other)
    again = Workflow((Step("other", "Mend it", "all"),))
    result = await scored(again, solver, other, rounds=rounds)
    assert result.reward == 1.0
    assert "forty-one" in other.asked[0]
    assert result.run is not None
    assert [len(round_.steps) for round_ in result.run.rounds] == [1, 1]
    assert len(solver.asked) == 1


async def test_a_step_that_failed_in_an_earlier_round_is_not_asked_again() -> None:
    chain = Workflow((Step("solver", "Solve it"), Step("other", "Check it", (0,))))
    solver, other = saying("solver", "41"), saying("other", "")
    rounds = await first_round(solver, other, workflow=chain)
    result = await scored(Workflow((Step("solver", "Again"),)), solver, other, rounds=rounds)
    assert result.reward == 0.5
    assert (len(solver.asked), len(other.asked)) == (2, 1)


async def test_nothing_can_be_accepted_where_the_earlier_round_has_no_answer() -> None:
    solver = saying("solver", "")
    rounds = await first_round(solver)
    result = await scored(ACCEPT, solver, rounds=rounds)
    assert (result.reward, result.valid) == (0.0, False)


async def test_accepting_is_graded_by_the_plan_behind_the_answer() -> None:
    graded = Task(id="p", question="Hello", grader=is_42, plan_grader=lambda plan: plan == ONE)
    rounds = await first_round(saying("solver"))
    assert (await scored(ACCEPT, saying("solver"), task=graded, rounds=rounds)).reward == 1.0


async def test_a_graded_plan_is_executed_if_another_round_follows() -> None:
    graded = Task(id="p", question="Hello", grader=is_42, plan_grader=lambda plan: plan == ONE)
    solver = saying("solver", "Hello yourself.")
    earned = partial(scored, task=graded, reward=Reward(replan_penalty=0.2, accept_penalty=0.2))
    two = Workflow((*ONE.steps, Step("solver", "Again", (0,))))
    for first, accepted, again in ((ONE, 1.0, 0.8), (two, 0.3, 1.0)):
        run = (await earned(first, solver, may_continue=True)).run
        assert run is not None
        assert run.answer == "Hello yourself."
        calls = len(solver.asked)
        assert (await earned(ACCEPT, solver, rounds=run.rounds)).reward == pytest.approx(accepted)
        assert (await earned(ONE, solver, rounds=run.rounds)).reward == pytest.approx(again)
        assert len(solver.asked) == calls, "a last round is graded by its plan alone"
    failed = await earned(ONE, failing("solver"), may_continue=True)
    assert failed.reward == 1.0
    assert "down" in failed.problem


@pytest.mark.parametrize(
    ("reward", "reply", "again", "accepted"),
    [
        (Reward(replan_penalty=0.2), "42", 0.8, 1.0),
        (Reward(replan_penalty=0.2), "41", 0.5, 0.5),
        (Reward(accept_penalty=0.2), "42", 1.0, 1.0),
        (Reward(accept_penalty=0.2), "41", 0.5, 0.3),
    ],
    ids=[
        "needless after a right answer",
        "after a wrong one",
        "hasty, but right",
        "hasty and wrong",
    ],
)
async def test_right_decisions_on_an_answer_earn_more(
    reward: Reward, reply: str, again: float, accepted: float
) -> None:
    solver = saying("solver", reply)
    rounds = await first_round(solver)
    planned = await scored(ONE, solver, rounds=rounds, reward=reward)
    assert planned.reward == pytest.approx(again)
    assert planned.was_right is (reply == "42")
    kept = await scored(ACCEPT, solver, rounds=rounds, reward=reward)
    assert kept.reward == pytest.approx(accepted)
    assert kept.was_right is (reply == "42")
    first = await scored(ONE, saying("solver"), reward=reward)
    assert (first.reward, first.was_right) == (1.0, None)


async def test_only_what_the_new_plan_uses_is_taken_off() -> None:
    reward = Reward(penalty_per_1000_worker_tokens=50)  # an fake uses two tokens a call
    solver = saying("solver")
    rounds = await first_round(solver)
    again = await scored(ONE, solver, rounds=rounds, reward=reward)
    assert again.parts["cost"] == pytest.approx(-0.1)
    assert (await scored(ACCEPT, solver, rounds=rounds, reward=reward)).reward == 1.0


# ---- terms and refusals


async def test_an_unknown_cost_drops_the_rollout_with_a_reason() -> None:
    silent = FakeWorker("solver", lambda request: Reply("42"))
    result = await scored(ONE, silent, reward=Reward(penalty_per_1000_worker_tokens=1))
    assert result.reward is None
    assert "reported no usage" in result.problem
    assert (await scored(ONE, silent)).reward == 1.0


async def test_a_reward_on_plan_tokens_requires_their_count() -> None:
    solver = saying("solver")
    reward = Reward(penalty_per_completion_token=0.001)
    text = write(ONE, pool_of(solver))
    with pytest.raises(UsageError, match="completion_tokens"):
        await score(text, TASK, [solver], reward=reward)
    result = await score(text, TASK, [solver], reward=reward, completion_tokens=100)
    assert result.reward == pytest.approx(0.9)


async def test_a_plan_of_too_many_steps_is_malformed() -> None:
    text = write(JOIN, pool_of(saying("solver"), saying("other"), saying("judge")))
    workers = [saying("solver"), saying("other"), saying("judge")]
    assert not (await score(text, TASK, workers, max_steps=2)).valid


async def test_a_conductor_in_the_pool_is_refused() -> None:
    solver = saying("solver")
    with pytest.raises(ConfigError, match="nested runs are not supported"):
        await scored(ONE, solver, ConductorWorker())


async def test_a_pool_with_a_missing_worker_is_refused() -> None:
    pool = Pool((WorkerProfile(name="solver"), WorkerProfile(name="absent")))
    with pytest.raises(UnknownWorker, match="absent"):
        await score(write(ONE, pool), TASK, [saying("solver")], pool)


# ---- many at once


async def test_many_plans_are_scored_at_once_over_pools_of_their_own() -> None:
    solver, other = saying("solver"), FakeWorker("other", lambda request: Reply("7", Usage(1, 1)))
    pools = (pool_of(solver, other), pool_of(other, solver))
    scorer = Scorer([solver, other])
    text = "model_id = [0]\nsubtasks = ['Solve it']\naccess_list = [[]]"
    results = await asyncio.gather(
        *(scorer.score(text, TASK, pools[number % 2]) for number in range(200))
    )
    assert [result.reward for result in results] == [1.0, 0.5] * 100
    assert solver.most_in_flight == other.most_in_flight == 100


async def test_ideal_plans_of_etudes_earn_all_of_it_over_shuffled_pools() -> None:
    def specialist(family: str) -> FakeWorker:
        return FakeWorker(family, lambda request: oracle_reply(family, request.messages[-1].text))

    families = {family.value: family.value for family in FAMILIES}
    scorer = Scorer([specialist(family) for family in families])
    results = []
    for number, etude in enumerate(held_out(60)):
        pool = pool_profiles(Random(number), families, keep=etude.families, drop=0.3)
        text = write(etude.own_plan, pool)
        results.append(await scorer.score(text, etude_task(etude), pool))
    assert [result.problem for result in results if result.reward != 1.0] == []
    assert len({result.workflow.shape for result in results if result.workflow}) >= 4


def test_scoring_loads_neither_a_trainer_nor_torch() -> None:
    code = "import sys, podium.train.score, podium.train.diagnostics; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"torch", "trl", "transformers", "aiohttp"}.isdisjoint(loaded)
