"""The same seeds give the same études, examples and contexts, release after release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import islice
from random import Random

import pytest

from podium.core.conductor import PlanningContext
from podium_lab.etudes import FAMILIES, ROLES, EtudeShape
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.etude import Etude, Etudes, held_out
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.plan_examples import (
    SecondRound,
    draw_second_round,
    make_plan_examples,
    make_second_round_examples,
    make_training_contexts,
)
from podium_lab.etudes.tasks import etude_suite, everyday_questions
from podium_lab.etudes.training import make_specialist_examples
from podium_lab.etudes.workers import descriptions


def second_rounds(rng: Random, count: int) -> list[SecondRound]:
    return [draw_second_round(rng) for _ in range(count)]


LONGEST = {EtudeShape.CHAIN_5: 1.0}


def etude_text(etude: Etude) -> str:
    steps = [(s.family, s.skill, s.subtask, s.reads, s.answer) for s in etude.steps]
    return repr((etude.id, etude.shape.value, etude.question, etude.signature, steps))


def question_of(asked: Etude | str) -> str:
    return asked if isinstance(asked, str) else asked.question


def context_text(context: PlanningContext) -> str:
    workers = [(worker.name, worker.description) for worker in context.pool.workers]
    steps = [
        (step.worker, step.prompt, step.reply) for round_ in context.rounds for step in round_.steps
    ]
    return repr((context.question, workers, [round_.plan_text for round_ in context.rounds], steps))


SEQUENCES: dict[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "etudes": (
        "cc21405a44110857",
        lambda: [
            *(etude_text(etude) for split in SPLITS for etude in Etudes(3, split).sample(400)),
            *map(etude_text, Etudes(5, "test").sample(50, LONGEST)),
            *map(etude_text, held_out(100, 7)),
        ],
    ),
    "tasks": (
        "8a54b9d06ffba81e",
        lambda: [f"{task.id} {task.answer}" for task in etude_suite(50, 1)],
    ),
    "specialists": (
        "0360bf74b0932671",
        lambda: [
            f"{example.prompt}={example.reply}"
            for family in FAMILIES
            for split in SPLITS
            for example in islice(make_specialist_examples(family, 2, split), 100)
        ],
    ),
    "plans": (
        "c736676bb570566f",
        lambda: [
            context_text(example.context) + example.plan
            for example in islice(make_plan_examples(4), 150)
        ],
    ),
    "second rounds": (
        "78c9bd4c1f20d783",
        lambda: [
            *(
                context_text(example.context) + example.plan
                for example in islice(make_second_round_examples(4), 50)
            ),
            *(
                f"{context_text(later.context)} {later.is_right}"
                for later in second_rounds(Random(4), 50)
            ),
        ],
    ),
    "contexts": (
        "9173d57265259dd9",
        lambda: [
            context_text(PlanningContext(question=question_of(asked), pool=pool, rounds=rounds))
            for asked, pool, rounds in islice(make_training_contexts(4), 100)
        ],
    ),
    "descriptions": (
        "81d00a72de6b316f",
        lambda: ["; ".join(descriptions(role, split)) for role in ROLES for split in SPLITS],
    ),
    "everyday": (
        "62c45b1a748954d9",
        lambda: [question for split in SPLITS for question in everyday_questions(split)],
    ),
    "oracle": (
        "d89d74374740768e",
        lambda: [
            oracle_reply(family, etude.question)
            for family in FAMILIES
            for etude in Etudes(6).sample(100)
        ],
    ),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_same_seed_gives_the_same_sequence_as_ever(name: str) -> None:
    digest, sequence = SEQUENCES[name]
    text = "\n".join(sequence())
    assert sha256(text.encode()).hexdigest()[:16] == digest
