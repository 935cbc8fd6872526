"""The runs that are broken: questions that say what is wanted of them, and a conductor that
improvises a workflow for each, the same one for the same question.

There are workflows of one to five steps in every shape, more rounds than one, runs nested in
steps, and planning calls; and, where the question says so, a worker without a fallback.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from podium.core.budget import Budget
from podium.core.conductor import Plan, PlanningContext
from podium.core.errors import WorkerError
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Request, user
from podium.core.worker import Caller, Worker
from podium.core.workflow import Access, Step, Workflow

LONE: Final = "lone"
"""The worker that has no fallback."""

ALONE: Final = "alone"
"""In a question: one step is for the worker without a fallback."""

MOST_STEPS: Final = 5
SHAPES: Final = ("chain", "join", "all", "some")

SHARE_ALONE: Final = 0.1
SHARE_CAPPED: Final = 0.1
SHARE_NESTED: Final = 0.2
SHARE_PLANNED_BY_CALL: Final = 0.3


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run to ask for. Where it `has_fallback` and no cap, it is to be answered."""

    question: str
    streams: bool
    rounds: int
    budget: Budget

    @property
    def must_be_answered(self) -> bool:
        """Whether nothing but faults stands between this run and its answer."""
        return ALONE not in self.question.split() and self.budget.calls is None


def wanted_run(index: int, seed: int) -> Wanted:
    """The run with that number; every second one streams."""
    chance = _chance(seed, index)
    words = [f"chaos-{index:06d}", "what", "holds", "when", "things", "break?"]
    if chance.random() < SHARE_ALONE:
        words.append(ALONE)
    cap = chance.randint(1, 12) if chance.random() < SHARE_CAPPED else None
    return Wanted(
        question=" ".join(words),
        streams=index % 2 == 1,
        rounds=chance.choice((1, 1, 1, 2, 3)),
        budget=Budget(calls=cap, depth=1),
    )


class Improviser:
    """Plans something else for every question, and now and then asks a worker first."""

    name = "improviser"

    def __init__(self, worker: Worker, seed: int) -> None:
        self.worker = worker
        self._seed = seed

    async def plan(self, situation: PlanningContext, call: Caller) -> Plan:
        """A workflow; after the first round, perhaps acceptance."""
        chance = _chance(self._seed, situation.question, len(situation.rounds))
        if situation.answer is not None and chance.random() < 0.5:
            return Plan(None)
        if chance.random() < SHARE_PLANNED_BY_CALL:
            with suppress(WorkerError):  # then it improvises without having asked
                await call(self.worker, Request((user(f"Plan for: {situation.question}"),)))
        return Plan(_workflow(situation, chance))


def _workflow(situation: PlanningContext, chance: random.Random) -> Workflow:
    conductors = [x.name for x in situation.pool if x.provider == CONDUCTOR_PROVIDER]
    usual = [x for x in situation.pool.names if x not in (LONE, *conductors)]
    count = chance.randint(1, min(MOST_STEPS, situation.max_steps))
    shape = chance.choice(SHAPES)
    workers = [chance.choice(usual) for _ in range(count)]
    if conductors and count > 1 and chance.random() < SHARE_NESTED:
        workers[chance.randrange(count - 1)] = chance.choice(conductors)
    if ALONE in situation.question.split():
        workers[chance.randrange(count)] = LONE
    return Workflow(
        tuple(
            Step(
                worker,
                f"{situation.question} part {index}",
                _access(index, index == count - 1, shape, chance),
            )
            for index, worker in enumerate(workers)
        )
    )


def _access(index: int, is_last: bool, shape: str, chance: random.Random) -> Access:
    before = tuple(range(index))
    match shape:
        case "chain":
            return before[-1:]
        case "join":
            return before if is_last else ()
        case "all":
            return "all"
        case _:
            return tuple(step for step in before if chance.random() < 0.5)


def _chance(*of: object) -> random.Random:
    return random.Random(":".join(map(str, of)))  # noqa: S311 -- repeatable, not unguessable
