from __future__ import annotations

import pytest

from evals.support import oracle_cases, pool_of
from podium.core.errors import UsageError
from podium.evals.sample import make_cases
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes import ROLES, EtudeShape
from podium_lab.etudes.workers import descriptions, oracle_workers
from podium_lab.evals.tables import make_etude_cases


def test_the_same_seed_gives_the_same_cases_and_a_larger_set_begins_with_the_smaller() -> None:
    few, many = oracle_cases(5), oracle_cases(9)
    assert [(case.task.id, case.pool) for case in many[:5]] == [
        (case.task.id, case.pool) for case in few
    ]
    assert [case.task.id for case in oracle_cases(5, seed=8)] != [case.task.id for case in few]


def test_pools_are_described_in_words_of_the_test_split_and_hide_names_and_question() -> None:
    for case in oracle_cases(6):
        assert case.pool.mask_names
        assert not case.pool.share_question
        assert sorted(case.pool.names) == sorted(ROLES)
        for worker in case.pool:
            assert worker.description in descriptions(worker.name, "test")
            assert worker.description not in descriptions(worker.name, "train")
    assert len({case.pool.names for case in oracle_cases(6)}) == 6


def test_a_shuffled_pool_has_the_same_workers_in_the_same_words() -> None:
    drawn, shuffled = oracle_cases(), oracle_cases(shuffled=True)
    assert [case.task.id for case in drawn] == [case.task.id for case in shuffled]
    for one, other in zip(drawn, shuffled, strict=True):
        assert set(one.pool) == set(other.pool)
        assert one.pool != other.pool


def test_a_pool_less_one_lacks_a_worker_that_the_etude_does_not_need() -> None:
    for one, other in zip(oracle_cases(), oracle_cases(drop_one=True), strict=True):
        (missing,) = set(one.pool.names) - set(other.pool.names)
        assert other.ideal is not None
        assert missing not in {step.worker for step in other.ideal.steps}
        assert [worker for worker in one.pool if worker.name != missing] == list(other.pool)


def test_only_the_shapes_that_are_asked_for_are_drawn() -> None:
    cases = oracle_cases(shapes={EtudeShape.ONE: 1.0, EtudeShape.CHAIN_5: 1.0})
    assert {case.task.kind for case in cases} == {"one", "chain-5"}
    assert {case.skills for case in cases} == {1, 5}


def test_a_pool_without_a_specialist_is_refused_by_the_role_that_is_missing() -> None:
    pool = pool_of([worker for worker in oracle_workers() if worker.profile.name != "words"])
    with pytest.raises(UsageError, match="needs a worker named 'words', and the pool has arith"):
        make_etude_cases(1, 0, pool)


def test_workers_without_a_role_take_no_part() -> None:
    pool = pool_of([ScriptedWorker("stranger", "hello"), *oracle_workers()])
    (case,) = make_etude_cases(1, 0, pool)
    assert "stranger" not in case.pool.names


def test_other_suites_are_asked_over_the_pool_as_it_is() -> None:
    pool = pool_of(oracle_workers())
    tasks = [case.task for case in oracle_cases(3)]
    cases = make_cases(tasks, pool)
    assert [case.task for case in cases] == tasks
    assert all(case.pool is pool and case.ideal is None and case.skills is None for case in cases)
