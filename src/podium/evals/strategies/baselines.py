"""Strategies without a plan: single workers, votes, Mixture-of-Agents, self-reflection.

All of them first send the bare question, exactly as the engine does, so that they share cached
replies. Workers use the pool's sampling parameters unless several draws of one worker are compared
or a strategy's original says otherwise.
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
from podium.tasks.answers import extract_answer

REVISIONS: Final = 5
"""Revisions of an answer in self-reflection."""

TEMPERATURE: Final = 0.7
"""The temperature of several draws of one worker, and of Mixture-of-Agents."""

MAX_PROPOSAL_TOKENS: Final = 2048
"""Tokens of a response in Mixture-of-Agents with several layers, as in the original."""

DRAWN: Final = "drawn"
"""Stands for a worker drawn at random for each task."""

Form = Literal["system", "message"]
"""The place of the instruction: a system message, or one message with the question. Small models
may understand only one of them, so both are tried."""

FORMS: Final[tuple[Form, ...]] = get_args(Form)

_WRAPPING: Final = " \t\n.,;!*_`\"'“”‘’«»"


def single_worker(worker: str) -> Strategy:
    """Answer by one worker."""

    async def answer(case: Case, context: EvalContext) -> Run:
        transcript = Transcript(f"single:{worker}", case, context)
        return transcript.run(await _ask(transcript, worker, case))

    return answer


async def majority_vote(case: Case, context: EvalContext) -> Run:
    """Answer by the most frequent answer of all workers.

    Departures: the paper takes several samples of one model, which is `self_consistency`; here
    each worker has one vote. Answers are compared without case, spaces, quotes and the final full
    stop; only the text in answer tags counts if there are any. "I do not know." is no vote. Of
    equally frequent answers, that of the first worker in the pool wins.
    """
    transcript = Transcript("majority", case, context)
    return transcript.run(_vote(await _proposals(transcript, case)))


def self_consistency(worker: str, count: int) -> Strategy:
    """One worker answers several times, and its most frequent answer counts: self-consistency
    (Wang et al. 2023), the five-fold consensus of the Conductor's paper.

    Departures: every draw is made at temperature 0.7, with a seed of its own where the provider
    takes one. Votes are counted as in `majority_vote`: the original reads numbers and letters, and
    here two ways of writing one answer are two answers.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        transcript = Transcript(f"majority-{count}:{worker}", case, context)
        return transcript.run(_vote(await _draw(transcript, worker, case, _seeds(context, count))))

    return answer


def best_of_n(worker: str, count: int) -> Strategy:
    """Answer by the best of several answers of one worker, which chooses itself.

    Departures: best-of-N usually has a trained verifier; there is none for every kind of task. If
    the worker names no number, the first answer counts. Draws are made as in `self_consistency`.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        transcript = Transcript(f"best-of-{count}:{worker}", case, context)
        replies = await _draw(transcript, worker, case, _seeds(context, count))
        if len({normalise_answer(reply) for reply in replies}) < 2:
            return transcript.run(replies[0] if replies else None)
        choice = await transcript.ask(
            worker,
            _with_responses("choose.txt", case, replies, "message"),
            "choose the best response",
            tuple(range(count)),
        )
        return transcript.run(replies[_chosen_index(choice or "", len(replies))])

    return answer


def mixture_of_agents(aggregator: str, form: Form, *, layers: int = 1) -> Strategy:
    """Answer by Mixture-of-Agents (Wang et al. 2024): layers of proposers and an aggregator.

    The aggregator is a worker, or `DRAWN` as in the Conductor's paper; the original takes the
    strongest model. With one layer, every worker proposes once and the aggregator answers. With
    three, the original's number, proposers answer again with all first responses; calls then
    have temperature 0.7 and at most 2048 tokens, as in the original.

    Departures: the proposers are all workers of the pool, and the wording of the instruction is
    ours. A proposer that fails is left out; the original sends an empty response. The original
    has the form `system`.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        transcript = Transcript("moa" if layers == 1 else f"moa-{layers}", case, context)
        workers = _workers(case)

        def sampled(request: Request) -> Request:
            if layers == 1:
                return request
            return replace(request, temperature=TEMPERATURE, max_tokens=MAX_PROPOSAL_TOKENS)

        async def layer(request: Request, subtask: str, reads: tuple[int, ...] = ()) -> list[str]:
            asked = [transcript.ask(worker, request, subtask, reads) for worker in workers]
            return [reply for reply in await asyncio.gather(*asked) if reply is not None]

        question = case.task.question
        replies = await layer(sampled(Request(case.task.messages)), question)
        earlier = tuple(range(len(workers)))
        for _ in range(layers - 2):
            shown = sampled(_with_responses("aggregate.txt", case, replies, form))
            replies = await layer(shown, "put the responses together", earlier) or replies
            earlier = tuple(index + len(workers) for index in earlier)
        drawn = context.random(case, "aggregator").choice(workers)
        put_together = await transcript.ask(
            drawn if aggregator == DRAWN else aggregator,
            sampled(_with_responses("aggregate.txt", case, replies, form)),
            "put the responses together",
            earlier,
        )
        return transcript.run(put_together)

    return answer


def self_reflection(worker: str, form: Form) -> Strategy:
    """Answer by one worker that revises its answer up to five times, with all attempts shown.

    Departures: tables show the best single worker in the better of two forms. It ends early once
    the worker repeats its last attempt, as the prompt asks it to.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        transcript = Transcript(f"reflection:{worker}", case, context)
        attempts: list[str] = []
        reply = await _ask(transcript, worker, case)
        while reply is not None:
            repeated = bool(attempts) and normalise_answer(reply) == normalise_answer(attempts[-1])
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


def normalise_answer(reply: str) -> str:
    """Return the reply's answer as votes compare it."""
    answer = extract_answer(reply, tagged=False) or ""
    return re.sub(r"\s+", " ", answer.casefold()).strip(_WRAPPING)


def _vote(replies: Sequence[str]) -> str | None:
    """Return the first reply with the most frequent answer; None without replies."""
    votes = Counter(normalise_answer(reply) for reply in replies)
    votes.pop(normalise_answer(UNSURE), None)
    if not votes:
        return replies[0] if replies else None
    winner = votes.most_common(1)[0][0]
    return next(reply for reply in replies if normalise_answer(reply) == winner)


def _chosen_index(choice: str, count: int) -> int:
    """Return the index that the last number in the choice names; 0 if there is none."""
    numbers = [int(found) for found in re.findall(r"\d{1,4}", choice)]
    return numbers[-1] - 1 if numbers and 1 <= numbers[-1] <= count else 0


def _workers(case: Case) -> list[str]:
    """Return the workers that are no conductors."""
    return [worker.name for worker in case.pool if worker.provider != CONDUCTOR_PROVIDER]


async def _ask(transcript: Transcript, worker: str, case: Case) -> str | None:
    question = case.task.question
    return await transcript.ask(worker, Request(case.task.messages), question)


async def _draw(transcript: Transcript, worker: str, case: Case, seeds: Sequence[int]) -> list[str]:
    """Draw several replies to the bare question; failed draws are left out."""
    question = case.task.question
    request = Request(case.task.messages, temperature=TEMPERATURE)
    asked = [transcript.ask(worker, replace(request, seed=seed), question) for seed in seeds]
    return [reply for reply in await asyncio.gather(*asked) if reply is not None]


def _seeds(context: EvalContext, count: int) -> Sequence[int]:
    """Return a seed per draw, others in each repeat."""
    return range(context.repeat * count, (context.repeat + 1) * count)


async def _proposals(transcript: Transcript, case: Case) -> list[str]:
    """Ask every worker the bare question; failed replies are left out."""
    asked = [_ask(transcript, worker, case) for worker in _workers(case)]
    replies = await asyncio.gather(*asked)
    return [reply for reply in replies if reply is not None]


def _with_responses(prompt: str, case: Case, responses: Sequence[str], form: Form) -> Request:
    """Return the question after an instruction that lists the responses."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(responses, start=1))
    instruction = Template(_text(prompt)).substitute(responses=listed)
    question = case.task.question
    if form == "message":
        return Request((*case.task.history, user(f"{instruction}\n\n{question}")))
    return Request((system(instruction), *case.task.history, user(question)))


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
