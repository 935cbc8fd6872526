from __future__ import annotations

import pytest

from podium.core.errors import InvalidWorkflow, UnknownWorker
from podium.core.workflow import Access, Condition, Shape, Step, Workflow


def workflow(*access: Access) -> Workflow:
    return Workflow(tuple(Step("a", f"subtask {i}", entry) for i, entry in enumerate(access)))


def test_all_reads_every_earlier_step() -> None:
    plan = workflow((), (), "all")
    assert plan.reads(0) == ()
    assert plan.reads(2) == (0, 1)


def test_access_to_all_reads_nothing_at_the_first_step() -> None:
    assert workflow("all").reads(0) == ()


@pytest.mark.parametrize(
    ("access", "shape"),
    [
        ([()], Shape.ONE_SHOT),
        ([(), (0,)], Shape.CHAIN),
        ([(), "all", "all"], Shape.CHAIN),
        ([(), (), (0, 1)], Shape.JOIN),
        ([(), (), "all"], Shape.JOIN),
        ([(), (), "all", "all"], Shape.TREE),
        ([(), (), (0,), (1, 2)], Shape.TREE),
        ([(), (0,), (0,), (1, 2)], Shape.MIXED),
        ([(), ()], Shape.MIXED),
        ([(), (), (1,)], Shape.MIXED),
    ],
)
def test_the_shape_ignores_implied_reads(access: list[Access], shape: Shape) -> None:
    assert workflow(*access).shape is shape


def test_levels_and_width_say_what_can_run_at_once() -> None:
    plan = workflow((), (), (0,), (1, 2))
    assert plan.levels == ((0, 1), (2,), (3,))
    assert plan.width == 2


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((), "no steps"),
        ((Step("a", "  "),), "step 0 has an empty subtask"),
        ((Step("a", "x", (0,)),), "step 0 may not read step 0"),
        ((Step("a", "x"), Step("a", "y", (2,)), Step("a", "z")), "step 1 may not read step 2"),
        ((Step("a", "x"), Step("a", "y", (-1,))), "step 1 may not read step -1"),
        ((Step("a", "x"), Step("a", "y", (0, 0))), "name each once"),
    ],
)
def test_impossible_workflows_are_refused(steps: tuple[Step, ...], reason: str) -> None:
    with pytest.raises(InvalidWorkflow, match=reason):
        Workflow(steps)


def test_a_plan_for_an_unknown_worker_names_the_known_ones() -> None:
    with pytest.raises(UnknownWorker, match="no worker named 'a'.*it has b, c"):
        workflow(()).check(("b", "c"))


def test_a_plan_that_is_too_long_says_how_long_it_may_be() -> None:
    with pytest.raises(InvalidWorkflow, match="has 3 steps and at most 2"):
        workflow((), (), ()).check(("a",), max_steps=2)


@pytest.mark.parametrize("text", ["failed 0", "Differs 0, 1", " differs 0 1 "])
def test_a_condition_is_read_as_written(text: str) -> None:
    condition = Condition.parse(text)
    assert Condition.parse(str(condition)) == condition


@pytest.mark.parametrize("text", ["", "failed", "worked 0", "failed 0; differs 1", "differs zero"])
def test_invalid_conditions_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidWorkflow, match='write "failed 0" or "differs 0 1"'):
        Condition.parse(text)


@pytest.mark.parametrize(
    "condition",
    [
        Condition("failed", (2,)),
        Condition("failed", (0, 1)),
        Condition("differs", (0,)),
        Condition("differs", (1, 1)),
        Condition("differs", (0, 2)),
    ],
)
def test_a_condition_names_earlier_steps_and_enough_of_them(condition: Condition) -> None:
    steps = (Step("a", "x"), Step("a", "y"), Step("a", "z", (), condition))
    with pytest.raises(InvalidWorkflow, match="the condition of step 2"):
        Workflow(steps)


def test_a_step_waits_for_what_its_condition_names_but_does_not_read_it() -> None:
    plan = Workflow((Step("a", "x"), Step("a", "y", (), Condition("failed", (0,)))))
    assert (plan.reads(1), plan.waits_for(1)) == ((), (0,))
    assert plan.levels == ((0,), (1,))
    assert plan.earliest_answer_step == 0
