from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.support import case_of, setup_of, stage_of
from podium.core.errors import ConfigError, UsageError
from podium.evals.evaluation import Evaluation
from podium.evals.strategies.registry import (
    LEARNED,
    LearnedStrategy,
    check_strategy,
    parse_learned_name,
    question_fingerprints,
    read_learned,
    strategy_checksums,
    write_learned,
)
from podium.workers.scripted import ScriptedWorker

np = pytest.importorskip("numpy")

from podium.conductors.routing import LearnedRouter
from podium.conductors.routing.arrays import decode_array, encode_array
from podium.conductors.routing.encoders import HashedEncoder
from podium.evals.strategies.routers import (
    ConstantRouter,
    HeadRouter,
    NeighbourRouter,
    WorkerOutcomes,
    router_class,
)
from podium_lab.routers import MasRouter
from support.routing import PLAYS, pool_of, small_router
from support.routing import SUMS as SUMS_OF_ROUTER

SUMS = tuple(f"Add {n} and {n}" for n in range(6))
VERSES = tuple(f"Write a verse on the {thing}" for thing in ["sea", "sky", "sun", "elm", "oak"])


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker("poet", "a verse"), ScriptedWorker("clerk", "a sum")]


def neighbours() -> LearnedStrategy:
    shares = np.array([[0, 1]] * len(SUMS) + [[1, 0]] * len(VERSES), dtype=np.float32)
    outcomes = WorkerOutcomes((*SUMS, *VERSES), ("poet", "clerk"), shares)
    router = NeighbourRouter.fit(outcomes, HashedEncoder.fit, 0)
    return LearnedStrategy("neighbours", "trades", router)


async def test_one_worker_is_asked_the_bare_question_and_nobody_plans(tmp_path: Path) -> None:
    path = tmp_path / "fitted" / "neighbours.json"
    write_learned(path, neighbours())
    cast = workers()
    cases = [case_of("Add 8 and 9", "a sum", cast), case_of("Write a verse", "a verse", cast)]
    row = await Evaluation(setup_of(cast), cases, seed=0, concurrency=1).row(f"neighbours:{path}")
    assert [sample.workers for sample in row.samples] == [("clerk",), ("poet",)]
    assert row.accuracy.value == 1
    assert [request.text for request in cast[1].requests] == ["Add 8 and 9"]
    assert row.samples[0].calls == 1


async def test_a_router_that_was_trained_is_measured_as_it_would_choose(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    small_router().save(path)
    cast = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    cases = [case_of(PLAYS[0], "a poet", cast), case_of(SUMS_OF_ROUTER[0], "a poet", cast)]
    row = await Evaluation(setup_of(cast), cases, seed=0, concurrency=1).row(f"router:{path}")
    assert [sample.workers for sample in row.samples] == [("dear",), ("dear",)]
    assert read_learned(path).workers == ("cheap", "dear")


async def test_a_router_is_measured_at_a_position_of_its_dial(tmp_path: Path) -> None:
    path = tmp_path / "a@b" / "router.json"
    path.parent.mkdir()
    small_router().save(path)
    cast = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    cases = [case_of(PLAYS[0], "a poet", cast), case_of(SUMS_OF_ROUTER[0], "a poet", cast)]
    evaluation = Evaluation(setup_of(cast), cases, seed=0, concurrency=1)
    asked = {}
    for quality_bias in ("0", "0.5", "1"):
        row = await evaluation.row(f"router:{path}@{quality_bias}")
        asked[quality_bias] = [worker for sample in row.samples for worker in sample.workers]
    assert asked == {"0": ["cheap", "cheap"], "0.5": ["dear", "cheap"], "1": ["dear", "dear"]}
    assert strategy_checksums([f"router:{path}@0.5"]).keys() == {f"router:{path}@0.5"}


@pytest.mark.parametrize("quality_bias", ["1.5", "-0.1", "nan", "best", ""])
def test_an_invalid_quality_bias_is_refused(tmp_path: Path, quality_bias: str) -> None:
    small_router().save(tmp_path / "router.json")
    cast = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    name = f"router:{tmp_path / 'router.json'}@{quality_bias}"
    with pytest.raises(
        UsageError, match=rf"has the quality bias '{quality_bias}': expected a number from 0"
    ):
        check_strategy(name, setup_of(cast), [])


def test_a_file_whose_own_name_has_an_at_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "router@home"
    small_router().save(path)
    assert parse_learned_name(f"router:{path}") == (path, None)
    assert parse_learned_name(f"router:{path}@0.5") == (path, 0.5)
    assert parse_learned_name(f"routerdc:{path}@0.5") == (tmp_path / "router@home@0.5", None)


def test_a_quality_bias_without_a_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'router:@0\.5' has a quality bias and no file"):
        check_strategy("router:@0.5", setup_of(workers()), [])


def test_a_name_that_no_file_can_have_is_told() -> None:
    name = "r" * 5000
    assert parse_learned_name(f"router:{name}@0.5") == (Path(name), 0.5)
    with pytest.raises(ConfigError, match="File name too long; make it by `podium eval fit`"):
        check_strategy(f"router:{name}@0.5", setup_of(workers()), [])


def test_a_router_that_was_fitted_can_be_served(tmp_path: Path) -> None:
    shares = np.array([[0, 1]] * len(SUMS) + [[1, 0]] * len(VERSES), dtype=np.float32)
    outcomes = WorkerOutcomes((*SUMS, *VERSES), ("poet", "clerk"), shares)
    router = HeadRouter.fit(outcomes, HashedEncoder.fit, 0)
    path = tmp_path / "router.json"
    write_learned(path, LearnedStrategy("router", "trades", router))
    pool = pool_of("poet", "clerk")
    served = LearnedRouter.load(path)
    served.check(pool)
    assert served.decide(SUMS[0], pool, 1.0).worker == "clerk"


async def test_a_cascade_carries_its_plan_out() -> None:
    cast = workers()
    case = case_of("Add 8 and 9", "a sum", cast)
    cascade = MasRouter.initialize(("poet", "clerk"), SUMS, HashedEncoder.fit, 0)
    run = await LearnedStrategy("masrouter", "sums", cascade).strategy(case, stage_of(cast))
    assert run.conductor == "masrouter"
    assert run.rounds[0].workflow == cascade.plan("Add 8 and 9", case.pool)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "neighbours.json"
    write_learned(path, neighbours())
    again = read_learned(path)
    assert (again.name, again.suite, again.workers) == ("neighbours", "trades", ("poet", "clerk"))
    assert again.document() == neighbours().document()


async def test_who_has_met_some_of_the_tasks_says_how_many(tmp_path: Path) -> None:
    path, cast = tmp_path / "neighbours.json", workers()
    cases = [case_of(question, "a sum", cast) for question in (*SUMS[:2], "Add 8 and 9")]
    for met, note in [
        (cases[:2], "it learned from 2 of these 3 tasks: an optimistic figure"),
        ([], ""),
    ]:
        write_learned(path, replace(neighbours(), questions=question_fingerprints(met)))
        row = await Evaluation(setup_of(cast), cases, seed=0, concurrency=1).row(
            f"neighbours:{path}"
        )
        assert row.note == note


def test_a_file_of_another_strategy_or_another_pool_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "neighbours.json"
    write_learned(path, neighbours())
    cast = workers()
    cases = [case_of("Add", "a sum", cast)]
    check_strategy(f"neighbours:{path}", setup_of(cast), cases)
    with pytest.raises(UsageError, match="holds the strategy 'neighbours', not 'routerdc'"):
        check_strategy(f"routerdc:{path}", setup_of(cast), cases)
    strangers = [ScriptedWorker("cook", "soup")]
    with pytest.raises(UsageError, match="fit it again on this pool"):
        check_strategy(f"neighbours:{path}", setup_of(strangers), cases)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a file written by `podium eval fit` or `podium train router`"),
        ('{"format": "podium-fitted", "version": 9}', "version 9 is not supported"),
        ('{"format": "podium-fitted", "version": 1, "strategy": "x"}', "unknown strategy 'x'"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=reason) as error:
        read_learned(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("key", "other", "reason"),
    [
        ("workers", [], "workers are missing or not distinct"),
        ("workers", ["ann", "ann"], "workers are missing or not distinct"),
        ("workers", "ann", "expected a list of strings in 'workers'"),
        ("workers", [["ann"]], "expected a list of strings in 'workers'"),
        ("questions", 3, "expected a list of strings in 'questions'"),
        ("learned", [], "expected an array"),
    ],
)
def test_a_part_of_another_form_is_named_with_the_file(
    tmp_path: Path, key: str, other: object, reason: str
) -> None:
    path = tmp_path / "constant.json"
    document = LearnedStrategy("constant", "sums", ConstantRouter(("ann",), np.ones(1))).document()
    path.write_text(json.dumps({**document, key: other}))
    with pytest.raises(ConfigError, match=f"{path}: {reason}"):
        read_learned(path)


@pytest.mark.parametrize("workers", [[3], [{}], "cheap", None])
def test_workers_of_a_trained_router_that_are_none_are_named_with_the_file(
    tmp_path: Path, workers: object
) -> None:
    path = tmp_path / "router.json"
    path.write_text(json.dumps({**small_router().document(), "workers": workers}))
    with pytest.raises(ConfigError, match=f"{path}: workers are missing"):
        read_learned(path)


def fit(name: str) -> LearnedStrategy:
    """What that strategy learns from who wrote what."""
    questions, names = (*SUMS, *VERSES), ("poet", "clerk", "cook")
    if name == "masrouter":
        return LearnedStrategy(
            name, "", MasRouter.initialize(names, questions, HashedEncoder.fit, 0)
        )
    shares = np.array([[0, 1, 0]] * len(SUMS) + [[1, 0, 0]] * len(VERSES), dtype=np.float32)
    replies = tuple(("a verse", "a sum", question) for question in questions)
    outcomes = WorkerOutcomes(questions, names, shares, replies)
    return LearnedStrategy(name, "", router_class(name).fit(outcomes, HashedEncoder.fit, 0))


def arrays_in(document: Any) -> list[dict[str, Any]]:
    """All arrays of the document, however deep."""
    if not isinstance(document, dict):
        return []
    if "shape" in document:
        return [document]
    return [array for part in document.values() for array in arrays_in(part)]


@pytest.mark.parametrize("name", LEARNED)
def test_an_array_of_another_shape_is_refused_with_the_files_name(
    tmp_path: Path, name: str
) -> None:
    """It ended in an error of numpy's, or was stretched until it fitted, and routed wrongly."""
    path = tmp_path / f"{name}.json"
    document = fit(name).document()
    path.write_text(json.dumps(document))
    read_learned(path)
    found = arrays_in(document)
    assert found
    for array in found:
        whole = dict(array)
        numbers = decode_array(whole)
        for other in (numbers[:-1], numbers[:0], numbers[None], numbers.flatten()[0]):
            array |= encode_array(other)
            path.write_text(json.dumps(document))
            with pytest.raises(ConfigError, match=f"{path}: .*train it again by `podium"):
                read_learned(path)
        array |= whole


@pytest.mark.parametrize("count", [0, 12, 10**400, "2", None])
def test_more_neighbours_than_there_are_questions_are_refused(
    tmp_path: Path, count: object
) -> None:
    path = tmp_path / "neighbours.json"
    document = fit("neighbours").document()
    document["learned"]["count"] = count
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=f"{path}: expected a count of neighbours from 1 to 11"):
        read_learned(path)


def test_replies_of_two_workers_are_too_few_to_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "smoothie-local.json"
    document = fit("smoothie-local").document()
    path.write_text(json.dumps({**document, "workers": ["poet", "clerk"]}))
    with pytest.raises(ConfigError, match=f"{path}: expected at least 3 workers"):
        read_learned(path)


def test_numbers_that_are_missing_are_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "constant.json"
    shares = np.array([0.5], dtype=np.float32)
    write_learned(path, LearnedStrategy("constant", "sums", ConstantRouter(("ann",), shares)))
    document = json.loads(path.read_text())
    document["learned"] = {}
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=f"{path}: expected an array"):
        read_learned(path)
