from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from evals.support import case_of, setup_of, stage_of
from podium.core.errors import AuthenticationFailed, UsageError
from podium.core.request import Price, Reply, Request, Usage
from podium.evals.evaluation import Evaluation
from podium.evals.sample import Sample
from podium.evals.setup import recorded_pool
from podium.evals.strategies.fit import (
    fit,
    load_training_cases,
    measure_single_workers,
    training_suite,
)
from podium.evals.strategies.registry import LEARNED, write_learned
from podium.workers.scripted import ScriptedWorker
from support.recorded import write_livecodebench

pytest.importorskip("numpy")

from podium_lab.routers.masrouter import utility

SUMS = [f"Add {n} and {n + 2} please" for n in range(8)]
VERSES = [
    f"Write a verse on the {thing} at dawn"
    for thing in ["sea", "sky", "sun", "elm", "oak", "owl", "fox", "dew"]
]


def expert(name: str, word: str, says: str) -> ScriptedWorker:
    """Says the right thing to questions with its word, and something else to others."""
    return ScriptedWorker(
        name, lambda request: says if word in request.text else "no idea", description=name
    )


WORKERS = [
    expert("clerk", "Add", "a sum"),
    expert("poet", "verse", "a verse"),
    ScriptedWorker("fool", "no idea", description="fool"),
]
SETUP = setup_of(WORKERS)
CASES = [
    *[case_of(question, "a sum", WORKERS) for question in SUMS],
    *[case_of(question, "a verse", WORKERS) for question in VERSES],
]
UNSEEN = [
    case_of("Add 40 and 42 please", "a sum", WORKERS),
    case_of("Write a verse on the moon at dawn", "a verse", WORKERS),
]


@pytest.mark.parametrize("name", LEARNED)
async def test_whatever_is_fitted_can_be_measured_by_its_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "fitted.json"
    write_learned(path, await fit(name, SETUP, CASES, suite="trades"))
    row = await Evaluation(SETUP, UNSEEN, seed=0, concurrency=1).row(f"{name}:{path}")
    assert [sample.error for sample in row.samples] == [None, None]
    if name in ("neighbours", "routerdc"):
        assert row.accuracy.value == 1


@pytest.mark.parametrize("name", ["router", "routerdc", "masrouter"])
async def test_any_whole_number_is_a_seed(name: str) -> None:
    fitted = await fit(name, SETUP, CASES, suite="trades", seed=-1)
    assert fitted.workers == ("clerk", "poet", "fool")


async def test_every_worker_is_asked_every_question_once() -> None:
    workers = [ScriptedWorker(name, "a sum") for name in ("ann", "ben")]
    cases = [case_of(question, "a sum", workers) for question in SUMS]
    await fit("constant", setup_of(workers), cases)
    for worker in workers:
        assert sorted(request.text for request in worker.requests) == sorted(SUMS)


async def test_repeats_are_how_often_each_worker_is_asked() -> None:
    worker = ScriptedWorker("ann", ["a sum", "wrong"])
    cases = [case_of("Add 1 and 2", "a sum", [worker])]
    learned = await fit("constant", setup_of([worker]), cases, repeats=4)
    assert worker.calls == 4
    (share,) = learned.model.scores(["anything"])[0]  # type: ignore[union-attr]
    assert share == 0.25


async def test_what_each_question_costs_with_each_worker_is_kept_where_all_is_known() -> None:
    def reply(request: Request) -> Reply:
        return Reply("a sum", Usage(0, 1_000_000 if "1" in request.text else 2_000_000))

    workers = [
        ScriptedWorker(name, reply, price=Price(input=1.0, output=dollars))
        for name, dollars in (("ann", 1.0), ("ben", 10.0))
    ]
    cases = [case_of(question, "a sum", workers) for question in ("Add 1", "Add 2")]
    alone = await measure_single_workers(setup_of(workers), cases, seed=0, concurrency=1, repeats=2)
    assert alone.outcomes.costs is not None
    assert alone.outcomes.costs.tolist() == [[1.0, 10.0], [2.0, 20.0]]
    unpriced = [*workers, ScriptedWorker("cy", "a sum")]
    alone = await measure_single_workers(setup_of(unpriced), cases, seed=0, concurrency=1)
    assert alone.outcomes.costs is None


async def test_a_cascade_learns_from_what_became_of_its_plans() -> None:
    """Only the clerk is ever right, so plans come to end with the clerk."""
    cases = [case_of(f"{question} {n}", "a sum", WORKERS) for question in SUMS for n in range(8)]
    learned = await fit("masrouter", SETUP, cases, seed=1)
    runs = [await learned.strategy(case, stage_of(WORKERS)) for case in cases[:5]]
    assert {run.steps[-1].worker for run in runs} == {"clerk"}


def test_a_plan_earns_its_answer_less_its_cost() -> None:
    sample = Sample(
        task="a",
        kind="",
        skills=None,
        right=True,
        valid=True,
        workers=(),
        topology="none",
        worker_tokens=None,
        orchestration_tokens=None,
        seconds=0,
    )
    assert utility(sample) == 1
    assert utility(replace(sample, right=False, cost_usd=0.002)) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("suite", "learned_from"),
    [
        ("gsm8k", "gsm8k:train"),
        ("math500", "math:train"),
        ("MATH-500", "math:train"),
        ("mmlu", "mmlu:val"),
        ("etudes", "etudes:train"),
        ("livecodebench-recorded", "livecodebench-recorded:train"),
        ("mmlu:val", "mmlu:val"),
        ("mine.jsonl", "mine.jsonl"),
    ],
)
def test_a_suite_is_learned_from_its_training_split(suite: str, learned_from: str) -> None:
    assert training_suite(suite) == learned_from


@pytest.mark.parametrize("suite", ["livecodebench", "rlpr", "nothing-known"])
def test_a_suite_without_a_training_split_says_what_to_do(suite: str) -> None:
    """RLPR's only split is the one that is measured."""
    with pytest.raises(UsageError, match=re.escape("podium eval cross-validate")):
        training_suite(suite)


def test_of_ones_own_tasks_all_are_learned_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "One and one?", "answer": "2", "grader": "exact"}\n')
    ((case,), _) = load_training_cases(str(path), SETUP.pool)
    assert case.task.question == "One and one?"


def test_training_cases_are_over_the_pool_that_is_measured(tmp_path: Path) -> None:
    pool = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path)).setup.pool
    cases, _ = load_training_cases("livecodebench-recorded", pool, data=tmp_path)
    assert 0 < len(cases) < 11
    assert {case.pool for case in cases} == {pool}


async def test_what_cannot_be_fitted_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    def never(request: Request) -> str:
        raise AssertionError("nobody is to be asked")

    setup = setup_of([ScriptedWorker("ann", never)])
    with pytest.raises(UsageError, match="did you mean 'routerdc'"):
        await fit("routerd", setup, CASES)
    recorded = recorded_pool("livecodebench-recorded", data=write_livecodebench(tmp_path))
    with pytest.raises(UsageError, match="replies of Ann were not recorded"):
        await fit("smoothie", recorded.setup, CASES)


async def test_nothing_is_learned_of_a_worker_that_never_answered() -> None:
    """Or a wrong key would teach that its model is always wrong."""

    class Away(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            raise AuthenticationFailed("the key of ben is not accepted")

    cast = [ScriptedWorker("ann", "yes"), Away("ben", "no")]
    cases = [case_of("Is it so?", "yes", cast)]
    with pytest.raises(
        UsageError, match="single:ben failed on all of 1 samples, first with: .*key"
    ):
        await fit("constant", setup_of(cast), cases)
