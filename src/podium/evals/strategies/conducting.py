"""Strategies with a plan (a conductor's, the ideal one, a random one) and the baselines without.

Baselines first send the bare question, exactly as the engine does, so that they share cached
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

from podium._util.lab import UNSURE, lab_extra
from podium.conductors import Conductor, FixedConductor
from podium.core.budget import Ledger, recorded_spending
from podium.core.errors import BudgetExhausted, PodiumError
from podium.core.request import Reply, Request, system, user
from podium.core.run import Round, Run, StepRecord, new_run_id, timestamp
from podium.core.workflow import Step, Workflow
from podium.engine import BudgetedCaller
from podium.engine.runner import Options, Runner
from podium.evals.sample import Case, EvalContext, Strategy
from podium.tasks.answers import final_answer


class CallRecorder:
    """Records the calls that a strategy makes itself, as a run."""

    def __init__(self, strategy: str, case: Case, context: EvalContext) -> None:
        self._strategy = strategy
        self._case = case
        self._context = context
        self._created_at = timestamp()
        self._ledger = Ledger(context.options.budget)
        context.call_policy.bind()
        self._started = context.call_policy.clock()
        self._steps: list[Step] = []
        self._records: dict[int, StepRecord] = {}

    async def ask(
        self, worker: str, request: Request, subtask: str, reads: tuple[int, ...] = ()
    ) -> str | None:
        """Call a worker; return its reply, or None if it fails or the budget is spent.

        `subtask` describes the call, `reads` the earlier calls whose replies the request
        contains; both are only recorded.
        """
        index = len(self._steps)
        self._steps.append(Step(worker, subtask, reads))
        caller = BudgetedCaller(self._context.call_policy, self._ledger, self._started)
        began = self._elapsed_ms
        try:
            async with asyncio.timeout(self._ledger.seconds_left):
                reply = await caller(self._context.workers[worker], request)
        except TimeoutError:
            spent = BudgetExhausted("seconds", self._ledger.budget.seconds or 0.0)
            self._record(index, caller, request, began, spent)
            return None
        except PodiumError as error:
            self._record(index, caller, request, began, error)
            return None
        self._record(index, caller, request, began, reply)
        return reply.text

    def run(self, answer: str | None) -> Run:
        records = tuple(record for _, record in sorted(self._records.items()))
        failed = [record.error for record in records if record.error is not None]
        return Run(
            id=new_run_id(),
            question=self._case.task.question,
            history=self._case.task.history,
            status="failed" if answer is None else "answered",
            pool=self._case.pool,
            conductor=self._strategy,
            created_at=self._created_at,
            budget=self._context.options.budget,
            rounds=(Round(0, Workflow(tuple(self._steps)), records),),
            answer=answer,
            error=failed[0] if failed else None,
            spent=self._ledger.spent,
        )

    @property
    def _elapsed_ms(self) -> float:
        return (self._context.call_policy.clock() - self._started) * 1000

    def _record(
        self,
        index: int,
        caller: BudgetedCaller,
        request: Request,
        began: float,
        end: Reply | PodiumError,
    ) -> None:
        step = self._steps[index]
        done = isinstance(end, Reply)
        self._records[index] = StepRecord(
            round=0,
            index=index,
            worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            status="done" if done else "failed",
            reply=end.text if isinstance(end, Reply) else "",
            error=None if done else str(end),
            started_ms=began,
            finished_ms=self._elapsed_ms,
            attempts=tuple(caller.attempts),
            prompt=request.text,
            answered_by=step.worker if done else "",
        )


IDEAL_SUBTASKS_SHARE: Final = 0.5


def conductor_strategy(conductor: Conductor, *, rounds: int) -> Strategy:
    """Answer by a conductor's plan; with several rounds it accepts the answer or plans again.

    If a task grades plans, nothing is executed. Departures from the paper: steps start as soon
    as what they read is there; a malformed plan is replaced by the fallback at once, while the
    paper asked prompted models again, with twice the tokens; the last step's prompt says that its
    reply is the answer; a step of a second round that reads all also reads the first round.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        runner = Runner(
            conductor,
            tuple(context.workers.values()),
            pool=case.pool,
            call_policy=context.call_policy,
        )
        options = replace(context.options, rounds=rounds, history=case.task.history)
        if case.task.plan_grader is not None:
            return await _plan_only(runner, case, options)
        return await runner.run(case.task.question, options=options)

    return answer


async def _plan_only(runner: Runner, case: Case, options: Options) -> Run:
    run = Run(
        id=new_run_id(),
        question=case.task.question,
        status="interrupted",
        pool=case.pool,
        conductor=runner.conductor.name,
        created_at=timestamp(),
        max_steps=options.max_steps,
        budget=options.budget,
    )
    try:
        round_ = await runner.plan(case.task.question, options=options)
        planned = replace(run, rounds=(round_,))
    except PodiumError as error:
        return replace(run, status="failed", error=str(error))
    return replace(planned, spent=recorded_spending(planned))


async def ideal_plan(case: Case, context: EvalContext) -> Run:
    """Answer by the ideal plan, the upper bound of every conductor. Only études have one."""
    assert case.ideal is not None, "check_strategy rejects tasks without an ideal plan"
    return await execute_plan("ideal", case.ideal, case, context)


async def random_plan(case: Case, context: EvalContext) -> Run:
    """Answer by a valid plan with random workers and random access.

    Half of the plans use the ideal plan's subtasks if there is one; in all others one worker
    gets the whole question.
    """
    rng = context.random(case, "plan")
    subtasks = [case.task.question]
    if case.ideal is not None and rng.random() < IDEAL_SUBTASKS_SHARE:
        subtasks = [step.subtask for step in case.ideal.steps]
    with lab_extra():
        from podium_lab.etudes.plan_examples import random_access
    access = random_access(rng, len(subtasks))
    steps = tuple(
        Step(rng.choice(case.pool.names), subtask, reads)
        for subtask, reads in zip(subtasks, access, strict=True)
    )
    return await execute_plan("random", Workflow(steps), case, context)


async def execute_plan(name: str, workflow: Workflow, case: Case, context: EvalContext) -> Run:
    """Execute that plan, however many steps it has."""
    longest = max(context.options.max_steps, len(workflow))
    widened = replace(context, options=replace(context.options, max_steps=longest))
    return await conductor_strategy(FixedConductor(workflow, name=name), rounds=1)(case, widened)


MAX_REVISIONS: Final = 5
TEMPERATURE: Final = 0.7
"""The temperature of several draws of one worker, and of Mixture-of-Agents."""

MAX_PROPOSAL_TOKENS: Final = 2048
"""Tokens of a response in Mixture-of-Agents with several layers, as in the original."""

RANDOM_WORKER: Final = "drawn"
"""Stands for a worker drawn at random for each task."""

Placement = Literal["system", "message"]
"""Where the instruction stands: in a system message, or in one message with the question. Small
models may understand only one of them, so both are tried."""

PLACEMENTS: Final[tuple[Placement, ...]] = get_args(Placement)

_WRAPPING: Final = " \t\n.,;!*_`\"'“”‘’«»"


def single_worker(worker: str) -> Strategy:
    async def answer(case: Case, context: EvalContext) -> Run:
        recorder = CallRecorder(f"single:{worker}", case, context)
        return recorder.run(await _ask(recorder, worker, case))

    return answer


async def majority_vote(case: Case, context: EvalContext) -> Run:
    """Answer by the most frequent answer of all workers.

    Departures: the paper takes several samples of one model, which is `self_consistency`; here
    each worker has one vote. Answers are compared without case, spaces, quotes and the final full
    stop; only the text in answer tags counts if there are any. "I do not know." is no vote. Of
    equally frequent answers, that of the first worker in the pool wins.
    """
    recorder = CallRecorder("majority", case, context)
    return recorder.run(_vote(await _proposals(recorder, case)))


def self_consistency(worker: str, count: int) -> Strategy:
    """One worker answers several times, and its most frequent answer counts: self-consistency
    (Wang et al. 2023), the five-fold consensus of the Conductor's paper.

    Departures: every draw is made at temperature 0.7, with a seed of its own where the provider
    takes one. Votes are counted as in `majority_vote`: the original reads numbers and letters, and
    here two ways of writing one answer are two answers.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        recorder = CallRecorder(f"majority-{count}:{worker}", case, context)
        return recorder.run(
            _vote(await _sample_replies(recorder, worker, case, _seeds(context, count)))
        )

    return answer


def best_of_n(worker: str, count: int) -> Strategy:
    """Answer by the best of several answers of one worker, which chooses itself.

    Departures: best-of-N usually has a trained verifier; there is none for every kind of task. If
    the worker names no number, the first answer counts. Draws are made as in `self_consistency`.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        recorder = CallRecorder(f"best-of-{count}:{worker}", case, context)
        replies = await _sample_replies(recorder, worker, case, _seeds(context, count))
        if len({normalise_answer(reply) for reply in replies}) < 2:
            return recorder.run(replies[0] if replies else None)
        choice = await recorder.ask(
            worker,
            _with_responses("choose.txt", case, replies, "message"),
            "choose the best response",
            tuple(range(count)),
        )
        return recorder.run(replies[_chosen_index(choice or "", len(replies))])

    return answer


def mixture_of_agents(aggregator: str, placement: Placement, *, layers: int = 1) -> Strategy:
    """Answer by Mixture-of-Agents (Wang et al. 2024): layers of proposers and an aggregator.

    The aggregator is a worker, or `RANDOM_WORKER` as in the Conductor's paper; the original takes
    the strongest model. With one layer, every worker proposes once and the aggregator answers. With
    three, the original's number, proposers answer again with all first responses; calls then
    have temperature 0.7 and at most 2048 tokens, as in the original.

    Departures: the proposers are all workers of the pool, and the wording of the instruction is
    ours. A proposer that fails is left out; the original sends an empty response. The original
    places it in a system message.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        recorder = CallRecorder("moa" if layers == 1 else f"moa-{layers}", case, context)
        workers = _workers(case)

        def sampled(request: Request) -> Request:
            if layers == 1:
                return request
            return replace(request, temperature=TEMPERATURE, max_tokens=MAX_PROPOSAL_TOKENS)

        async def layer(request: Request, subtask: str, reads: tuple[int, ...] = ()) -> list[str]:
            calls = [recorder.ask(worker, request, subtask, reads) for worker in workers]
            return [reply for reply in await asyncio.gather(*calls) if reply is not None]

        question = case.task.question
        replies = await layer(sampled(Request(case.task.messages)), question)
        earlier = tuple(range(len(workers)))
        for _ in range(layers - 2):
            shown = sampled(_with_responses("aggregate.txt", case, replies, placement))
            replies = await layer(shown, "put the responses together", earlier) or replies
            earlier = tuple(index + len(workers) for index in earlier)
        drawn = context.random(case, "aggregator").choice(workers)
        put_together = await recorder.ask(
            drawn if aggregator == RANDOM_WORKER else aggregator,
            sampled(_with_responses("aggregate.txt", case, replies, placement)),
            "put the responses together",
            earlier,
        )
        return recorder.run(put_together)

    return answer


def self_reflection(worker: str, placement: Placement) -> Strategy:
    """Answer by one worker that revises its answer up to five times, with all attempts shown.

    Departures: tables show the best single worker in the better of two forms. It ends early once
    the worker repeats its last attempt, as the prompt asks it to.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        recorder = CallRecorder(f"reflection:{worker}", case, context)
        attempts: list[str] = []
        reply = await _ask(recorder, worker, case)
        while reply is not None:
            repeated = bool(attempts) and normalise_answer(reply) == normalise_answer(attempts[-1])
            attempts.append(reply)
            if repeated or len(attempts) > MAX_REVISIONS:
                break
            reply = await recorder.ask(
                worker,
                _with_responses("reflect.txt", case, attempts, placement),
                "revise the answer",
                tuple(range(len(attempts))),
            )
        return recorder.run(attempts[-1] if attempts else None)

    return answer


def normalise_answer(reply: str) -> str:
    answer = final_answer(reply, tagged=False) or ""
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
    return [worker.name for worker in case.pool if worker.is_model]


async def _ask(recorder: CallRecorder, worker: str, case: Case) -> str | None:
    question = case.task.question
    return await recorder.ask(worker, Request(case.task.messages), question)


async def _sample_replies(
    recorder: CallRecorder, worker: str, case: Case, seeds: Sequence[int]
) -> list[str]:
    """Draw several replies to the bare question; failed draws are left out."""
    question = case.task.question
    request = Request(case.task.messages, temperature=TEMPERATURE)
    calls = [recorder.ask(worker, replace(request, seed=seed), question) for seed in seeds]
    return [reply for reply in await asyncio.gather(*calls) if reply is not None]


def _seeds(context: EvalContext, count: int) -> Sequence[int]:
    return range(context.repeat * count, (context.repeat + 1) * count)


async def _proposals(recorder: CallRecorder, case: Case) -> list[str]:
    """Ask every worker the bare question; failed replies are left out."""
    calls = [_ask(recorder, worker, case) for worker in _workers(case)]
    replies = await asyncio.gather(*calls)
    return [reply for reply in replies if reply is not None]


def _with_responses(
    prompt: str, case: Case, responses: Sequence[str], placement: Placement
) -> Request:
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(responses, start=1))
    instruction = Template(_text(prompt)).substitute(responses=listed)
    question = case.task.question
    if placement == "message":
        return Request((*case.task.history, user(f"{instruction}\n\n{question}")))
    return Request((system(instruction), *case.task.history, user(question)))


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
