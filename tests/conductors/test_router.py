from __future__ import annotations

import pytest

from podium.conductors import PlanningContext, RouterConductor
from podium.conductors.builtin import cheapest_capable
from podium.core.errors import UnknownWorker
from podium.core.pool import CONDUCTOR_PROVIDER, Limits, Pool, WorkerProfile
from podium.core.request import Image, Message, Price, ResponseOptions, Tool, ToolResult, user
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from support.rounds import answered

STRONG = WorkerProfile(name="strong", price=Price(input=5, output=25))
SEEING = WorkerProfile(
    name="seeing", price=Price(input=1, output=5), capabilities=frozenset({"vision"})
)
SMALL = WorkerProfile(
    name="small",
    price=Price(input=0.1, output=0.4),
    limits=Limits(context_window=2048),
    fallback="strong",
)
UNPRICED = WorkerProfile(name="unpriced")
POOL = Pool((STRONG, SEEING, SMALL, UNPRICED))


async def test_the_question_goes_unaltered_to_one_worker_without_a_planning_call(
    nobody: Caller,
) -> None:
    question = "  What is 2 + 2?\nAnswer briefly. "
    plan = await RouterConductor().plan(PlanningContext(question=question, pool=POOL), nobody)
    assert plan.workflow == Workflow((Step("small", question),))


async def test_a_choice_of_ones_own_decides(nobody: Caller) -> None:
    router = RouterConductor(lambda context: context.pool.most_expensive.name, name="strongest")
    plan = await router.plan(PlanningContext(question="q", pool=POOL), nobody)
    assert plan.workflow == Workflow((Step("strong", "q"),))
    assert router.name == "strongest"


async def test_a_choice_outside_the_pool_is_refused_by_name(nobody: Caller) -> None:
    router = RouterConductor(lambda context: "nobody")
    with pytest.raises(UnknownWorker, match="no worker named 'nobody'"):
        await router.plan(PlanningContext(question="q", pool=POOL), nobody)


async def test_later_rounds_accept_the_answer(nobody: Caller) -> None:
    rounds = (answered(Workflow((Step("small", "q"),))),)
    plan = await RouterConductor().plan(
        PlanningContext(question="q", pool=POOL, rounds=rounds), nobody
    )
    assert plan.workflow is None


def test_a_worker_with_too_small_a_context_window_is_skipped() -> None:
    context = PlanningContext(question="word " * 2000, pool=POOL)
    assert cheapest_capable(context) == "seeing"


def test_the_conversation_counts_towards_the_window() -> None:
    context = PlanningContext(question="And now?", pool=POOL, history=(user("word " * 2000),))
    assert cheapest_capable(context) == "seeing"


def test_a_picture_in_the_conversation_needs_a_worker_that_sees() -> None:
    picture = Image(url="https://example.org/cat.png")
    for part in (picture, ToolResult("1", "", images=(picture,))):
        pictured = Message("user", (part,))
        context = PlanningContext(question="What is this?", pool=POOL, history=(pictured,))
        assert cheapest_capable(context) == "seeing"


def test_a_conductor_in_the_pool_is_passed_over() -> None:
    free = Price(input=0, output=0)
    nested = WorkerProfile(name="nested", provider=CONDUCTOR_PROVIDER, price=free)
    assert cheapest_capable(PlanningContext(question="q", pool=Pool((nested, STRONG)))) == "strong"


def test_without_a_capable_worker_the_cheapest_of_all_is_chosen() -> None:
    context = PlanningContext(
        question="word " * 2000, pool=Pool((SMALL, STRONG)).without({"strong"})
    )
    assert cheapest_capable(context) == "small"


def test_an_image_in_the_question_goes_to_the_cheapest_that_can_see() -> None:
    context = PlanningContext(question="q", pool=POOL, images=(Image(url="https://x/y"),))
    assert cheapest_capable(context) == "seeing"


def test_answer_requirements_decide_before_price() -> None:
    able = WorkerProfile(
        name="able", price=Price(input=9, output=90), capabilities=frozenset({"json", "tools"})
    )
    pool = Pool((*POOL.workers, able))
    tools = (Tool("look", "", {"type": "object"}),)
    for response_options in (ResponseOptions(schema={}), ResponseOptions(tools=tools)):
        assert (
            cheapest_capable(
                PlanningContext(question="q", pool=pool, response_options=response_options)
            )
            == "able"
        )
    unused = ResponseOptions(tools=tools, tool_choice="none")
    assert (
        cheapest_capable(PlanningContext(question="q", pool=pool, response_options=unused))
        == "small"
    )


def test_a_capable_worker_with_a_small_window_beats_an_incapable_one() -> None:
    small = WorkerProfile(
        name="a", limits=Limits(context_window=100), capabilities=frozenset({"json"})
    )
    pool = Pool((*POOL.workers, small))
    context = PlanningContext(
        question="word " * 200, pool=pool, response_options=ResponseOptions(schema={})
    )
    assert cheapest_capable(context) == "a"
