"""What guardrails make of what comes from whoever asks, and of what goes back: the question that a
run begins with, the results of tools that it goes on with, and its answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from podium.core.errors import GuardrailBlocked
from podium.core.request import Part, ResponseOptions, Text, ToolCall, ToolResult
from podium.core.run import Round, Run, StepRecord, place_of
from podium.core.run_records import Check
from podium.core.workflow import Workflow
from podium.engine.guardrails.base import GuardrailInput, Source
from podium.engine.guardrails.chain import Guard, Keep
from podium.engine.guardrails.redaction import MARK


class Inspector:
    """Looks at the replies of one round. `answers` says whether final ones are the run's answer,
    which those of a nested run are not. `tell` hears of all that is done, as it happens."""

    def __init__(
        self,
        guard: Guard,
        run_id: str,
        question: str,
        round_: int,
        previous: Sequence[Round],
        *,
        answers: bool,
        tell: Callable[[Check], None],
    ) -> None:
        self._guard = guard
        self._run_id = run_id
        self._question = question
        self._round = round_
        self._previous = previous
        self._tell = tell
        self.answers = answers and guard.looks_at("answer")

    async def reply(self, text: str, step: int, worker: str, keep: Keep) -> str:
        """A worker's reply, or what it calls a tool with."""
        checked = GuardrailInput(
            place="reply",
            text=text,
            run_id=self._run_id,
            question=self._question,
            step=step,
            worker=worker,
        )
        return await self._guard.look(checked, self._both(keep), self._round)

    async def answer(
        self,
        text: str,
        step: int | None,
        worker: str,
        others: Sequence[StepRecord],
        keep: Keep,
    ) -> str:
        """The final reply, or what else is to be the answer."""
        checked = GuardrailInput(
            place="answer",
            text=text,
            run_id=self._run_id,
            question=self._question,
            step=step,
            worker=worker,
            sources=self._sources(others),
        )
        return await self._guard.look(checked, self._both(keep), self._round)

    def _both(self, keep: Keep) -> Keep:
        def kept(check: Check) -> None:
            keep(check)
            self._tell(check)

        return kept

    def _sources(self, others: Sequence[StepRecord]) -> tuple[Source, ...]:
        """What the answer may have been made from: this round's replies, and those before."""
        earlier = [
            Source(place_of(step, round_), step.subtask, step.reply)
            for round_ in self._previous
            for step in round_.steps
            if step.status == "done"
        ]
        now = [
            Source(str(step.index), step.subtask, step.reply)
            for step in others
            if step.status == "done"
        ]
        return (*earlier, *now)


def restorer(guard: Guard, response_options: ResponseOptions) -> Callable[[str], str] | None:
    """What makes of a text the one that whoever asked is to have, where anything can be put back.
    What must be JSON stays JSON: a value in it is quoted as one."""
    if not guard.restores:
        return None
    if response_options.schema is None:
        return guard.restore
    return lambda text: in_json(guard, text)


def restored(run: Run, guard: Guard) -> Run:
    """The run as whoever asked is to have it: its answer, and what it calls their tools with. It is
    not the run that is kept."""
    restore = restorer(guard, run.response_options)
    if restore is None:
        return run
    if run.answer is not None:
        run = replace(run, answer=restore(run.answer))
    return with_waiting_calls(run, lambda text: in_json(guard, text))


def with_waiting_calls(run: Run, change: Callable[[str], str]) -> Run:
    """The run with what it calls the client's tools with changed, where it waits for them."""
    if not run.left_waiting:
        return run

    def called(part: Part) -> Part:
        return (
            replace(part, arguments=change(part.arguments)) if isinstance(part, ToolCall) else part
        )

    def turned(step: StepRecord) -> StepRecord:
        if not step.waiting_for:
            return step
        turns = tuple(replace(turn, parts=tuple(map(called, turn.parts))) for turn in step.turns)
        nested = tuple(with_waiting_calls(each, change) for each in step.nested)
        return replace(step, turns=turns, nested=nested)

    last = run.rounds[-1]
    rounds = (*run.rounds[:-1], replace(last, steps=tuple(map(turned, last.steps))))
    return replace(run, rounds=rounds)


def in_json(guard: Guard, text: str) -> str:
    """The text, which is JSON, with what was taken out of the question quoted in it."""
    return MARK.sub(lambda mark: json.dumps(guard.restore(mark[0]))[1:-1], text)


async def let_in(
    run: Run, guard: Guard, workflow: Workflow | None = None
) -> tuple[Run, Workflow | None, GuardrailBlocked | None]:
    """The run with its question as guardrails left it, and the workflow that came with it, if one
    did; of what they blocked, nothing is kept."""
    checks: list[Check] = []
    run = replace(run, guardrails=guard.names)
    try:
        question, history = await guard.question(run.id, run.question, run.history, checks.append)
        if workflow is not None:
            checked = GuardrailInput(place="question", text="", run_id=run.id, question=question)
            workflow = await guard.workflow(checked, workflow, checks.append)
    except GuardrailBlocked as error:
        withheld = f"[withheld: blocked by {error.guardrail}]"
        kept = replace(run, question=withheld, history=(), images=(), checks=tuple(checks))
        return kept, None, error
    run = replace(run, question=question, history=history, checks=tuple(checks))
    return run, workflow, None


async def let_in_results(
    run: Run, results: Sequence[ToolResult], guard: Guard
) -> tuple[Run, Sequence[ToolResult], GuardrailBlocked | None]:
    """The results of the client's tools as guardrails left them: they come from whoever asked, as
    the question did. What they did is on the run."""
    guard.recall(list(_texts(run)))
    run = with_waiting_calls(run, guard.marked)
    checks = list(run.checks)
    let_in: list[ToolResult] = []
    blocked = None
    try:
        for result in results:
            checked = GuardrailInput(
                place="question", text=result.text, run_id=run.id, question=run.question
            )
            let_in.append(replace(result, text=await guard.look(checked, checks.append)))
    except GuardrailBlocked as error:
        blocked = error
    return replace(run, checks=tuple(checks)), let_in, blocked


def _texts(run: Run) -> Iterator[str]:
    """All that was said in the run, which may hold marks of guardrails."""
    yield run.question
    for message in run.history:
        yield message.text
    for step in run.steps:
        yield step.prompt
        yield step.reply
        for part in (part for turn in step.turns for part in turn.parts):
            match part:
                case Text() | ToolResult():
                    yield part.text
                case ToolCall():
                    yield part.arguments
