"""The étude: a generated question with one right answer, and the plan that would find it.

    etudes = Etudes(seed=3, split="train")
    for etude in etudes.sample(20):
        print(etude.question, etude.answer, etude.ideal(workers))

The same seed gives the same études on every machine, and a larger sample begins with the
smaller one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from random import Random
from typing import Final

from podium.core.errors import UsageError
from podium.core.workflow import Step, Workflow
from podium_lab.etudes.composition import compose_operations, signature
from podium_lab.etudes.phrasing import Style, put_into_words
from podium_lab.etudes.shapes import TEST_ONLY, USUAL, EtudeShape, Split
from podium_lab.etudes.values import Kind

NESTED_SHARE: Final = 0.25
"""How many of the questions of several steps are one phrase inside another."""


@dataclass(frozen=True, slots=True)
class EtudeStep:
    """One operation of an étude: who can do it, how a plan would ask for it, what comes out.

    `operands` is the key by which its arguments belong to one split; None for what is learned
    by heart.
    """

    family: str
    skill: str
    subtask: str
    reads: tuple[int, ...]
    answer: str
    kind: Kind
    operands: str | None = None


@dataclass(frozen=True, slots=True)
class Etude:
    """A practice task. `signature` is what it asks in no particular words; the id is a hash of
    the question, the same everywhere."""

    id: str
    split: Split
    shape: EtudeShape
    style: Style
    question: str
    steps: tuple[EtudeStep, ...]
    signature: str

    @property
    def answer(self) -> str:
        return self.steps[-1].answer

    @property
    def kind(self) -> Kind:
        return self.steps[-1].kind

    @property
    def families(self) -> tuple[str, ...]:
        """Return the needed families, in the order of the steps."""
        return tuple(step.family for step in self.steps)

    @property
    def own_plan(self) -> Workflow:
        """Return the ideal plan with families as the names of workers."""
        return self.ideal({family: family for family in self.families})

    def ideal(self, family_to_worker: Mapping[str, str]) -> Workflow:
        """Return the plan of a perfect conductor: the right worker for each step, and access to no
        more than the step needs."""
        for family in self.families:
            if family not in family_to_worker:
                raise UsageError(
                    f"this étude needs a worker for {family}; "
                    f"there is one for {', '.join(family_to_worker) or 'none'}"
                )
        return Workflow(
            tuple(
                Step(family_to_worker[step.family], step.subtask, step.reads) for step in self.steps
            )
        )


def make_etude(
    rng: Random, split: Split, shape: EtudeShape, *, nested_share: float = NESTED_SHARE
) -> Etude:
    if split == "train" and shape in TEST_ONLY:
        raise UsageError(f"études of shape {shape.value} are for testing alone; choose another")
    operations = compose_operations(rng, split, shape)
    words = put_into_words(rng, split, operations, nested_share)
    return Etude(
        blake2b(f"{split}\0{words.question}".encode(), digest_size=8).hexdigest(),
        split,
        shape,
        words.style,
        words.question,
        tuple(
            EtudeStep(
                operation.skill.family.value,
                operation.skill.name,
                subtask,
                operation.reads,
                operation.answer.text,
                operation.answer.kind,
                operation.operands,
            )
            for operation, subtask in zip(operations, words.subtasks, strict=True)
        ),
        signature(operations),
    )


def draw_shape(rng: Random, shapes: Mapping[EtudeShape, float]) -> EtudeShape:
    (shape,) = rng.choices(list(shapes), list(shapes.values()))
    return shape


@dataclass(frozen=True, slots=True)
class Etudes:
    """An endless supply of études."""

    seed: int
    split: Split = "train"

    def stream(self, shapes: Mapping[EtudeShape, float] = USUAL) -> Iterator[Etude]:
        """Yield études with shapes drawn by these weights."""
        rng = Random(f"{self.seed}/{self.split}")  # noqa: S311 - to be repeatable, not secret
        while True:
            yield make_etude(rng, self.split, draw_shape(rng, shapes))

    def sample(self, n: int, shapes: Mapping[EtudeShape, float] = USUAL) -> list[Etude]:
        return list(islice(self.stream(shapes), n))


def held_out(
    n: int = 1000, seed: int = 0, shapes: Mapping[EtudeShape, float] = USUAL
) -> list[Etude]:
    """Return distinct études of the test split."""
    found: dict[str, Etude] = {}
    for etude in Etudes(seed, "test").stream(shapes):
        found.setdefault(etude.id, etude)
        if len(found) >= n:
            break
    return list(found.values())
