from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from podium.conductors import (
    Conductor,
    LearnedRouterConductor,
    ModelConductor,
    Plan,
    PlanningContext,
    TierRouter,
)
from podium.core.pool import Limits, Pool, WorkerProfile
from podium.core.request import Image, Price
from podium.core.routing import RoutingRecord
from podium.core.run import Round
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from podium.workers import ScriptedWorker
from support.rounds import answered
from support.scripted_router import ScriptedRouter

STRONG = WorkerProfile(name="strong", price=Price(input=5, output=25))
SMALL = WorkerProfile(
    name="small", price=Price(input=0.1, output=0.4), limits=Limits(context_window=2048)
)
SEEING = WorkerProfile(
    name="seeing", price=Price(input=1, output=5), capabilities=frozenset({"vision"})
)
POOL = Pool((STRONG, SMALL, SEEING))
SCORES = {"strong": 0.7, "small": 0.9, "seeing": 0.2}
PLANNED = Workflow((Step("small", "draft"), Step("strong", "polish", access=(0,))))
QUESTION = PlanningContext(question="Why?", pool=POOL)


class Planner(Conductor):
    name = "planner"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        return Plan(PLANNED, "as I wrote it", ("one thing was tolerated",))


def conductor(router: ScriptedRouter, confidence: float = 0.5) -> LearnedRouterConductor:
    return LearnedRouterConductor(
        TierRouter(router, confidence=confidence, quality_bias=0.6), Planner()
    )


async def test_the_worker_of_the_routers_choice_gets_the_question_as_it_is(nobody: Caller) -> None:
    plan = await conductor(ScriptedRouter(SCORES)).plan(QUESTION, nobody)
    assert plan.workflow == Workflow((Step("small", "Why?"),))
    assert plan.warnings == ()
    assert plan.routing == RoutingRecord(
        worker="small",
        confidence=0.9,
        scores=SCORES,
        quality_bias=0.6,
        router="0123456789ab",
        min_confidence=0.5,
    )


async def test_the_quality_bias_of_the_question_replaces_the_default(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    for quality_bias in (None, 0.0, 1.0):
        await conductor(router).plan(replace(QUESTION, quality_bias=quality_bias), nobody)
    assert [quality_bias for _, _, quality_bias in router.asked] == [0.6, 0.0, 1.0]


async def test_only_workers_that_can_take_the_question_are_chosen_among(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    long = replace(QUESTION, question="long " * 2000)
    seen = replace(QUESTION, images=(Image("image/png", data="aGk="),))
    lead_conductor = conductor(router, confidence=0.1)
    chosen = [await lead_conductor.plan(context, nobody) for context in (long, seen)]
    assert [names for _, names, _ in router.asked] == [("strong", "seeing"), ("seeing",)]
    assert [plan.routing.worker for plan in chosen if plan.routing] == ["strong", "seeing"]


async def test_a_confidence_that_is_no_number_is_not_sure(nobody: Caller) -> None:
    router = ScriptedRouter(dict.fromkeys(SCORES, float("nan")))
    plan = await conductor(router).plan(QUESTION, nobody)
    assert plan.workflow == PLANNED
    assert plan.routing is not None
    assert plan.routing.escalated


async def test_unsure_routing_goes_to_the_conductor(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    plan = await conductor(router, confidence=0.91).plan(QUESTION, nobody)
    assert (plan.workflow, plan.text) == (PLANNED, "as I wrote it")
    assert plan.warnings == ("one thing was tolerated",)
    assert plan.routing is not None
    assert plan.routing.escalated
    plan = await conductor(router, confidence=0.9).plan(QUESTION, nobody)
    assert plan.routing is not None
    assert not plan.routing.escalated


async def test_a_lower_quality_bias_never_escalates_what_a_higher_one_does_not(
    nobody: Caller,
) -> None:
    for confidence, escalated in ((0.8, [False] * 4), (0.95, [False, True, True, True])):
        lead_conductor = conductor(ScriptedRouter(SCORES), confidence)
        found = []
        for quality_bias in (0.0, 0.2, 0.5, 1.0):
            plan = await lead_conductor.plan(replace(QUESTION, quality_bias=quality_bias), nobody)
            assert plan.routing is not None
            found.append(plan.routing.escalated)
        assert found == escalated


@pytest.mark.parametrize(
    ("quality_bias", "confidence", "chosen"),
    [
        (0.2, 0.1, "strong"),
        (
            0.2,
            0.8,
            "small",
        ),  # the quality bias prefers strong, of which the router is not sure enough
        (0.0, 0.8, "strong"),
    ],
)
async def test_the_preferred_worker_is_asked_only_where_the_router_is_confident(
    nobody: Caller, quality_bias: float, confidence: float, chosen: str
) -> None:
    lead_conductor = conductor(ScriptedRouter(SCORES), confidence)
    plan = await lead_conductor.plan(replace(QUESTION, quality_bias=quality_bias), nobody)
    assert plan.workflow == Workflow((Step(chosen, "Why?"),))


async def test_an_answer_of_the_routers_choice_is_accepted(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    first = await conductor(router).plan(QUESTION, nobody)
    assert first.workflow is not None
    round_ = replace(answered(first.workflow), routing=first.routing)
    second = await conductor(router).plan(replace(QUESTION, rounds=(round_,)), nobody)
    assert second.workflow is None
    assert len(router.asked) == 1


async def test_the_conductor_decides_on_what_was_passed_on_to_it(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    lead_conductor = conductor(router, confidence=0.95)
    first = await lead_conductor.plan(QUESTION, nobody)
    assert first.workflow is not None
    round_ = replace(answered(first.workflow), routing=first.routing)
    second = await lead_conductor.plan(replace(QUESTION, rounds=(round_,)), nobody)
    assert second.workflow == PLANNED
    assert len(router.asked) == 1


async def test_conductor_plans_if_the_routed_worker_fails(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    first = await conductor(router).plan(QUESTION, nobody)
    failed = Round(0, first.workflow, routing=first.routing)
    again = await conductor(router).plan(replace(QUESTION, rounds=(failed,)), nobody)
    assert again.workflow == PLANNED


async def test_a_worker_that_the_router_does_not_know_is_never_its_choice(nobody: Caller) -> None:
    router = ScriptedRouter({**SCORES, "small": 1.0}, stranger="small")
    mini = TierRouter(router, warnings=("the pool has changed",))
    plan = await LearnedRouterConductor(mini, Planner()).plan(QUESTION, nobody)
    assert plan.routing is not None
    assert plan.routing.worker == "strong"
    assert "small" not in plan.routing.scores
    assert plan.warnings == ("the pool has changed",)


async def test_a_router_without_known_workers_asks_the_cheapest_and_warns(
    nobody: Caller,
) -> None:
    router = ScriptedRouter(SCORES, stranger="small")
    alone = PlanningContext(question="Why?", pool=Pool((SMALL,)))
    plan = await conductor(router).plan(alone, nobody)
    assert plan.workflow == Workflow((Step("small", "Why?"),))
    assert plan.routing is None
    assert "trained with none of those that can take this question (small)" in plan.warnings[0]


async def test_decisions_are_made_off_the_event_loop(nobody: Caller) -> None:
    router = ScriptedRouter(SCORES)
    await conductor(router).plan(QUESTION, nobody)
    assert threading.current_thread().name not in router.threads
    assert len(router.threads) == 1


def test_the_configured_conductor_decides_planner_and_prompts() -> None:
    planner = ScriptedWorker("planner", "")
    model = ModelConductor(planner)
    lead_conductor = LearnedRouterConductor(TierRouter(ScriptedRouter(SCORES)), model)
    assert lead_conductor.worker is planner
    assert lead_conductor.prompt_hash == model.prompt_hash
    assert lead_conductor.name == "mini(model(planner))"
    plain = LearnedRouterConductor(TierRouter(ScriptedRouter(SCORES)), Planner())
    assert (plain.worker, plain.prompt_hash) == (None, "")


def test_the_fingerprint_changes_with_all_that_shapes_a_decision() -> None:
    router = ScriptedRouter(SCORES)
    minis = [
        TierRouter(router),
        TierRouter(router, confidence=0.1),
        TierRouter(router, quality_bias=0.6),
        TierRouter(replace(router, fingerprint="ba9876543210")),
    ]
    assert len({mini.fingerprint for mini in minis}) == len(minis)


@pytest.mark.parametrize(
    ("escalated", "words"),
    [
        (
            True,
            "chose no worker at quality bias 0.25, so the conductor planned; small came nearest "
            "with confidence 0.90 where 0.95 is needed",
        ),
        (False, "chose small with confidence 0.90 at quality bias 0.25"),
    ],
)
def test_a_decision_has_a_sentence_with_its_reasons(escalated: bool, words: str) -> None:
    routing = RoutingRecord(
        worker="small",
        confidence=0.9,
        scores=SCORES,
        quality_bias=0.25,
        router="0123456789ab",
        min_confidence=0.95,
        escalated=escalated,
    )
    assert words in routing.explanation
    for part in (
        "small",
        "0.90",
        "quality bias 0.25",
        "0123456789ab",
        "small 0.90, strong 0.70, seeing",
    ):
        assert part in routing.explanation


async def test_a_first_decision_is_made_before_there_is_a_question() -> None:
    router = ScriptedRouter(SCORES, stranger="seeing")
    await TierRouter(router).warm_up(POOL)
    await TierRouter(replace(router, stranger="small")).warm_up(Pool((SMALL,)))
    assert [names for _, names, _ in router.asked] == [("strong", "small")]
