"""Second rounds: what a first one has left behind, and how a conductor may go on from there.

First rounds are carried out by perfect specialists that now and then do not know, exactly as the
engine would carry them out with such workers. About half of them came to the right answer. In the
others a step was not known, at the end or in the middle, where it spoiled what followed; or it
went to the wrong worker.

    later_situations   for learning what to accept, by example and from reward, and for measuring it
    later_openings     for the form alone: whether to accept is decided by chance
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.workflow import Access, Step, Workflow
from podium.engine.requests import Pair, compose
from podium_lab.etudes.etude import NESTED_SHARE, Etude, make_etude
from podium_lab.etudes.oracle import ROUND_BEFORE, oracle_reply
from podium_lab.etudes.plan_examples import (
    DROP,
    EVERYDAY,
    ORDER,
    SAME_MODELS,
    SHAPES,
    PlanExample,
    any_workflow,
    random_access,
)
from podium_lab.etudes.shapes import USUAL, EtudeShape, Split
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.tasks import everyday_questions, grade
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import GENERALIST, is_declined, pool_profiles

FLAKY: Final = 0.15
"""How often a worker does not know what it should."""

WRONG_WORKER: Final = 0.25
"""How often it was a wrong worker where the first round came to nothing."""

TRIES: Final = 1_000
"""Far more than it takes to find a first round that came out as wanted."""

ACCEPTED: Final = 0.4
RANDOM_FIRST: Final = 0.4
TRUE_SECOND: Final = 0.6

Voice = Callable[[str, str], str]
"""What a worker, called by its role, says to a message."""


class SecondRound(NamedTuple):
    """An étude after a first round, and whether that came to the right answer."""

    etude: Etude
    context: PlanningContext
    is_right: bool


def make_second_rounds(
    rng: Random,
    split: Split = "train",
    models: Mapping[str, str] = SAME_MODELS,
    *,
    shapes: Mapping[EtudeShape, float] = SHAPES,
    nested_share: float = NESTED_SHARE,
    flaky_share: float = FLAKY,
    flaky_seed: int = 0,
    drop: float = DROP,
    order: plan.Order = ORDER,
) -> Iterator[SecondRound]:
    """Situation after situation, as a good conductor's first round has left it; in half of them
    the answer is right.

    What the workers forgot, `FlakyWorker` of the same share and seed forgets again: repeating a
    request word by word is of no use.
    """
    voice = flaky_replies(flaky_share, flaky_seed)
    names, weights = list(shapes), list(shapes.values())
    while True:
        wanted = rng.random() < 0.5
        cause_is_worker = not wanted and rng.random() < WRONG_WORKER
        (shape,) = rng.choices(names, weights)
        for _ in range(TRIES):
            etude = make_etude(rng, split, shape, nested_share=nested_share)
            pool = pool_profiles(rng, models, split=split, keep=etude.families, drop=drop)
            workflow = etude.ideal({family: family for family in etude.families})
            if cause_is_worker:
                workflow = _with_a_wrong_worker(rng, workflow, pool)
            round_ = carry_out(workflow, pool, voice, order=order)
            if grade(round_.steps[-1].reply, etude) is wanted:
                context = PlanningContext(question=etude.question, pool=pool, rounds=(round_,))
                yield SecondRound(etude, context, wanted)
                break
        else:
            raise UsageError(
                f"with a flaky_share of {flaky_share} no first round was "
                f"{'right' if wanted else 'wrong'}; give one between 0 and 1"
            )


def make_second_round_examples(
    seed: int,
    models: Mapping[str, str] = SAME_MODELS,
    *,
    shapes: Mapping[EtudeShape, float] = SHAPES,
    nested_share: float = NESTED_SHARE,
    accepted_share: float = ACCEPTED,
    flaky_share: float = FLAKY,
    drop: float = DROP,
    order: plan.Order = ORDER,
) -> Iterator[PlanExample]:
    """Opening after opening for a second round: the answer is accepted, or there is another
    plan for no one in particular, whatever the first round came to."""
    rng = Random(f"{seed}/later openings")  # noqa: S311 - repeatable, not secret
    voice = flaky_replies(flaky_share, seed)
    names, weights = list(shapes), list(shapes.values())
    while True:
        (shape,) = rng.choices(names, weights)
        etude = make_etude(rng, "train", shape, nested_share=nested_share)
        pool = pool_profiles(rng, models, keep=etude.families, drop=drop, put_together=False)
        if rng.random() < RANDOM_FIRST:
            workflow = any_workflow(rng, pool, etude)
        else:
            workflow = etude.ideal({family: family for family in etude.families})
        round_ = carry_out(workflow, pool, voice, order=order)
        if rng.random() < accepted_share:
            text = plan.write_acceptance(order)
        else:
            text = plan.write(_second(rng, etude, pool, round_), pool, order=order)
        yield PlanExample(
            PlanningContext(question=etude.question, pool=pool, rounds=(round_,)), text
        )


# ---- carrying a round out


def carry_out(
    workflow: Workflow,
    pool: Pool,
    voice: Voice,
    *,
    before: Round | None = None,
    order: plan.Order = ORDER,
) -> Round:
    """The round as the engine would leave it, with workers that answer at once."""
    index = 0 if before is None else before.index + 1
    steps: list[StepRecord] = []
    for position, step in enumerate(workflow.steps):
        pairs = [
            Pair(str(read), steps[read].subtask, steps[read].reply)
            for read in workflow.reads(position)
        ]
        if before is not None and step.access == "all":
            earlier = [Pair(f"{s.index}{ROUND_BEFORE}", s.subtask, s.reply) for s in before.steps]
            pairs = [*earlier, *pairs]
        is_final = position == len(workflow) - 1
        prompt = compose(step.subtask, question=None, pairs=pairs, is_final=is_final)
        reply = voice(step.worker, prompt)
        steps.append(
            StepRecord(
                index,
                position,
                step.worker,
                step.subtask,
                step.access,
                "done",
                reply,
                None,
                0.0,
                0.0,
                prompt=prompt,
                answered_by=step.worker,
            )
        )
    return Round(index, workflow, tuple(steps), plan_text=plan.write(workflow, pool, order=order))


def flaky_replies(share: float, seed: int) -> Voice:
    """Perfect specialists that forget as a `FlakyWorker` does; the others guess."""

    def voice(worker: str, message: str) -> str:
        if is_declined(worker, message, share, seed):
            return UNSURE
        return oracle_reply(worker, message) if worker in FAMILIES else _guess(worker, message)

    return voice


def _guess(worker: str, message: str) -> str:
    """What someone says who cannot know, always the same to the same message."""
    rng = Random(f"{worker}/{message}")  # noqa: S311 - repeatable, not secret
    guess = make_etude(rng, "train", EtudeShape.ONE).answer
    return rng.choice(("{}", "{}.", "The answer is {}.", "It is {}.")).format(guess)


def _with_a_wrong_worker(rng: Random, workflow: Workflow, pool: Pool) -> Workflow:
    """The workflow with one of its steps given to anyone else, if there is anyone else."""
    steps = list(workflow.steps)
    position = rng.randrange(len(steps))
    others = [name for name in pool.names if name != steps[position].worker]
    if others:
        steps[position] = Step(rng.choice(others), steps[position].subtask, steps[position].access)
    return Workflow(tuple(steps))


# ---- another plan


def _second(rng: Random, etude: Etude, pool: Pool, first: Round) -> Workflow:
    """All of the clauses, or those from the one that failed on, or any plan; by anyone."""
    if rng.random() >= TRUE_SECOND:
        return any_workflow(rng, pool, etude)
    start = rng.choice(
        (0, _first_unknown(first, len(etude.steps)), rng.randrange(len(etude.steps)))
    )
    steps = etude.steps[start:]
    if rng.random() < 0.5:
        accesses: list[Access] = [_going_on(rng, step.reads, start) for step in steps]
    else:
        accesses = random_access(rng, len(steps))
        accesses = ["all" if rng.random() < 0.3 else access for access in accesses]
    return Workflow(
        tuple(
            Step(rng.choice(pool.names), step.subtask, access)
            for step, access in zip(steps, accesses, strict=True)
        )
    )


def _first_unknown(round_: Round, length: int) -> int:
    """The first step that was not known, so far as the étude has that many."""
    unknown = [step.index for step in round_.steps if step.reply == UNSURE]
    return min(unknown[0], length - 1) if unknown else 0


def _going_on(rng: Random, reads: tuple[int, ...], start: int) -> Access:
    """The true access of a step where those before `start` are not done again: `all`, wherever
    the round before is needed. What needs nothing may read it all the same."""
    if not reads:
        return rng.choice(((), "all"))
    return tuple(read - start for read in reads) if min(reads) >= start else "all"


class TrainingContext(NamedTuple):
    """What is asked, an étude or an everyday question in its own words, and the situation in
    which a plan for it is to be written."""

    asked: Etude | str
    context: PlanningContext


def make_training_contexts(
    seed: int,
    shapes: Mapping[EtudeShape, float] = USUAL,
    models: Mapping[str, str] = SAME_MODELS,
    *,
    everyday_share: float = EVERYDAY,
    later_share: float = 0.0,
    nested_share: float = NESTED_SHARE,
    drop: float = DROP,
    keep_needed: bool = True,
    flaky_share: float = FLAKY,
    flaky_seed: int = 0,
    order: plan.Order = ORDER,
) -> Iterator[TrainingContext]:
    """Situation after situation, of shapes as frequent as their weights say.

    Workers are described at random and shuffled, and each is left out with the chance `drop`;
    those that are needed only where `keep_needed` is off. `later_share` of all situations are
    second rounds, whose first was carried out by workers that forget as `FlakyWorker` does with
    `flaky_share` and `flaky_seed`.
    """
    rng = Random(f"{seed}/situations")  # noqa: S311 - repeatable, not secret
    names, weights = list(shapes), list(shapes.values())
    later = make_second_rounds(
        rng,
        "train",
        models,
        shapes=shapes,
        nested_share=nested_share,
        flaky_share=flaky_share,
        flaky_seed=flaky_seed,
        drop=drop,
        order=order,
    )
    while True:
        point = rng.random()
        if point < later_share:
            etude, context, _ = next(later)
            yield TrainingContext(etude, context)
            continue
        asked: Etude | str
        if point < later_share + everyday_share:
            asked = question = rng.choice(everyday_questions("train"))
            needed: tuple[str, ...] = (GENERALIST,)
        else:
            (shape,) = rng.choices(names, weights)
            asked = make_etude(rng, "train", shape, nested_share=nested_share)
            question, needed = asked.question, asked.families
        pool = pool_profiles(rng, models, keep=needed if keep_needed else (), drop=drop)
        yield TrainingContext(asked, PlanningContext(question=question, pool=pool))
