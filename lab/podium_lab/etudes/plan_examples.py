"""Where a conductor begins before it learns from reward: plans in the right form, of every shape,
by no one in particular.

An opening teaches the form and its variety, never who can do what: workers are drawn at random.
In most of the questions of several steps, the subtasks are the true clauses; in the others, the
whole question goes to one worker, or it is cut up in some other way. Access is random, and as
often the true one where the clauses are. Two kinds of openings stand apart:

    assigned   the question says in words who is to do each clause, so a worker is to be found
               by its description
    everyday   a question that is no étude goes to one worker as it is

Workers have the lines that were written for them, and none that are put together: two conductors
that learned to find one by its line had seen a hundred of each, and two that had seen seven hundred
did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from podium.conductors import plan
from podium.core.conductor import PlanningContext
from podium.core.pool import Pool
from podium.core.workflow import Access, Step, Workflow
from podium_lab.etudes.etude import NESTED_SHARE, Etude, make_etude
from podium_lab.etudes.phrasing import wording
from podium_lab.etudes.shapes import EtudeShape
from podium_lab.etudes.tasks import everyday_questions
from podium_lab.etudes.workers import ROLES, descriptions, pool_profiles

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

ASSIGNED: Final = 0.35
OTHER_WORDS: Final = 0.5
"""How often a worker is called by other words than those of its line in the pool."""

EVERYDAY: Final = 0.1
TRUE_CLAUSES: Final = 0.65
WHOLE_QUESTION: Final = 0.2
TRUE_ACCESS: Final = 0.5
DROP: Final = 0.2
ORDER: Final[plan.Order] = "step-by-step"
"""As conductors write that were trained to."""

SAME_MODELS: Final = MappingProxyType({role: role for role in ROLES})


class PlanExample(NamedTuple):
    """A situation, and a plan for it that is well-formed and random. `is_assigned` says that the
    question itself names who is to do what; otherwise the plan's workers are nobody's choice,
    and nothing is to be learned from them."""

    context: PlanningContext
    plan: str
    is_assigned: bool = False


def make_plan_examples(
    seed: int,
    models: Mapping[str, str] = SAME_MODELS,
    *,
    shapes: Mapping[EtudeShape, float] = SHAPES,
    nested_share: float = NESTED_SHARE,
    assigned_share: float = ASSIGNED,
    everyday_share: float = EVERYDAY,
    true_clauses: float = TRUE_CLAUSES,
    true_access: float = TRUE_ACCESS,
    drop: float = DROP,
    order: plan.Order = ORDER,
) -> Iterator[PlanExample]:
    """Opening after opening, over pools as `pool_profiles` makes them.

    `true_clauses` counts among the questions of several steps, and `true_access` among those
    whose subtasks are the true clauses.
    """
    rng = Random(f"{seed}/openings")  # noqa: S311 - repeatable, not secret
    names, weights = list(shapes), list(shapes.values())
    while True:
        pool = pool_profiles(rng, models, drop=drop, put_together=False)
        point = rng.random()
        is_assigned = everyday_share <= point < everyday_share + assigned_share
        if point < everyday_share:
            question = rng.choice(everyday_questions("train"))
            workflow = Workflow((Step(rng.choice(pool.names), question),))
        else:
            (shape,) = rng.choices(names, weights)
            etude = make_etude(rng, "train", shape, nested_share=nested_share)
            workflow = any_workflow(
                rng,
                pool,
                etude,
                true_clauses=1.0 if is_assigned else true_clauses,
                true_access=true_access,
            )
            question = _assigned(rng, pool, workflow) if is_assigned else etude.question
        context = PlanningContext(question=question, pool=pool)
        yield PlanExample(context, plan.write(workflow, pool, order=order), is_assigned)


def any_workflow(
    rng: Random,
    pool: Pool,
    etude: Etude,
    *,
    true_clauses: float = TRUE_CLAUSES,
    true_access: float = TRUE_ACCESS,
) -> Workflow:
    """A random plan for the étude; not even a right one knows who can do what."""
    subtasks = _subtasks(rng, etude, true_clauses)
    accesses = random_access(rng, len(subtasks))
    if rng.random() < true_access and subtasks == _clauses(etude):
        accesses = [step.reads for step in etude.steps]
    return Workflow(
        tuple(
            Step(rng.choice(pool.names), subtask, access)
            for subtask, access in zip(subtasks, accesses, strict=True)
        )
    )


# ---- who is to do it, in words


def _assigned(rng: Random, pool: Pool, workflow: Workflow) -> str:
    """A question that says of every subtask who is to do it."""
    table = wording()["assigned"]
    template: str = rng.choice(table["one" if len(workflow) == 1 else "each"])
    return "".join(
        template.format(n=number, clause=step.subtask, worker=_called(rng, pool, step.worker))
        for number, step in enumerate(workflow.steps, start=1)
    ).strip()


def _called(rng: Random, pool: Pool, worker: str) -> str:
    """The worker, called by its description or by another one of the same worker, as its grammar
    allows."""
    description = pool[worker].description
    if rng.random() < OTHER_WORDS:
        description = rng.choice(descriptions(worker, "train", put_together=False))
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


# ---- what the subtasks are


def _clauses(etude: Etude) -> list[str]:
    return [step.subtask for step in etude.steps]


def _subtasks(rng: Random, etude: Etude, true_clauses: float) -> Sequence[str]:
    point = rng.random()
    clauses = _clauses(etude)
    if len(clauses) == 1 or true_clauses < point < true_clauses + WHOLE_QUESTION:
        return [etude.question]
    if point <= true_clauses:
        return clauses
    cut = rng.choice((_pieces, _fewer, _shuffled))
    return cut(rng, etude.question, clauses)


def _pieces(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The question cut anywhere between its words."""
    words = question.split()
    places = sorted(rng.sample(range(1, len(words)), rng.randint(1, min(4, len(words) - 1))))
    bounds = [0, *places, len(words)]
    return [" ".join(words[start:end]) for start, end in pairwise(bounds)]


def _fewer(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The question without some of its clauses."""
    kept = sorted(rng.sample(range(len(clauses)), rng.randint(1, len(clauses) - 1)))
    return [clauses[position] for position in kept]


def _shuffled(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The clauses in any order, the whole question perhaps at the end."""
    mixed = rng.sample(clauses, len(clauses))
    return [*mixed[:4], question] if rng.random() < 0.3 else mixed


# ---- what each of them may read


def random_access(rng: Random, length: int) -> list[Access]:
    """What each of so many steps may read, in a topology chosen at random: a chain, a join, a
    tree, everything, nothing, or anything."""
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
