"""Plans made by exploration."""

from __future__ import annotations

from random import Random

from podium.core.pool import Pool
from podium.core.workflow import Step, Workflow
from podium.train.rollouts import variations
from support.harness import FakeWorker

POOL = Pool(tuple(FakeWorker(name).profile for name in ("ann", "ben", "cat", "dan")))
PLAN = Workflow((Step("ann", "find it"), Step("ben", "double it", access=(0,))))


def test_a_variation_has_another_worker_in_one_place_and_is_else_the_same() -> None:
    for varied in variations(PLAN, POOL, 4, Random(1)):
        assert sum(a != b for a, b in zip(PLAN.steps, varied.steps, strict=True)) == 1
        assert [(step.subtask, step.access) for step in varied.steps] == [
            (step.subtask, step.access) for step in PLAN.steps
        ]


def test_every_other_worker_in_every_place_is_tried_once_before_any_is_tried_again() -> None:
    tried = variations(PLAN, POOL, 100, Random(1))
    assert len(tried) == len(set(tried)) == 6


def test_after_a_round_a_step_may_also_read_all_of_it() -> None:
    tried = variations(PLAN, POOL, 100, Random(1), is_later=True)
    assert len(tried) == len(set(tried)) == 8
    reading = [one for one in tried if any(step.access == "all" for step in one.steps)]
    assert {tuple(step.access for step in one.steps) for one in reading} == {
        ("all", (0,)),
        ((), "all"),
    }
    assert {tuple(step.worker for step in one.steps) for one in reading} == {("ann", "ben")}


def test_a_pool_of_one_has_no_variations() -> None:
    alone = Pool((FakeWorker("ann").profile,))
    assert variations(Workflow((Step("ann", "find it"),)), alone, 3, Random(1)) == []
