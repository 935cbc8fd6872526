"""Plan examples: what a conductor is taught before it learns from reward.

An example teaches the form of plans and its variety, never which worker can do what: workers are
drawn at random. In most of the questions of several steps, the subtasks are the true clauses; in
the others, the whole question goes to one worker, or it is cut up in some other way. Access is
random, and as often the true one where the clauses are. Two kinds of examples stand apart:

    assigned   the question says in words which worker does each clause, so a worker is to be found
               by its description
    everyday   a question that is no étude goes to one worker as it is

Workers have the lines that were written for them, and no composed ones: two conductors that learned
to find a worker by its line had seen a hundred of each, and two that had seen seven hundred did
not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Round, StepRecord
from podium.core.workflow import Access, Step, Workflow
from podium.engine.requests import PriorResult, compose_prompt
from podium_lab.etudes.composition import DEFAULT_SHAPES, EtudeShape, Split
from podium_lab.etudes.etude import NESTED_SHARE, Etude, draw_etude, draw_shape, make_etude, wording
from podium_lab.etudes.oracle import ROUND_BEFORE, oracle_reply
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.tasks import everyday_questions, grade
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import GENERALIST, ROLES, descriptions, is_declined, pool_profiles

SHAPES: Final = MappingProxyType(
    {
        EtudeShape.ONE: 0.20,
        EtudeShape.CHAIN_2: 0.12,
        EtudeShape.CHAIN_3: 0.09,
        EtudeShape.CHAIN_4: 0.06,
        EtudeShape.JOIN_2: 0.16,
        EtudeShape.JOIN_3: 0.10,
        EtudeShape.JOIN_STEP: 0.09,
        EtudeShape.CHAIN_JOIN: 0.09,
        EtudeShape.CHAINS_JOIN: 0.09,
    }
)
"""Joins and trees as often as chains."""

FLAKY: Final = 0.15
"""How often a worker does not know what it should, in first rounds."""

REPHRASED_SHARE: Final = 0.5
"""How often a worker is called by other words than those of its line in the pool."""

WHOLE_QUESTION_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleSettings:
    """The distribution of examples and training contexts.

    Shares are of all examples, but `correct_split_share` is of the questions of several steps,
    `correct_access_share` of those that are split correctly, and `accepted_share` of second
    rounds. `drop` is the chance that a worker is left out of a pool. First rounds are executed by
    workers that decline as `FlakyWorker` does with `flaky_share` and `flaky_seed`.
    """

    roles: tuple[str, ...] = ROLES
    shapes: Mapping[EtudeShape, float] = field(default_factory=lambda: SHAPES)
    nested_phrase_share: float = NESTED_SHARE
    everyday_share: float = 0.1
    later_round_share: float = 0.0
    assigned_share: float = 0.35
    accepted_share: float = 0.4
    correct_split_share: float = 0.65
    correct_access_share: float = 0.5
    drop: float = 0.2
    flaky_share: float = FLAKY
    flaky_seed: int = 0
    layout: plan.PlanLayout = "step-by-step"

    def draw_etude(self, rng: Random, split: Split = "train") -> Etude:
        return draw_etude(rng, split, self.shapes, nested_phrase_share=self.nested_phrase_share)

    def draw_pool(
        self,
        rng: Random,
        keep: Collection[str] = (),
        *,
        split: Split = "train",
        composed: bool = True,
    ) -> Pool:
        models = dict.fromkeys(self.roles, "")
        return pool_profiles(rng, models, split=split, keep=keep, drop=self.drop, composed=composed)


DEFAULTS: Final = ExampleSettings()


class PlanExample(NamedTuple):
    """A context, and a plan for it that is well-formed and random.

    `is_assigned` says that the question itself names the workers; otherwise they are random, and
    nothing is to be learned from them.
    """

    context: PlanningContext
    plan: str
    is_assigned: bool = False


def make_plan_examples(seed: int, settings: ExampleSettings = DEFAULTS) -> Iterator[PlanExample]:
    rng = Random(f"{seed}/openings")  # noqa: S311 - repeatable, not secret
    everyday, assigned = settings.everyday_share, settings.assigned_share
    while True:
        pool = settings.draw_pool(rng, composed=False)
        point = rng.random()
        is_assigned = everyday <= point < everyday + assigned
        if point < everyday:
            question = rng.choice(everyday_questions("train"))
            workflow = Workflow((Step(rng.choice(pool.names), question),))
        else:
            etude = settings.draw_etude(rng)
            clauses = 1.0 if is_assigned else settings.correct_split_share
            workflow = random_workflow(rng, pool, etude, clauses, settings.correct_access_share)
            question = _assign_in_words(rng, pool, workflow) if is_assigned else etude.question
        context = PlanningContext(question=question, pool=pool)
        yield PlanExample(context, plan.write(workflow, pool, layout=settings.layout), is_assigned)


def random_workflow(
    rng: Random, pool: Pool, etude: Etude, correct_split_share: float, correct_access_share: float
) -> Workflow:
    """Return a random plan for the étude; even one of true clauses has random workers."""
    clauses = [step.subtask for step in etude.steps]
    subtasks = _subtasks(rng, etude.question, clauses, correct_split_share)
    accesses = random_access(rng, len(subtasks))
    if rng.random() < correct_access_share and subtasks == clauses:
        accesses = [step.reads for step in etude.steps]
    return assign_workers(rng, pool, subtasks, accesses)


def assign_workers(
    rng: Random, pool: Pool, subtasks: Sequence[str], accesses: Sequence[Access]
) -> Workflow:
    pairs = zip(subtasks, accesses, strict=True)
    return Workflow(tuple(Step(rng.choice(pool.names), *pair) for pair in pairs))


def _assign_in_words(rng: Random, pool: Pool, workflow: Workflow) -> str:
    table = wording()["assigned"]
    template: str = rng.choice(table["one" if len(workflow) == 1 else "per_step"])
    return "".join(
        template.format(n=number, clause=step.subtask, worker=_name_worker(rng, pool, step.worker))
        for number, step in enumerate(workflow.steps, start=1)
    ).strip()


def _name_worker(rng: Random, pool: Pool, worker: str) -> str:
    """Return the worker's description in the pool or another of its own, as a noun phrase."""
    description = pool[worker].description
    if rng.random() < REPHRASED_SHARE:
        description = rng.choice(descriptions(worker, "train", composed=False))
    first_word = description.split()[0].rstrip(",:")
    names: tuple[str, ...]
    if first_word.endswith("s"):
        names = ("the one who {}", "the worker that {}", "whoever {}")
    elif first_word in ("a", "an", "the"):
        names = ("the one who is {}", "the worker that is {}", "{}")
    else:
        names = ("the one described as {}", "the worker described as {}")
    name: str = rng.choice((*names, '"{}"'))
    return name.format(description)


def _subtasks(
    rng: Random, question: str, clauses: Sequence[str], correct_split_share: float
) -> Sequence[str]:
    """Return the clauses, the whole question, or the question cut up in another way."""
    point = rng.random()
    if (
        len(clauses) == 1
        or correct_split_share < point < correct_split_share + WHOLE_QUESTION_SHARE
    ):
        return [question]
    if point <= correct_split_share:
        return clauses
    match rng.choice(("pieces", "fewer", "shuffled")):
        case "pieces":  # cut anywhere between words
            words = question.split()
            cuts = rng.sample(range(1, len(words)), rng.randint(1, min(4, len(words) - 1)))
            bounds = [0, *sorted(cuts), len(words)]
            return [" ".join(words[start:end]) for start, end in pairwise(bounds)]
        case "fewer":
            kept = rng.sample(range(len(clauses)), rng.randint(1, len(clauses) - 1))
            return [clauses[position] for position in sorted(kept)]
        case _:  # the whole question perhaps at the end
            mixed = rng.sample(clauses, len(clauses))
            return [*mixed[:4], question] if rng.random() < 0.3 else mixed


def random_access(rng: Random, length: int) -> list[Access]:
    steps = range(length)
    match rng.choice(("chain", "join", "tree", "tree", "all", "nothing", "anything")):
        case "chain":
            return [(index - 1,) if index else () for index in steps]
        case "join":
            return [*((),) * (length - 1), tuple(range(length - 1))]
        case "tree":
            reader = [rng.randint(index + 1, length - 1) for index in range(length - 1)]
            return [tuple(n for n, read_by in enumerate(reader) if read_by == i) for i in steps]
        case "all":
            return ["all" if index else () for index in steps]
        case "nothing":
            return [() for _ in steps]
        case _:
            return [tuple(n for n in range(index) if rng.random() < 0.5) for index in steps]


WRONG_WORKER: Final = 0.25
"""How often a wrong worker is why the first round came to nothing."""

MAX_TRIES: Final = 1_000
"""Far more than it takes to find a first round that came out as wanted."""

RANDOM_FIRST_SHARE: Final = 0.4
RIGHT_SECOND_SHARE: Final = 0.6
CORRECT_SPLIT_SHARE: Final = 0.65
CORRECT_ACCESS_SHARE: Final = 0.5

ReplyFunction = Callable[[str, str], str]
"""Returns the reply of a worker, named by its role, to a message."""


class SecondRound(NamedTuple):
    """An étude after a first round, and whether that came to the right answer."""

    etude: Etude
    context: PlanningContext
    is_right: bool


def draw_second_round(
    rng: Random, split: Split = "train", settings: ExampleSettings = DEFAULTS
) -> SecondRound:
    """Return an étude after a good conductor's first round; half of the answers are right.

    What the workers declined, `FlakyWorker` of the same share and seed declines again: repeating a
    request word by word is of no use.
    """
    reply_as = flaky_replies(settings.flaky_share, settings.flaky_seed)
    wanted = rng.random() < 0.5
    cause_is_worker = not wanted and rng.random() < WRONG_WORKER
    shape = draw_shape(rng, settings.shapes)
    for _ in range(MAX_TRIES):
        etude = make_etude(rng, split, shape, nested_phrase_share=settings.nested_phrase_share)
        pool = settings.draw_pool(rng, etude.families, split=split)
        workflow = etude.own_plan
        if cause_is_worker:
            workflow = _with_a_wrong_worker(rng, workflow, pool)
        round_ = execute_round(workflow, pool, reply_as, layout=settings.layout)
        if grade(round_.steps[-1].reply, etude) is wanted:
            context = PlanningContext(question=etude.question, pool=pool, rounds=(round_,))
            return SecondRound(etude, context, wanted)
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
    reply_as, layout = flaky_replies(settings.flaky_share, seed), settings.layout
    while True:
        etude = settings.draw_etude(rng)
        pool = settings.draw_pool(rng, etude.families, composed=False)
        if rng.random() < RANDOM_FIRST_SHARE:
            workflow = random_workflow(rng, pool, etude, CORRECT_SPLIT_SHARE, CORRECT_ACCESS_SHARE)
        else:
            workflow = etude.own_plan
        round_ = execute_round(workflow, pool, reply_as, layout=layout)
        if rng.random() < settings.accepted_share:
            text = plan.write_acceptance(layout)
        else:
            text = plan.write(_second_workflow(rng, etude, pool, round_), pool, layout=layout)
        context = PlanningContext(question=etude.question, pool=pool, rounds=(round_,))
        yield PlanExample(context, text)


def execute_round(
    workflow: Workflow,
    pool: Pool,
    reply_as: ReplyFunction,
    *,
    before: Round | None = None,
    layout: plan.PlanLayout = "step-by-step",
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
        prompt = compose_prompt(step.subtask, question=None, prior=pairs, is_final=is_final)
        reply = reply_as(step.worker, prompt)
        asked = (step.worker, step.subtask, step.access)
        record = StepRecord(index, position, *asked, "done", reply, None, 0.0, 0.0, prompt=prompt)
        steps.append(replace(record, answered_by=step.worker))
    return Round(index, workflow, tuple(steps), plan_text=plan.write(workflow, pool, layout=layout))


def flaky_replies(share: float, seed: int) -> ReplyFunction:
    """Return perfect specialists that decline as a `FlakyWorker` does; the others guess."""

    def reply_as(worker: str, message: str) -> str:
        if is_declined(worker, message, share, seed):
            return UNSURE
        return oracle_reply(worker, message) if worker in FAMILIES else _guess(worker, message)

    return reply_as


def _guess(worker: str, message: str) -> str:
    """Return the guess of a worker that cannot know, always the same for the same message."""
    rng = Random(f"{worker}/{message}")  # noqa: S311 - repeatable, not secret
    guess = make_etude(rng, "train", EtudeShape.ONE).answer
    return rng.choice(("{}", "{}.", "The answer is {}.", "It is {}.")).format(guess)


def _with_a_wrong_worker(rng: Random, workflow: Workflow, pool: Pool) -> Workflow:
    steps = list(workflow.steps)
    position = rng.randrange(len(steps))
    others = [name for name in pool.names if name != steps[position].worker]
    if others:
        steps[position] = replace(steps[position], worker=rng.choice(others))
    return Workflow(tuple(steps))


def _second_workflow(rng: Random, etude: Etude, pool: Pool, first: Round) -> Workflow:
    """Return all clauses, or those from the one that failed on, or any plan."""
    if rng.random() >= RIGHT_SECOND_SHARE:
        return random_workflow(rng, pool, etude, CORRECT_SPLIT_SHARE, CORRECT_ACCESS_SHARE)
    last = len(etude.steps) - 1
    unknown = [step.index for step in first.steps if step.reply == UNSURE] or [0]
    start = rng.choice((0, min(unknown[0], last), rng.randrange(last + 1)))
    steps = etude.steps[start:]
    if rng.random() < 0.5:
        accesses = [_continued_access(rng, step.reads, start) for step in steps]
    else:
        accesses = random_access(rng, len(steps))
        accesses = ["all" if rng.random() < 0.3 else access for access in accesses]
    return assign_workers(rng, pool, [step.subtask for step in steps], accesses)


def _continued_access(rng: Random, reads: tuple[int, ...], start: int) -> Access:
    """Return the true access of a step where those before `start` are not done again.

    That is `all` wherever the round before is needed. A step that needs nothing may read it too.
    """
    if not reads:
        return rng.choice(((), "all"))
    return tuple(read - start for read in reads) if min(reads) >= start else "all"


CONTEXT_DEFAULTS: Final = ExampleSettings(shapes=DEFAULT_SHAPES)


class TrainingContext(NamedTuple):
    """An étude or an everyday question, its pool, and the round before, if there is one."""

    asked: Etude | str
    pool: Pool
    rounds: tuple[Round, ...] = ()


def make_training_contexts(
    seed: int, settings: ExampleSettings = CONTEXT_DEFAULTS
) -> Iterator[TrainingContext]:
    """Yield contexts; `later_round_share` of them are second rounds."""
    rng = Random(f"{seed}/situations")  # noqa: S311 - repeatable, not secret
    while True:
        point = rng.random()
        if point < settings.later_round_share:
            etude, context, _ = draw_second_round(rng, "train", settings)
            yield TrainingContext(etude, context.pool, context.rounds)
            continue
        asked: Etude | str
        if point < settings.later_round_share + settings.everyday_share:
            asked = rng.choice(everyday_questions("train"))
            needed: tuple[str, ...] = (GENERALIST,)
        else:
            asked = settings.draw_etude(rng)
            needed = asked.families
        yield TrainingContext(asked, settings.draw_pool(rng, needed))
