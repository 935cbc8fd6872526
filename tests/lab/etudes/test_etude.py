from __future__ import annotations

import time
from collections import Counter

import pytest

from podium import AsyncPodium
from podium.core.errors import UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Request
from podium.core.workflow import Shape
from podium.engine.requests import PriorResult, compose_prompt
from podium.workers import ScriptedWorker
from podium_lab.etudes import DEFAULT_SHAPES, FAMILIES, TEST_ONLY_SHAPES, EtudeShape
from podium_lab.etudes.composition import SKELETONS
from podium_lab.etudes.etude import Etude, Etudes, held_out
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.values import UNSURE


def perfect(family: str) -> ScriptedWorker:
    def reply(request: Request) -> str:
        return oracle_reply(family, request.messages[-1].text)

    return ScriptedWorker(WorkerProfile(name=family), reply, keep_requests=None)


async def test_ideal_plans_carried_out_by_perfect_workers_give_the_answers(
    etudes: list[Etude],
) -> None:
    workers = {family.value: perfect(family) for family in FAMILIES}
    pool = Pool(tuple(worker.profile for worker in workers.values()), share_question=False)
    async with AsyncPodium(list(workers.values()), pool=pool) as podium:
        for etude in etudes[::6]:
            run = await podium.run(etude.own_plan, etude.question)
            assert run.answer == etude.answer, etude.question


async def test_the_engine_sends_a_worker_what_lessons_are_made_of(etudes: list[Etude]) -> None:
    etude = next(etude for etude in etudes if etude.shape is EtudeShape.CHAINS_JOIN)
    workers = {family.value: perfect(family) for family in FAMILIES}
    pool = Pool(tuple(worker.profile for worker in workers.values()), share_question=False)
    async with AsyncPodium(list(workers.values()), pool=pool) as podium:
        run = await podium.run(etude.own_plan, etude.question)
    expected = [
        compose_prompt(
            step.subtask,
            question=None,
            prior=[
                PriorResult(str(read), etude.steps[read].subtask, etude.steps[read].answer)
                for read in step.reads
            ],
            is_final=False,
        )
        for step in etude.steps
    ]
    assert [record.prompt for record in sorted(run.steps, key=lambda step: step.index)] == expected
    received = {
        request.messages[-1].text for worker in workers.values() for request in worker.requests
    }
    assert received == set(expected)


def test_no_perfect_worker_can_do_the_step_of_another_family(etudes: list[Etude]) -> None:
    for etude in etudes[::20]:
        for step in etude.steps:
            pairs = [
                PriorResult(str(read), etude.steps[read].subtask, etude.steps[read].answer)
                for read in step.reads
            ]
            message = compose_prompt(step.subtask, question=None, prior=pairs, is_final=False)
            others = {oracle_reply(f, message) for f in FAMILIES if f != step.family}
            assert others == {UNSURE}, step.subtask


def test_a_step_and_the_one_it_continues_from_are_of_different_families(
    etudes: list[Etude],
) -> None:
    for etude in etudes:
        for step in etude.steps:
            assert all(etude.steps[read].family != step.family for read in step.reads)


def test_every_answer_but_the_last_is_used_once(etudes: list[Etude]) -> None:
    for etude in etudes:
        used = Counter(read for step in etude.steps for read in step.reads)
        assert used == Counter(range(len(etude.steps) - 1)), etude.question


@pytest.mark.parametrize(
    ("shape", "topology"),
    [
        (EtudeShape.ONE, Shape.ONE_SHOT),
        (EtudeShape.CHAIN_2, Shape.CHAIN),
        (EtudeShape.CHAIN_5, Shape.CHAIN),
        (EtudeShape.JOIN_2, Shape.JOIN),
        (EtudeShape.JOIN_3, Shape.JOIN),
        (EtudeShape.JOIN_STEP, Shape.TREE),
        (EtudeShape.CHAIN_JOIN, Shape.TREE),
        (EtudeShape.CHAINS_JOIN, Shape.TREE),
    ],
)
def test_an_etude_has_the_topology_and_the_size_of_its_shape(
    etudes: list[Etude], shape: EtudeShape, topology: Shape
) -> None:
    found = [etude for etude in etudes if etude.shape is shape]
    assert {etude.own_plan.shape for etude in found} == {topology}
    branches, after = SKELETONS[shape]
    size = sum(branches) + (len(branches) > 1) + after
    assert {len(etude.steps) for etude in found} == {size}


def test_a_question_of_one_skill_is_its_own_subtask(etudes: list[Etude]) -> None:
    single = [etude for etude in etudes if etude.shape is EtudeShape.ONE]
    assert single
    assert all(etude.steps[0].subtask == etude.question for etude in single)


def test_the_same_seed_gives_the_same_etudes_and_another_seed_others() -> None:
    assert Etudes(1).sample(50) == Etudes(1).sample(50)
    assert Etudes(1).sample(50) != Etudes(2).sample(50)
    assert Etudes(1, "test").sample(10) != Etudes(1, "train").sample(10)


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    assert Etudes(4).sample(60)[:20] == Etudes(4).sample(20)


def test_ids_are_the_same_on_every_machine() -> None:
    assert [etude.id for etude in Etudes(0).sample(3)] == [
        "70e014e6da8c1a44",
        "be6dc5ae3623e6c1",
        "007be650d6160281",
    ]


def test_the_shapes_of_a_sample_are_as_frequent_as_their_weights(train: list[Etude]) -> None:
    counts = Counter(etude.shape for etude in train)
    for shape, weight in DEFAULT_SHAPES.items():
        assert counts[shape] / len(train) == pytest.approx(weight, abs=0.03)


def test_the_families_are_used_about_equally(train: list[Etude], test: list[Etude]) -> None:
    for sample in (train, test):
        counts = Counter(family for etude in sample for family in etude.families)
        shares = [counts[family] / counts.total() for family in FAMILIES]
        assert min(shares) > 0.10
        assert max(shares) < 0.20


def test_the_longest_chains_are_for_testing_alone() -> None:
    assert TEST_ONLY_SHAPES.isdisjoint(DEFAULT_SHAPES)
    with pytest.raises(UsageError, match="chain-5 are for testing alone"):
        Etudes(0).sample(1, {EtudeShape.CHAIN_5: 1.0})


def test_held_out_etudes_are_stable_and_no_question_comes_twice() -> None:
    etudes = held_out(80, seed=5)
    assert etudes == held_out(80, seed=5)
    assert len({etude.question for etude in etudes}) == 80
    assert {etude.split for etude in etudes} == {"test"}


def test_etudes_are_made_quickly() -> None:
    Etudes(9).sample(200)
    before = time.process_time()
    Etudes(8).sample(2_000)
    seconds_for_50_000 = (time.process_time() - before) * 25
    assert seconds_for_50_000 < 30
