from __future__ import annotations

import pytest

from podium.conductors import (
    Conductor,
    FixedConductor,
    ModelConductor,
    RouterConductor,
    RulesConductor,
    TierRouter,
    conductor_for_tier,
)
from podium.conductors.builtin import (
    configured_conductor_name,
    evolved_conductor_name,
    model_conductor_name,
    planning_worker_name,
    resume_conflict,
    tier_conductor_name,
)
from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Run, Tier
from podium.core.workflow import Step, Workflow
from podium.workers import ScriptedWorker
from support.scripted_router import ScriptedRouter

WORKFLOW = Workflow((Step("a", "it"),))
MINI = TierRouter(ScriptedRouter({"a": 1.0}))
TIERS: tuple[Tier, ...] = ("mini", "podium", "ultra")
EVOLVED = evolved_conductor_name("12ab")


def led_by(conductor: str) -> Run:
    return Run(
        id="run_1",
        question="q?",
        status="running",
        pool=Pool((WorkerProfile(name="a"),)),
        conductor=conductor,
        created_at="2026-11-15T00:00:00.000+00:00",
    )


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("mini", [None, MINI])
def test_the_conductor_of_a_tier_has_the_documented_name(
    tier: Tier, mini: TierRouter | None
) -> None:
    lead_conductor = conductor_for_tier(
        tier, ModelConductor(ScriptedWorker("a(b)", "it")), lambda: mini
    )
    assert lead_conductor.name == tier_conductor_name(
        tier, "model(a(b))", has_router=mini is not None
    )


def test_a_conductor_that_asks_no_model_leads_the_tier_podium_itself() -> None:
    for conductor in (FixedConductor(WORKFLOW), RulesConductor(), RouterConductor()):
        assert conductor_for_tier("podium", conductor) is conductor


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("configured", [EVOLVED, "model(a(b))", "rules", "two\nlines"])
def test_the_configured_conductor_is_read_from_a_tiers_conductor_name(
    tier: Tier, configured: str
) -> None:
    assert (
        configured_conductor_name(tier_conductor_name(tier, configured, has_router=True))
        == configured
    )


def test_a_router_alone_has_no_other_in_its_name() -> None:
    assert configured_conductor_name(tier_conductor_name("mini", EVOLVED)) == "router"


@pytest.mark.parametrize("tier", TIERS)
def test_the_conductors_name_contains_its_model(tier: Tier) -> None:
    assert (
        planning_worker_name(
            tier_conductor_name(tier, model_conductor_name("a(b)"), has_router=True)
        )
        == "a(b)"
    )
    assert planning_worker_name(tier_conductor_name(tier, EVOLVED, has_router=True)) is None


@pytest.mark.parametrize(
    ("conductor", "name"),
    [
        (ModelConductor(ScriptedWorker("a", "")), "model(a)"),
        (RulesConductor(), "rules"),
        (RouterConductor(), "router"),
        (FixedConductor(WORKFLOW), "fixed"),
    ],
)
def test_conductors_are_called_by_their_kind(conductor: Conductor, name: str) -> None:
    assert conductor.name == name


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    "other", [evolved_conductor_name("34cd"), "model(a)", "rules", "router", "own"]
)
def test_a_coordinator_and_other_conductors_do_not_resume_each_others_runs(
    tier: Tier, other: str
) -> None:
    for led, leads in ((EVOLVED, other), (other, EVOLVED)):
        run = led_by(tier_conductor_name(tier, led, has_router=True))
        unfit = resume_conflict(run, tier_conductor_name(tier, leads, has_router=True))
        assert unfit is not None
        assert unfit.startswith(f"run_1 was planned by {led}, and the conductor here is {leads}; ")
        assert "podium runs resume run_1 --conductor NAME" in unfit


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("led", "leads"), [(EVOLVED, EVOLVED), ("model(a)", "rules"), ("rules", "model(b)")]
)
def test_a_run_resumes_with_its_conductor_or_any_that_is_no_coordinator(
    tier: Tier, led: str, leads: str
) -> None:
    run = led_by(tier_conductor_name(tier, led, has_router=True))
    assert resume_conflict(run, tier_conductor_name(tier, leads, has_router=True)) is None


def test_routed_and_fixed_runs_resume_where_a_coordinator_is_configured() -> None:
    assert resume_conflict(led_by("router"), tier_conductor_name("mini", EVOLVED)) is None
    assert resume_conflict(led_by("fixed"), EVOLVED) is None


def test_a_routed_run_does_not_resume_by_a_router_that_escalates_to_a_coordinator() -> None:
    assert (
        resume_conflict(led_by("router"), tier_conductor_name("mini", EVOLVED, has_router=True))
        is not None
    )
