from __future__ import annotations

import pytest

from podium.conductors import (
    KINDS,
    FixedConductor,
    ModelConductor,
    PlanningContext,
    RouterConductor,
    RulesConductor,
    build,
)
from podium.core.errors import ConfigError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow


class Planner(Worker):
    profile = WorkerProfile(name="planner")

    async def reply(self, request: Request) -> Reply:
        return Reply("")


WORKFLOW = Workflow((Step("a", "do it"),))


def test_every_kind_can_be_built() -> None:
    *kinds, evolved = KINDS
    built = [build(kind, worker=Planner(), workflow=WORKFLOW) for kind in kinds]
    assert evolved == "evolved", "which needs numpy, and is tried below"
    assert [type(conductor) for conductor in built] == [
        ModelConductor,
        RulesConductor,
        FixedConductor,
        RouterConductor,
    ]


def test_a_model_is_built_with_the_prompt_that_was_asked_for() -> None:
    compact = build("model", worker=Planner(), prompt="compact")
    assert isinstance(compact, ModelConductor)
    assert compact.prompt_hash == ModelConductor(Planner(), prompt="compact").prompt_hash


async def test_a_model_is_built_with_the_fallback_that_was_named(nobody: Caller) -> None:
    conductor = build("model", worker=Planner(), prompt="trained", fallback="b")
    pool = Pool((WorkerProfile(name="a"), WorkerProfile(name="b")))
    plan = await conductor.plan(PlanningContext(question="why? " * 200, pool=pool), nobody)
    assert plan.workflow is not None
    assert plan.workflow.steps[0].worker == "b"


def test_an_unknown_kind_is_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'oracle'; expected one of model, rules, fixed, rou"):
        build("oracle")


def test_an_evolved_one_is_built_with_its_coordinator_and_reader() -> None:
    pytest.importorskip("numpy")
    from podium_lab.evolution.coordinator import EvolvedConductor
    from support.evolved import Reading, coordinator

    built = build("evolved", coordinator=coordinator(), reader=Reading(("ann", "worker")))
    assert isinstance(built, EvolvedConductor)


@pytest.mark.parametrize(
    ("kind", "setting"), [("model", "model"), ("fixed", "workflow"), ("evolved", "coordinator")]
)
def test_what_a_kind_needs_is_asked_for_by_its_setting(kind: str, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"set conductor.{setting}"):
        build(kind)
