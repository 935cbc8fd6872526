from __future__ import annotations

from dataclasses import replace

import pytest

from podium.conductors import (
    Conductor,
    FixedConductor,
    ModelConductor,
    Plan,
    PlanningContext,
    PromptStyle,
    RulesConductor,
    TierRouter,
    can_replan,
    conductor_for_tier,
)
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price
from podium.core.run import Tier
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from podium.workers import ScriptedWorker
from support.rounds import answered
from support.scripted_router import ScriptedRouter

POOL = Pool(
    (
        WorkerProfile(name="strong", price=Price(input=5, output=25)),
        WorkerProfile(name="quick", price=Price(input=0.1, output=0.4)),
    )
)
PLANNED = Workflow((Step("quick", "draft"), Step("strong", "polish", access=(0,))))
SIMPLE = "What is the capital of Japan?"
HARD = "Implement a segmented sieve"


class Tireless(Conductor):
    """Plans again in every round, so that a test sees who was asked."""

    name = "tireless"
    prompt_hash = "0123456789abcdef"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        return Plan(PLANNED)


@pytest.mark.parametrize("question", [SIMPLE, HARD])
async def test_mini_routes_every_question_to_the_cheapest_worker(
    question: str, nobody: Caller
) -> None:
    conductor = conductor_for_tier("mini", Tireless())
    plan = await conductor.plan(PlanningContext(question=question, pool=POOL), nobody)
    assert plan.workflow == Workflow((Step("quick", question),))


def test_ultra_is_the_configured_conductor_itself() -> None:
    configured = Tireless()
    assert conductor_for_tier("ultra", configured) is configured


async def test_podium_routes_the_simple_and_conducts_the_rest(nobody: Caller) -> None:
    conductor = conductor_for_tier("podium", Tireless())
    simple = await conductor.plan(PlanningContext(question=SIMPLE, pool=POOL), nobody)
    assert simple.workflow == Workflow((Step("quick", SIMPLE),))
    hard = await conductor.plan(PlanningContext(question=HARD, pool=POOL), nobody)
    assert hard.workflow == PLANNED


async def test_podium_asks_a_trained_conductor_every_time(nobody: Caller) -> None:
    class Trained(Tireless):
        is_trained = True

    conductor = conductor_for_tier("podium", Trained())
    parts = "Double 21, then tell me the capital of Japan"
    for question in (SIMPLE, parts):
        plan = await conductor.plan(PlanningContext(question=question, pool=POOL), nobody)
        assert plan.workflow == PLANNED


@pytest.mark.parametrize(
    ("tier", "question", "routed"),
    [
        ("mini", SIMPLE, True),
        ("mini", HARD, True),
        ("podium", SIMPLE, True),
        ("podium", HARD, False),
        ("ultra", SIMPLE, False),
    ],
)
async def test_a_learned_router_serves_mini_and_what_podium_takes_for_simple(
    tier: Tier, question: str, routed: bool, nobody: Caller
) -> None:
    router = ScriptedRouter({"strong": 0.9, "quick": 0.1})
    conductor = conductor_for_tier(tier, Tireless(), lambda: TierRouter(router))
    plan = await conductor.plan(PlanningContext(question=question, pool=POOL), nobody)
    assert plan.workflow == (Workflow((Step("strong", question),)) if routed else PLANNED)
    assert len(router.asked) == routed


@pytest.mark.parametrize(
    ("question", "quality_bias", "warned"),
    [(HARD, 0.9, True), (HARD, 0.0, True), (HARD, None, False), (SIMPLE, 0.9, False)],
)
async def test_an_unused_quality_bias_is_a_warning_on_the_first_round(
    question: str, quality_bias: float | None, warned: bool, nobody: Caller
) -> None:
    router = ScriptedRouter({"strong": 0.9, "quick": 0.1})
    conductor = conductor_for_tier("podium", Tireless(), lambda: TierRouter(router))
    first = PlanningContext(question=question, pool=POOL, quality_bias=quality_bias)
    plan = await conductor.plan(first, nobody)
    assert any("the quality bias had no effect" in warning for warning in plan.warnings) is warned
    again = await conductor.plan(replace(first, rounds=(answered(PLANNED),)), nobody)
    assert again.warnings == ()


@pytest.mark.parametrize(("prompt", "is_trained"), [("trained", True), ("full", False)])
def test_a_conductor_is_trained_where_it_is_asked_as_in_training(
    prompt: PromptStyle, is_trained: bool
) -> None:
    assert ModelConductor(ScriptedWorker("planner", ""), prompt=prompt).is_trained is is_trained


async def test_every_round_of_a_run_goes_the_same_way(nobody: Caller) -> None:
    conductor = conductor_for_tier("podium", Tireless())
    rounds = (answered(PLANNED),)
    simple = await conductor.plan(
        PlanningContext(question=SIMPLE, pool=POOL, rounds=rounds), nobody
    )
    assert simple.workflow is None
    hard = await conductor.plan(PlanningContext(question=HARD, pool=POOL, rounds=rounds), nobody)
    assert hard.workflow == PLANNED


def test_podium_names_the_conductor_it_may_use_and_carries_its_prompt_hash() -> None:
    conductor = conductor_for_tier("podium", Tireless())
    assert conductor.name == "podium(tireless)"
    assert getattr(conductor, "prompt_hash", None) == Tireless.prompt_hash
    without_prompts = conductor_for_tier("podium", FixedConductor(PLANNED))
    assert getattr(without_prompts, "prompt_hash", None) == ""


TRAINED = ModelConductor(ScriptedWorker("planner", ""), prompt="trained")
ASKED = ModelConductor(ScriptedWorker("planner", ""))


@pytest.mark.parametrize(
    ("tier", "configured", "question", "again"),
    [
        ("mini", TRAINED, HARD, False),
        ("podium", ASKED, SIMPLE, False),
        ("podium", ASKED, HARD, True),
        ("podium", TRAINED, SIMPLE, True),
        ("podium", FixedConductor(PLANNED), HARD, False),
        ("ultra", ASKED, SIMPLE, True),
        ("ultra", RulesConductor(), HARD, False),
        ("ultra", Tireless(), SIMPLE, True),
    ],
)
def test_only_conductors_that_plan_can_replan(
    tier: Tier, configured: Conductor, question: str, again: bool
) -> None:
    assert can_replan(tier, configured, question) is again


@pytest.mark.parametrize(("configured", "again"), [(ASKED, True), (RulesConductor(), False)])
def test_an_escalated_question_can_be_replanned_by_the_conductor(
    configured: Conductor, again: bool
) -> None:
    mini = TierRouter(ScriptedRouter({}))
    assert can_replan("mini", configured, HARD, lambda: mini) is again
    assert can_replan("podium", configured, SIMPLE, lambda: mini) is again
