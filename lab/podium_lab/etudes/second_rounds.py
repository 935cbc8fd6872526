"""Second rounds: what a first round has left, and how a conductor may go on from it.

First rounds are executed by perfect specialists that now and then do not know, exactly as the
engine would execute them with such workers. About half of them came to the right answer. In the
others a step was not known, at the end or in the middle, where it spoiled what followed; or it
went to the wrong worker.

    make_second_rounds          contexts for learning and measuring what to accept
    make_second_round_examples  examples of the form alone: acceptance is random
    make_training_contexts      first and second rounds to learn from by reward
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.workflow import Access, Workflow
from podium.engine.requests import PriorResult, compose
from podium_lab.etudes.etude import Etude, draw_shape, make_etude
from podium_lab.etudes.oracle import ROUND_BEFORE, oracle_reply
from podium_lab.etudes.plan_examples import (
    DEFAULTS,
    ExampleSettings,
    PlanExample,
    any_workflow,
    assign_workers,
    random_access,
)
from podium_lab.etudes.shapes import USUAL, EtudeShape, Split
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.tasks import everyday_questions, grade
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import GENERALIST, is_declined

WRONG_WORKER: Final = 0.25
"""How often a wrong worker is why the first round came to nothing."""

TRIES: Final = 1_000
"""Far more than it takes to find a first round that came out as wanted."""

RANDOM_FIRST: Final = 0.4
TRUE_SECOND: Final = 0.6
TRUE_CLAUSES: Final = 0.65
TRUE_ACCESS: Final = 0.5

Voice = Callable[[str, str], str]
"""Returns the reply of a worker, named by its role, to a message."""


class SecondRound(NamedTuple):
    """An étude after a first round, and whether that came to the right answer."""

    etude: Etude
    context: PlanningContext
    is_right: bool


def make_second_rounds(
    rng: Random, split: Split = "train", settings: ExampleSettings = DEFAULTS
) -> Iterator[SecondRound]:
    """Yield contexts that a good conductor's first round has left; half of the answers are right.

    What the workers declined, `FlakyWorker` of the same share and seed declines again: repeating a
    request word by word is of no use.
    """
    voice = flaky_replies(settings.flaky_share, settings.flaky_seed)
    while True:
        wanted = rng.random() < 0.5
        cause_is_worker = not wanted and rng.random() < WRONG_WORKER
        shape = draw_shape(rng, settings.shapes)
        for _ in range(TRIES):
            etude = make_etude(rng, split, shape, nested_share=settings.nested_share)
            pool = settings.draw_pool(rng, etude.families, split=split)
            workflow = etude.own_plan
            if cause_is_worker:
                workflow = _with_a_wrong_worker(rng, workflow, pool)
            round_ = carry_out(workflow, pool, voice, order=settings.order)
            if grade(round_.steps[-1].reply, etude) is wanted:
                context = PlanningContext(question=etude.question, pool=pool, rounds=(round_,))
                yield SecondRound(etude, context, wanted)
                break
        else:
            raise UsageError(
                f"with a flaky_share of {settings.flaky_share} no first round was "
                f"{'right' if wanted else 'wrong'}; give one between 0 and 1"
            )


def make_second_round_examples(
    seed: int, settings: ExampleSettings = DEFAULTS
) -> Iterator[PlanExample]:
    """Yield examples of second rounds: the answer is accepted, or there is another plan with random
    workers, whatever the first round came to."""
    rng = Random(f"{seed}/later openings")  # noqa: S311 - repeatable, not secret
    voice, order = flaky_replies(settings.flaky_share, seed), settings.order
    while True:
        etude = settings.draw_etude(rng)
        pool = settings.draw_pool(rng, etude.families, composed=False)
        if rng.random() < RANDOM_FIRST:
            workflow = any_workflow(rng, pool, etude, TRUE_CLAUSES, TRUE_ACCESS)
        else:
            workflow = etude.own_plan
        round_ = carry_out(workflow, pool, voice, order=order)
        if rng.random() < settings.accepted_share:
            text = plan.write_acceptance(order)
        else:
            text = plan.write(_second(rng, etude, pool, round_), pool, order=order)
        context = PlanningContext(question=etude.question, pool=pool, rounds=(round_,))
        yield PlanExample(context, text)


def carry_out(
    workflow: Workflow,
    pool: Pool,
    voice: Voice,
    *,
    before: Round | None = None,
    order: plan.Order = "step-by-step",
) -> Round:
    """Return the round as the engine would leave it, with workers that answer at once."""
    index = 0 if before is None else before.index + 1
    steps: list[StepRecord] = []
    for position, step in enumerate(workflow.steps):
        read = [steps[number] for number in workflow.reads(position)]
        pairs = [PriorResult(str(record.index), record.subtask, record.reply) for record in read]
        if before is not None and step.access == "all":
            earlier = [
                PriorResult(f"{s.index}{ROUND_BEFORE}", s.subtask, s.reply) for s in before.steps
            ]
            pairs = [*earlier, *pairs]
        is_final = position == len(workflow) - 1
        prompt = compose(step.subtask, question=None, prior=pairs, is_final=is_final)
        reply = voice(step.worker, prompt)
        asked = (step.worker, step.subtask, step.access)
        record = StepRecord(index, position, *asked, "done", reply, None, 0.0, 0.0, prompt=prompt)
        steps.append(replace(record, answered_by=step.worker))
    return Round(index, workflow, tuple(steps), plan_text=plan.write(workflow, pool, order=order))


def flaky_replies(share: float, seed: int) -> Voice:
    """Return perfect specialists that decline as a `FlakyWorker` does; the others guess."""

    def voice(worker: str, message: str) -> str:
        if is_declined(worker, message, share, seed):
            return UNSURE
        return oracle_reply(worker, message) if worker in FAMILIES else _guess(worker, message)

    return voice


def _guess(worker: str, message: str) -> str:
    """Return the guess of a worker that cannot know, always the same for the same message."""
    rng = Random(f"{worker}/{message}")  # noqa: S311 - repeatable, not secret
    guess = make_etude(rng, "train", EtudeShape.ONE).answer
    return rng.choice(("{}", "{}.", "The answer is {}.", "It is {}.")).format(guess)


def _with_a_wrong_worker(rng: Random, workflow: Workflow, pool: Pool) -> Workflow:
    """Give one of the steps to another worker, if there is one."""
    steps = list(workflow.steps)
    position = rng.randrange(len(steps))
    others = [name for name in pool.names if name != steps[position].worker]
    if others:
        steps[position] = replace(steps[position], worker=rng.choice(others))
    return Workflow(tuple(steps))


def _second(rng: Random, etude: Etude, pool: Pool, first: Round) -> Workflow:
    """Return all clauses, or those from the one that failed on, or any plan."""
    if rng.random() >= TRUE_SECOND:
        return any_workflow(rng, pool, etude, TRUE_CLAUSES, TRUE_ACCESS)
    last = len(etude.steps) - 1
    unknown = [step.index for step in first.steps if step.reply == UNSURE] or [0]
    start = rng.choice((0, min(unknown[0], last), rng.randrange(last + 1)))
    steps = etude.steps[start:]
    if rng.random() < 0.5:
        accesses = [_going_on(rng, step.reads, start) for step in steps]
    else:
        accesses = random_access(rng, len(steps))
        accesses = ["all" if rng.random() < 0.3 else access for access in accesses]
    return assign_workers(rng, pool, [step.subtask for step in steps], accesses)


def _going_on(rng: Random, reads: tuple[int, ...], start: int) -> Access:
    """Return the true access of a step where those before `start` are not done again.

    That is `all` wherever the round before is needed. A step that needs nothing may read it too.
    """
    if not reads:
        return rng.choice(((), "all"))
    return tuple(read - start for read in reads) if min(reads) >= start else "all"


USUALLY: Final = ExampleSettings(shapes=USUAL)


class TrainingContext(NamedTuple):
    """An étude or an everyday question, and the context in which a plan for it is written."""

    asked: Etude | str
    context: PlanningContext


def make_training_contexts(
    seed: int, settings: ExampleSettings = USUALLY
) -> Iterator[TrainingContext]:
    """Yield contexts; `later_share` of them are second rounds."""
    rng = Random(f"{seed}/situations")  # noqa: S311 - repeatable, not secret
    later = make_second_rounds(rng, "train", settings)
    while True:
        point = rng.random()
        if point < settings.later_share:
            etude, context, _ = next(later)
            yield TrainingContext(etude, context)
            continue
        asked: Etude | str
        if point < settings.later_share + settings.everyday_share:
            asked = question = rng.choice(everyday_questions("train"))
            needed: tuple[str, ...] = (GENERALIST,)
        else:
            asked = settings.draw_etude(rng)
            question, needed = asked.question, asked.families
        pool = settings.draw_pool(rng, needed if settings.keep_needed else ())
        yield TrainingContext(asked, PlanningContext(question=question, pool=pool))
