from __future__ import annotations

from pathlib import Path

import pytest

from evals.support import case_of, setup_of
from podium.core.errors import RequestRefused, UsageError
from podium.core.request import Reply, Request
from podium.evals.sample import make_cases
from podium.evals.setup import recorded_pool
from podium.evals.strategies.fit import cross_validate, split_folds
from podium.workers.scripted import ScriptedWorker
from support.recorded import write_livecodebench

pytest.importorskip("numpy")

WORKERS = [ScriptedWorker("ann", "yes"), ScriptedWorker("ben", "no")]
SETUP = setup_of(WORKERS)
CASES = [case_of(f"question {n}?", "yes" if n % 3 else "no", WORKERS) for n in range(12)]


def test_every_task_is_in_one_fold() -> None:
    folds = split_folds(CASES, 5, seed=0)
    assert sorted(place for fold in folds for place in fold) == list(range(12))
    assert sorted(map(len, folds)) == [2, 2, 2, 3, 3]
    assert split_folds(CASES, 5, seed=0) == folds != split_folds(CASES, 5, seed=1)


async def test_nothing_is_measured_by_what_learned_from_it() -> None:
    """Ann is right on one task alone; whoever references it has not learned from that."""
    cases = [case_of(f"{n}?", "yes" if n == 0 else "maybe", WORKERS) for n in range(4)]
    ben_first = setup_of(WORKERS[::-1])
    folded = await cross_validate(ben_first, cases, ["constant"], fold_count=4)
    (row,) = folded.rows
    by_task = {sample.task: sample.workers for sample in row.samples}
    assert by_task == {"0?": ("ben",), "1?": ("ann",), "2?": ("ann",), "3?": ("ann",)}


async def test_the_best_single_worker_and_the_ceiling_stand_beside_the_strategies() -> None:
    folded = await cross_validate(SETUP, CASES, ["constant", "neighbours", "majority"])
    document = folded.document()
    assert (document["n"], document["fold_count"]) == (12, 5)
    names = ["best-single", "constant", "neighbours", "majority", "per-task best"]
    assert [row["strategy"] for row in document["rows"]] == names
    accuracies = {row["strategy"]: row["accuracy"] for row in document["rows"]}
    assert accuracies["best-single"] == accuracies["constant"] == pytest.approx(8 / 12)
    assert accuracies["per-task best"] == 1
    assert "single:ann" in folded.notes()[0]
    lines = folded.table().splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == names
    assert [sample.task for sample in folded.rows[0].samples] == [c.task.id for c in CASES]


async def test_repeats_of_a_question_are_in_one_fold(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    setup = pool.setup
    cases = make_cases(pool.tasks, setup.pool)
    folded = await cross_validate(setup, cases, ["neighbours"], repeats=10)
    (row,) = folded.rows
    assert len(row.samples) == 110
    chosen = {task: set[str]() for task in row.outcomes}
    for sample in row.samples:
        chosen[sample.task] |= set(sample.workers)
    assert all(len(workers) == 1 for workers in chosen.values())
    assert row.accuracy.low < row.accuracy.value < row.accuracy.high


async def test_a_cascade_is_fitted_anew_for_each_fold() -> None:
    folded = await cross_validate(SETUP, CASES, ["masrouter"], fold_count=2)
    assert len(folded.rows[0].samples) == 12


async def test_the_watcher_sees_which_fold_it_is() -> None:
    seen = set[str]()
    await cross_validate(
        SETUP,
        CASES,
        ["constant"],
        fold_count=3,
        on_progress=lambda name, done, total: seen.add(name),
    )
    folds = {f"constant, fold {number} of 3" for number in (1, 2, 3)}
    assert seen == {"single:ann", "single:ben", *folds}


async def test_what_cannot_be_done_is_said_first() -> None:
    with pytest.raises(UsageError, match="between 2 folds and one for each of the 12 tasks"):
        await cross_validate(SETUP, CASES, ["constant"], fold_count=13)
    with pytest.raises(UsageError, match="no strategy given"):
        await cross_validate(SETUP, CASES, [])
    with pytest.raises(UsageError, match="unknown strategy 'constnt'"):
        await cross_validate(SETUP, CASES, ["constnt"])


async def test_what_failed_is_told_with_the_table() -> None:
    class Shy(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            if "0?" in request.text:
                raise RequestRefused("ann will not say")
            return await super().reply(request)

    cast = [Shy("ann", "yes"), ScriptedWorker("ben", "no")]
    cases = [case_of(f"{n}?", "yes", cast) for n in range(4)]
    folded = await cross_validate(setup_of(cast), cases, ["constant"], fold_count=2)
    failed = [note for note in folded.notes() if "errors" in note]
    assert failed[0] == "best-single: 1 samples have errors, first: ann will not say"
