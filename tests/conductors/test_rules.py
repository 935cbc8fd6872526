from __future__ import annotations

import pytest

from podium.conductors import PlanningContext, RulesConductor, classify_question
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import Price
from podium.core.worker import Caller
from podium.core.workflow import Access, Shape, Step, Workflow
from support.rounds import answered

CAPITAL = "What is the capital of Japan?"
COMPARISON = "Compare GPT-5 and Claude Sonnet 4 for code generation tasks"
SIEVE = "Implement an efficient algorithm to find all prime numbers up to N using a segmented sieve"

PROOF_OF_CONCEPT = Pool(
    tuple(
        WorkerProfile(name=name)
        for name in ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "deepseek-r1-qwen-32b")
    )
)


def priced(name: str, dollars: float) -> WorkerProfile:
    return WorkerProfile(name=name, price=Price(input=dollars, output=dollars))


async def conducted(question: str, pool: Pool, nobody: Caller, *, max_steps: int = 5) -> Workflow:
    context = PlanningContext(question=question, pool=pool, max_steps=max_steps)
    plan = await RulesConductor().plan(context, nobody)
    assert plan.workflow is not None
    plan.workflow.check(pool.names, max_steps)
    return plan.workflow


def cast_of(workflow: Workflow) -> list[tuple[str, Access]]:
    return [(step.worker, step.access) for step in workflow.steps]


async def test_the_capital_of_japan_is_answered_in_one_shot(nobody: Caller) -> None:
    workflow = await conducted(CAPITAL, PROOF_OF_CONCEPT, nobody)
    assert workflow == Workflow((Step("claude-sonnet-4", CAPITAL),))


async def test_a_comparison_gets_two_views_and_a_synthesis(nobody: Caller) -> None:
    workflow = await conducted(COMPARISON, PROOF_OF_CONCEPT, nobody)
    assert cast_of(workflow) == [
        ("gpt-5", ()),
        ("gemini-2.5-pro", ()),
        ("claude-sonnet-4", (0, 1)),
    ]
    assert workflow.shape is Shape.JOIN


async def test_an_algorithm_is_planned_implemented_and_verified(nobody: Caller) -> None:
    workflow = await conducted(SIEVE, PROOF_OF_CONCEPT, nobody)
    assert cast_of(workflow) == [
        ("gpt-5", ()),
        ("deepseek-r1-qwen-32b", (0,)),
        ("claude-sonnet-4", (0, 1)),
    ]
    assert workflow.shape is Shape.CHAIN


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (CAPITAL, "simple"),
        (COMPARISON, "medium"),
        (SIEVE, "complex"),
        ("SOLVE x + 1 = 2", "complex"),
        ("Please write code for me", "complex"),
        ("How can I optimize this?", "complex"),
        ("Analyze the poem", "medium"),
        ("Evaluate the offer", "medium"),
        ("Compare two ways to solve it", "complex"),
        ("Is it solved?", "complex"),
        ("", "simple"),
    ],
)
def test_the_words_of_a_question_decide(question: str, expected: str) -> None:
    assert classify_question(question) == expected


async def test_in_any_other_pool_the_best_worker_leads_and_the_rest_take_turns(
    nobody: Caller,
) -> None:
    pool = Pool((priced("cheap", 1), priced("best", 9), priced("middle", 3)))
    for question in (COMPARISON, SIEVE):
        workflow = await conducted(question, pool, nobody)
        assert [step.worker for step in workflow.steps] == ["cheap", "middle", "best"]
    assert (await conducted(CAPITAL, pool, nobody)).steps[0].worker == "best"


async def test_three_of_the_four_known_names_are_a_pool_like_any_other(nobody: Caller) -> None:
    pool = PROOF_OF_CONCEPT.without({"deepseek-r1-qwen-32b"})
    workflow = await conducted(SIEVE, pool, nobody)
    assert [step.worker for step in workflow.steps] == [
        "claude-sonnet-4",
        "gpt-5",
        "gemini-2.5-pro",
    ]


async def test_one_worker_may_have_several_roles(nobody: Caller) -> None:
    alone = await conducted(SIEVE, Pool((priced("only", 1),)), nobody)
    assert [step.worker for step in alone.steps] == ["only", "only", "only"]
    two = await conducted(SIEVE, Pool((priced("best", 9), priced("other", 1))), nobody)
    assert [step.worker for step in two.steps] == ["other", "other", "best"]


async def test_a_conductor_in_the_pool_gets_no_role(nobody: Caller) -> None:
    nested = WorkerProfile(name="nested", provider=CONDUCTOR_PROVIDER)
    pool = Pool((nested, priced("best", 9), priced("other", 1)))
    workflow = await conducted(COMPARISON, pool, nobody)
    assert "nested" not in [step.worker for step in workflow.steps]


async def test_too_few_steps_leave_the_last_ones_and_then_one_shot(nobody: Caller) -> None:
    two = await conducted(SIEVE, PROOF_OF_CONCEPT, nobody, max_steps=2)
    assert cast_of(two) == [("deepseek-r1-qwen-32b", ()), ("claude-sonnet-4", (0,))]
    two = await conducted(COMPARISON, PROOF_OF_CONCEPT, nobody, max_steps=2)
    assert cast_of(two) == [("gemini-2.5-pro", ()), ("claude-sonnet-4", (0,))]
    one = await conducted(COMPARISON, PROOF_OF_CONCEPT, nobody, max_steps=1)
    assert one == Workflow((Step("claude-sonnet-4", COMPARISON),))


async def test_subtasks_carry_the_question_where_workers_would_not_see_it(
    nobody: Caller,
) -> None:
    for share_question in (True, False):
        pool = Pool(PROOF_OF_CONCEPT.workers, share_question=share_question)
        workflow = await conducted(SIEVE, pool, nobody)
        assert all((SIEVE in step.subtask) is not share_question for step in workflow.steps)


async def test_later_rounds_accept_the_answer(nobody: Caller) -> None:
    rounds = (answered(Workflow((Step("gpt-5", "q"),))),)
    context = PlanningContext(question=SIEVE, pool=PROOF_OF_CONCEPT, rounds=rounds)
    assert (await RulesConductor().plan(context, nobody)).workflow is None
