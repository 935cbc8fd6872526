from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from podium.conductors import plan
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import UsageError
from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.core.run import Round
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options, Runner
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes import ROLES, EtudeShape, Split
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.plan_examples import (
    DEFAULTS,
    ExampleSettings,
    PlanExample,
    SecondRound,
    draw_second_round,
    execute_round,
    flaky_replies,
    make_second_round_examples,
)
from podium_lab.etudes.tasks import grade
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import descriptions


def second_rounds(
    rng: Random, count: int, split: Split = "train", settings: ExampleSettings = DEFAULTS
) -> list[SecondRound]:
    return [draw_second_round(rng, split, settings) for _ in range(count)]


@pytest.fixture(scope="module")
def sample() -> list[SecondRound]:
    return second_rounds(Random(1), 500)


@pytest.fixture(scope="module")
def taught() -> list[PlanExample]:
    return list(islice(make_second_round_examples(2), 500))


def first_of(later: SecondRound) -> Round:
    (first,) = later.context.rounds
    return first


def test_about_half_of_the_first_rounds_are_right(sample: list[SecondRound]) -> None:
    for later in sample:
        assert later.context.answer is not None
        assert grade(later.context.answer, later.etude) is later.is_right
    right = sum(later.is_right for later in sample)
    assert 0.42 < right / len(sample) < 0.58


def test_a_first_round_fails_at_its_end_in_its_middle_or_by_its_worker(
    sample: list[SecondRound],
) -> None:
    causes = Counter(_cause(later) for later in sample if not later.is_right)
    assert set(causes) == {"worker", "middle", "end"}
    assert min(causes.values()) > 0.1 * causes.total()


def _cause(later: SecondRound) -> str:
    steps = first_of(later).steps
    if [step.worker for step in steps] != list(later.etude.families):
        return "worker"
    assert steps[-1].reply == UNSURE
    return "middle" if any(step.reply == UNSURE for step in steps[:-1]) else "end"


def test_a_right_first_round_is_a_good_conductors(sample: list[SecondRound]) -> None:
    for later in sample:
        if later.is_right:
            assert first_of(later).workflow == later.etude.own_plan


def test_a_first_round_says_what_the_conductor_wrote(sample: list[SecondRound]) -> None:
    for later in sample:
        first = first_of(later)
        parsed = plan.parse(first.plan_text, later.context.pool, strict=True)
        assert parsed.workflow == first.workflow
        assert len(first.steps) == len(later.etude.steps)


@pytest.mark.parametrize("split", SPLITS)
def test_etudes_and_descriptions_are_of_the_split_that_is_asked_for(split: Split) -> None:
    for etude, context, _ in second_rounds(Random(3), 40, split):
        assert etude.split == split
        assert all(w.description in descriptions(w.name, split) for w in context.pool)
        assert set(etude.families) <= set(context.pool.names)


@pytest.mark.parametrize(("share", "never"), [(0.0, "wrong"), (1.0, "right")])
def test_workers_that_never_or_always_fail_are_refused(share: float, never: str) -> None:
    shapes = {EtudeShape.ONE: 1.0}
    settings = ExampleSettings(flaky_share=share, shapes=shapes)
    with pytest.raises(UsageError, match=f"was {never}; give one between 0 and 1"):
        second_rounds(Random(4), 20, settings=settings)


def test_a_second_round_that_reads_the_first_mends_what_was_not_known(
    sample: list[SecondRound],
) -> None:
    """Only the steps from the first unknown one on are done again, and each reads everything."""
    failed = [later for later in sample if not later.is_right]
    mended = 0
    for later in failed:
        first = first_of(later)
        start = next((s.index for s in first.steps if s.reply == UNSURE), 0)
        again = Workflow(tuple(Step(s.family, s.subtask, "all") for s in later.etude.steps[start:]))
        second = execute_round(again, later.context.pool, flaky_replies(0.0, 0), before=first)
        mended += grade(second.steps[-1].reply, later.etude)
    assert mended / len(failed) > 0.93


class TwoPlans(Conductor):
    """A conductor that has two plans, and carries both out."""

    name = "two-plans"

    def __init__(self, first: Workflow, second: Workflow) -> None:
        self.plans = [first, second]

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        return Plan(self.plans[len(context.rounds)])


async def test_rounds_are_as_the_engine_would_have_left_them(sample: list[SecondRound]) -> None:
    reply_as = flaky_replies(0.15, 0)

    def worker(profile: WorkerProfile) -> ScriptedWorker:
        def say(request: Request) -> str:
            return reply_as(profile.name, request.messages[-1].text)

        return ScriptedWorker(profile, say)

    for later in sample[:25]:
        first, pool = first_of(later), later.context.pool
        assert first.workflow is not None
        steps = first.workflow.steps
        everything = Workflow(tuple(replace(step, access="all") for step in steps))
        runner = Runner(TwoPlans(first.workflow, everything), [worker(p) for p in pool], pool=pool)
        run = await runner.run(later.etude.question, options=Options(rounds=2))
        second = execute_round(everything, pool, reply_as, before=first)
        for real, made in zip(run.rounds, (first, second), strict=True):
            assert [(s.prompt, s.reply) for s in real.steps] == [
                (s.prompt, s.reply) for s in made.steps
            ]


def test_situations_are_repeatable(sample: list[SecondRound]) -> None:
    assert second_rounds(Random(1), 30) == sample[:30]


# ---- openings


def second_of(opening: PlanExample) -> Workflow | None:
    pool = opening.context.pool
    return plan.parse(opening.plan, pool, strict=True, may_accept=True).workflow


def test_every_second_plan_is_well_formed(taught: list[PlanExample]) -> None:
    for opening in taught:
        workflow = second_of(opening)
        if workflow is not None:
            workflow.check(opening.context.pool.names)


def test_acceptance_has_nothing_to_do_with_whether_the_answer_is_known(
    taught: list[PlanExample],
) -> None:
    known: dict[bool, list[bool]] = {True: [], False: []}
    for opening in taught:
        known[opening.context.answer != UNSURE].append(second_of(opening) is None)
    for accepted in known.values():
        assert len(accepted) > 50
        assert sum(accepted) / len(accepted) == pytest.approx(0.4, abs=0.12)


def test_second_plans_come_in_every_form(taught: list[PlanExample]) -> None:
    plans = [workflow for opening in taught if (workflow := second_of(opening))]
    firsts = [opening.context.rounds[0] for opening in taught]
    accesses = Counter(workflow.steps[0].access for workflow in plans)
    assert min(accesses["all"], accesses[()]) > 0.1 * len(plans)
    shorter = [
        len(workflow) < len(opening.context.rounds[0].steps)
        for opening in taught
        if (workflow := second_of(opening))
    ]
    assert 0.1 < sum(shorter) / len(plans) < 0.7
    assert {step.worker for workflow in plans for step in workflow.steps} == set(ROLES)
    assert len({first.workflow.shape for first in firsts if first.workflow}) > 3


def test_second_plans_reveal_nothing_about_skills() -> None:
    sample = islice(
        make_second_round_examples(5, ExampleSettings(accepted_share=0.0, drop=0.0)), 600
    )
    steps = [
        step
        for opening in sample
        if (workflow := second_of(opening))
        for step in workflow.steps
        if "Esperanto" in step.subtask
    ]
    by_its_worker = sum(step.worker == "translation" for step in steps)
    assert by_its_worker / len(steps) == pytest.approx(1 / len(ROLES), abs=0.06)


def test_later_openings_are_repeatable_and_keep_to_their_shapes(taught: list[PlanExample]) -> None:
    assert list(islice(make_second_round_examples(2), 20)) == taught[:20]
    ones = islice(make_second_round_examples(2, ExampleSettings(shapes={EtudeShape.ONE: 1.0})), 50)
    assert {len(opening.context.rounds[0].steps) for opening in ones} == {1}
