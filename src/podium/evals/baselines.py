"""Strategies without a plan: one worker alone, a vote, Mixture-of-Agents, self-reflection.

All of them first ask workers the bare question, in the same words as the engine would, so that a
cache of replies serves them all. Workers sample as the pool says, for every strategy alike.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib import resources
from string import Template
from typing import Final, Literal, get_args

from podium.etudes import UNSURE
from podium.evals.case import Case
from podium.evals.stage import Stage, Strategy
from podium.evals.transcript import Transcript
from podium.pool import CONDUCTOR_PROVIDER
from podium.request import Request, system, user
from podium.run import Run

REVISIONS: Final = 5
"""How often self-reflection may revise its answer."""

DRAWN: Final = "drawn"
"""In a worker's place: one that is drawn at random for each task."""

Form = Literal["system", "message"]
"""Where a worker finds what it is told about the responses: in a system message before the
question, or in one message with it. Small models that were taught without system messages, such
as the specialists of the études, may know no more than one of them, so both are tried."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_WRAPPING: Final = " \t\n.,;!*_`\"'“”‘’«»"


def single(worker: str) -> Strategy:
    """One worker is asked the whole question, and nobody else anything."""

    async def answer(case: Case, stage: Stage) -> Run:
        transcript = Transcript(f"single:{worker}", case, stage)
        return transcript.run(await _asked(transcript, worker, case))

    return answer


async def majority(case: Case, stage: Stage) -> Run:
    """Every worker is asked the whole question, and the most frequent answer counts.

    Departures: the paper takes several samples of one model; here each worker of the pool has
    one vote. Answers are compared without case, spaces, quotes and the final full stop. Who says
    "I do not know." does not vote, or that would win every vote among specialists. Of equally
    frequent answers, the one of the worker that comes first in the pool counts.
    """
    transcript = Transcript("majority", case, stage)
    replies = await _proposals(transcript, case)
    votes = Counter(normalised(reply) for reply in replies)
    votes.pop(normalised(UNSURE), None)
    if not votes:
        return transcript.run(replies[0] if replies else None)
    winner = votes.most_common(1)[0][0]
    return transcript.run(next(reply for reply in replies if normalised(reply) == winner))


def mixture_of_agents(aggregator: str, form: Form) -> Strategy:
    """One layer of proposers, every worker of the pool, and an aggregator: the worker of that
    name, or `DRAWN` for one that is drawn at random for each task, as the Conductor's paper ran
    it. The original's is the strongest model; tables show the better of drawn and best alone.

    Departures from the original (Wang et al. 2024): one layer of proposers instead of two;
    proposers sample as the pool says and not at temperature 0.7; the words of the aggregator's
    instruction are ours. A proposer that fails is left out, where the original would send an
    empty response. The original has the form `system`; see `Form` for the other.
    """

    async def answer(case: Case, stage: Stage) -> Run:
        transcript = Transcript("moa", case, stage)
        replies = await _proposals(transcript, case)
        drawn = stage.draw(case, "aggregator").choice(_workers(case))
        put_together = await transcript.ask(
            drawn if aggregator == DRAWN else aggregator,
            _with_responses("aggregate.txt", case, replies, form),
            "put the responses together",
            tuple(range(len(_workers(case)))),
        )
        return transcript.run(put_together)

    return answer


def reflection(worker: str, form: Form) -> Strategy:
    """One worker answers and then revises its answer up to five times, all of its attempts in
    its context.

    Departures: the paper runs this for each worker and so do we, but tables show the worker that
    is best alone, in the better of two forms; it ends early once the worker repeats its last
    attempt, which is how it is told to say that nothing is left to revise.
    """

    async def answer(case: Case, stage: Stage) -> Run:
        transcript = Transcript(f"reflection:{worker}", case, stage)
        attempts: list[str] = []
        reply = await _asked(transcript, worker, case)
        while reply is not None:
            repeated = bool(attempts) and normalised(reply) == normalised(attempts[-1])
            attempts.append(reply)
            if repeated or len(attempts) > REVISIONS:
                break
            reply = await transcript.ask(
                worker,
                _with_responses("reflect.txt", case, attempts, form),
                "revise the answer",
                tuple(range(len(attempts))),
            )
        return transcript.run(attempts[-1] if attempts else None)

    return answer


def normalised(answer: str) -> str:
    """The answer in the spelling in which votes are counted."""
    return re.sub(r"\s+", " ", answer.casefold()).strip(_WRAPPING)


def _workers(case: Case) -> list[str]:
    """Those who can answer by themselves, in the pool's order."""
    return [worker.name for worker in case.pool if worker.provider != CONDUCTOR_PROVIDER]


async def _asked(transcript: Transcript, worker: str, case: Case) -> str | None:
    question = case.task.question
    return await transcript.ask(worker, Request((user(question),)), question)


async def _proposals(transcript: Transcript, case: Case) -> list[str]:
    """What every worker replies to the bare question; who fails is left out."""
    asked = [_asked(transcript, worker, case) for worker in _workers(case)]
    replies = await asyncio.gather(*asked)
    return [reply for reply in replies if reply is not None]


def _with_responses(prompt: str, case: Case, responses: Sequence[str], form: Form) -> Request:
    """The question, after an instruction that lists the responses there are."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(responses, start=1))
    instruction = Template(_text(prompt)).substitute(responses=listed)
    question = case.task.question
    if form == "message":
        return Request((user(f"{instruction}\n\n{question}"),))
    return Request((system(instruction), user(question)))


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
