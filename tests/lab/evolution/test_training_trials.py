"""Coordinators on trial: who gets which question, what is drawn, and what a run says."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from podium.conductors.evolved_turns import CoordinatorDescription
from podium.core.errors import PlanError, RequestRefused
from podium.core.pool import Pool
from podium.core.task import Task
from podium.core.worker import Worker
from podium_lab.evolution.coordinator import Coordinator, Scales, Vector
from podium_lab.evolution.training import CachedReader, Trial, TrialRunner, mean_reward
from support.harness import FakeWorker

DESCRIBED = CoordinatorDescription(workers=("ann", "bob"), base="tiny", width=2, roles=())


async def is_four(answer: str) -> bool:
    return answer == "4"


TASKS = [Task(id=str(where), question=f"{where} + 4?", grader=is_four) for where in range(6)]


class Plain:
    """Reads the same in every text, and counts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def read(self, transcript: str, scales: Scales = ()) -> Vector:
        self.texts.append(transcript)
        return np.ones(2, np.float32)


def preferring(ann: float, bob: float) -> Coordinator:
    return Coordinator(DESCRIBED, np.array([ann, ann, bob, bob], np.float32))


ANN, BOB, EITHER = preferring(9, 0), preferring(0, 9), preferring(0, 0)


def fakes() -> list[Worker]:
    return [FakeWorker("ann", lambda _: "4"), FakeWorker("bob", lambda _: "5")]


async def tried(
    *coordinators: Coordinator, workers: list[Worker] | None = None, seed: int | None = 1
) -> list[list[Trial]]:
    workers = workers or fakes()
    pool = Pool(tuple(worker.profile for worker in workers))
    reader = CachedReader(Plain())
    return await TrialRunner(workers, pool, turns=2).run_trials(
        coordinators, reader, TASKS, seed=None if seed is None else (seed,)
    )


def asked(trials: list[Trial]) -> list[str]:
    return [step.worker for trial in trials for step in trial.run.steps]


async def test_every_candidate_has_a_run_for_every_question() -> None:
    trials = await tried(ANN, BOB)
    assert [[trial.task for trial in own] for own in trials] == [TASKS, TASKS]
    assert [mean_reward(own) for own in trials] == [1.0, 0.0]
    assert {len(trial.run.steps) for own in trials for trial in own} == {2}


async def test_choices_are_drawn_from_the_same_numbers_for_all_candidates() -> None:
    one, other = await tried(EITHER, preferring(0, 0))
    assert asked(one) == asked(other)
    assert set(asked(one)) == {"ann", "bob"}


async def test_another_step_draws_others() -> None:
    (one,), (other,) = await tried(EITHER), await tried(EITHER, seed=2)
    assert asked(one) != asked(other)


async def test_without_a_seed_the_most_preferred_is_taken() -> None:
    (slightly,) = await tried(preferring(0.01, 0), seed=None)
    assert set(asked(slightly)) == {"ann"}


async def test_a_transcript_is_read_once_for_all_candidates() -> None:
    plain = Plain()
    readings = CachedReader(plain)
    workers = fakes()
    pool = Pool(tuple(worker.profile for worker in workers))
    await TrialRunner(workers, pool, turns=2).run_trials(
        [ANN, ANN, BOB], readings, TASKS[:1], seed=(1,)
    )
    question = f"user: {TASKS[0].question}\n"
    assert sorted(plain.texts) == [question, f"{question}worker: 4\n", f"{question}worker: 5\n"]


async def test_a_run_with_a_worker_fault_is_not_graded() -> None:
    def refuses(request: object) -> Exception:
        return RequestRefused("no such model")

    (own,) = await tried(
        BOB, workers=[FakeWorker("ann", lambda _: "4"), FakeWorker("bob", refuses)]
    )
    assert {trial.run.answer for trial in own} == {"4"}  # another stood in
    assert all("no such model" in trial.fault for trial in own)
    assert not any(trial.right for trial in own)
    assert mean_reward(own) is None


async def test_a_run_that_could_not_begin_is_no_wrong_answer() -> None:
    with pytest.raises(PlanError, match="before its first turn"):
        await tried(ANN, workers=[FakeWorker("carl")])
