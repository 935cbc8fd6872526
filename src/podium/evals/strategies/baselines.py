"""Strategies without a plan: one worker alone or several times, a vote, Mixture-of-Agents,
self-reflection.

All of them first ask workers the bare question, in the same words as the engine would, so that a
cache of replies serves them all. Workers sample as the pool says, but where several draws of one
worker are compared and where a strategy's original says otherwise.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from string import Template
from typing import Final, Literal, get_args

from podium._util.lab import UNSURE
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Request, system, user
from podium.core.run import Run
from podium.evals.context import EvalContext, Strategy
from podium.evals.sample import Case
from podium.evals.strategies.conducting import Transcript
from podium.tasks.answers import final_answer

REVISIONS: Final = 5
"""How often self-reflection may revise its answer."""

TEMPERATURE: Final = 0.7
"""At what temperature draws of one worker are made, so that they differ; the one that
Mixture-of-Agents uses too."""

LONGEST_PROPOSAL: Final = 2048
"""Tokens that a response may have in Mixture-of-Agents of several layers, as in the original."""

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

    async def answer(case: Case, stage: EvalContext) -> Run:
        transcript = Transcript(f"single:{worker}", case, stage)
        return transcript.run(await _asked(transcript, worker, case))

    return answer


async def majority(case: Case, stage: EvalContext) -> Run:
    """Every worker is asked the whole question, and the most frequent answer counts.

    Departures: the paper takes several samples of one model, which is `consensus`; here each
    worker of the pool has one vote. Answers are compared without case, spaces, quotes and the
    final full stop, and where a reply has its answer in tags, by that alone. Who says "I do not
    know." does not vote, or that would win every vote among specialists. Of equally frequent
    answers, the one of the worker that comes first in the pool counts.
    """
    transcript = Transcript("majority", case, stage)
    return transcript.run(_voted(await _proposals(transcript, case)))


def consensus(worker: str, count: int) -> Strategy:
    """One worker answers several times, and its most frequent answer counts: self-consistency
    (Wang et al. 2023), the five-fold consensus of the Conductor's paper.

    Departures: every draw is made at temperature 0.7, with a seed of its own where the provider
    takes one. Votes are counted as in `majority`: the original reads numbers and letters, and
    here two ways of writing one answer are two answers.
    """

    async def answer(case: Case, stage: EvalContext) -> Run:
        transcript = Transcript(f"majority-{count}:{worker}", case, stage)
        return transcript.run(_voted(await _draws(transcript, worker, case, _seeds(stage, count))))

    return answer


def best_of(worker: str, count: int) -> Strategy:
    """One worker answers several times and then says which of its answers is best: the plainest
    way to spend more compute on one model.

    Departures: best-of-N usually has a trained verifier choose, and there is none for every kind
    of task, so the worker itself does; who chooses none of the numbers gets the first answer.
    Draws are made as in `consensus`.
    """

    async def answer(case: Case, stage: EvalContext) -> Run:
        transcript = Transcript(f"best-of-{count}:{worker}", case, stage)
        replies = await _draws(transcript, worker, case, _seeds(stage, count))
        if len({normalised(reply) for reply in replies}) < 2:
            return transcript.run(replies[0] if replies else None)
        choice = await transcript.ask(
            worker,
            _with_responses("choose.txt", case, replies, "message"),
            "choose the best response",
            tuple(range(count)),
        )
        return transcript.run(replies[_number_in(choice or "", len(replies))])

    return answer


def mixture_of_agents(aggregator: str, form: Form, *, layers: int = 1) -> Strategy:
    """Layers of proposers, every worker of the pool, and an aggregator: the worker of that name,
    or `DRAWN` for one that is drawn at random for each task, as the Conductor's paper ran it. The
    original's is the strongest model; tables show the better of drawn and best alone.

    With one layer everyone proposes once and the aggregator answers, as in the Conductor's paper:
    proposers sample as the pool says. With three, the original's number, of which the aggregator
    is the last, proposers answer a second time with everyone's first responses before them; all
    calls are made at temperature 0.7 with at most 2048 tokens, as in the original's evaluation.

    Departures from the original (Wang et al. 2024): the proposers are all workers of the pool
    and not six chosen models; the words of the instruction are ours. A proposer that fails is
    left out, where the original would send an empty response. The original has the form `system`;
    see `Form` for the other.
    """

    async def answer(case: Case, stage: EvalContext) -> Run:
        transcript = Transcript("moa" if layers == 1 else f"moa-{layers}", case, stage)
        workers = _workers(case)

        def sampled(request: Request) -> Request:
            if layers == 1:
                return request
            return replace(request, temperature=TEMPERATURE, max_tokens=LONGEST_PROPOSAL)

        async def layer(request: Request, subtask: str, reads: tuple[int, ...] = ()) -> list[str]:
            asked = [transcript.ask(worker, request, subtask, reads) for worker in workers]
            return [reply for reply in await asyncio.gather(*asked) if reply is not None]

        question = case.task.question
        replies = await layer(sampled(Request((user(question),))), question)
        earlier = tuple(range(len(workers)))
        for _ in range(layers - 2):
            shown = sampled(_with_responses("aggregate.txt", case, replies, form))
            replies = await layer(shown, "put the responses together", earlier) or replies
            earlier = tuple(place + len(workers) for place in earlier)
        drawn = stage.draw(case, "aggregator").choice(workers)
        put_together = await transcript.ask(
            drawn if aggregator == DRAWN else aggregator,
            sampled(_with_responses("aggregate.txt", case, replies, form)),
            "put the responses together",
            earlier,
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

    async def answer(case: Case, stage: EvalContext) -> Run:
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


def normalised(reply: str) -> str:
    """The reply's answer in the spelling in which votes are counted."""
    answer = final_answer(reply, tagged=False) or ""
    return re.sub(r"\s+", " ", answer.casefold()).strip(_WRAPPING)


def _voted(replies: Sequence[str]) -> str | None:
    """The first reply with the most frequent answer; None where there are no replies."""
    votes = Counter(normalised(reply) for reply in replies)
    votes.pop(normalised(UNSURE), None)
    if not votes:
        return replies[0] if replies else None
    winner = votes.most_common(1)[0][0]
    return next(reply for reply in replies if normalised(reply) == winner)


def _number_in(choice: str, count: int) -> int:
    """The place that the choice names by the last number in it; the first where it names none."""
    numbers = [int(found) for found in re.findall(r"\d{1,4}", choice)]
    return numbers[-1] - 1 if numbers and 1 <= numbers[-1] <= count else 0


def _workers(case: Case) -> list[str]:
    """Those who can answer by themselves, in the pool's order."""
    return [worker.name for worker in case.pool if worker.provider != CONDUCTOR_PROVIDER]


async def _asked(transcript: Transcript, worker: str, case: Case) -> str | None:
    question = case.task.question
    return await transcript.ask(worker, Request((user(question),)), question)


async def _draws(
    transcript: Transcript, worker: str, case: Case, seeds: Sequence[int]
) -> list[str]:
    """What the worker replies to the bare question, each time anew; failed draws are left out."""
    question = case.task.question
    request = Request((user(question),), temperature=TEMPERATURE)
    asked = [transcript.ask(worker, replace(request, seed=seed), question) for seed in seeds]
    return [reply for reply in await asyncio.gather(*asked) if reply is not None]


def _seeds(stage: EvalContext, count: int) -> Sequence[int]:
    """As many seeds as there are draws, others in each repeat of a task."""
    return range(stage.repeat * count, (stage.repeat + 1) * count)


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
