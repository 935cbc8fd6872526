"""Guardrails at the borders of a run: questions, tool results, replies and answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from podium.core.errors import GuardrailBlocked
from podium.core.request import Part, ResponseOptions, Text, ToolCall, ToolResult
from podium.core.run import GuardrailCheck, Round, Run, StepRecord, step_label
from podium.core.workflow import Workflow
from podium.engine.guardrails.base import GuardrailInput, Source
from podium.engine.guardrails.chain import GuardrailChain, OnCheck
from podium.engine.guardrails.redaction import PLACEHOLDER


class ReplyChecker:
    """Check the replies of one round.

    `checks_answers` is False in nested runs, whose final replies are not the answer. `emit` gets
    every check as it happens. `check` returns the text as guardrails leave it, hands each check to
    `on_check`, and raises `GuardrailBlocked`.
    """

    def __init__(
        self,
        chain: GuardrailChain,
        run: Run,
        round_: int,
        previous: Sequence[Round],
        *,
        checks_answers: bool,
        emit: Callable[[GuardrailCheck], None],
    ) -> None:
        self._chain = chain
        self._run = run
        self._round = round_
        self._previous = previous
        self._emit = emit
        self.checks_answers = checks_answers and chain.has_stage("answer")

    async def check(
        self,
        stage: Literal["reply", "answer"],
        text: str,
        step: int | None,
        worker: str,
        on_check: OnCheck,
        others: Sequence[StepRecord] = (),
    ) -> str:
        """Check a reply, the arguments of a tool call, or the answer.

        `others` are the steps that ended before the answer.
        """
        item = GuardrailInput(
            stage=stage,
            text=text,
            run_id=self._run.id,
            question=self._run.question,
            step=step,
            worker=worker,
            sources=self._sources(others) if stage == "answer" else (),
        )

        def report(check: GuardrailCheck) -> None:
            on_check(check)
            self._emit(check)

        return await self._chain.check(item, report, self._round)

    def _sources(self, others: Sequence[StepRecord]) -> tuple[Source, ...]:
        """Return the replies that the answer may rest on: earlier rounds' and this one's."""
        earlier = [
            Source(step_label(step, round_), step.subtask, step.reply)
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


async def admit_question(
    run: Run, chain: GuardrailChain, workflow: Workflow | None = None
) -> tuple[Run, Workflow | None, GuardrailBlocked | None]:
    """Check the question, the conversation and a supplied workflow before the run starts.

    Nothing is kept of a blocked question.
    """
    checks: list[GuardrailCheck] = []
    run = replace(run, guardrails=chain.names)
    try:
        question, history = await chain.check_question(
            run.id, run.question, run.history, checks.append
        )
        item = GuardrailInput(stage="question", text="", run_id=run.id, question=question)
        trailing = await chain.check_messages(item, run.trailing_messages, checks.append)
        if workflow is not None:
            workflow = await chain.check_workflow(item, workflow, checks.append)
    except GuardrailBlocked as error:
        withheld = f"[withheld: blocked by {error.guardrail}]"
        kept = replace(
            run,
            question=withheld,
            history=(),
            trailing_messages=(),
            images=(),
            guardrail_checks=tuple(checks),
        )
        return kept, None, error
    run = replace(
        run,
        question=question,
        history=history,
        trailing_messages=trailing,
        guardrail_checks=tuple(checks),
    )
    return run, workflow, None


async def admit_results(
    run: Run, results: Sequence[ToolResult], chain: GuardrailChain
) -> tuple[Run, Sequence[ToolResult], GuardrailBlocked | None]:
    """Check the client's tool results as the question was; the checks are kept on the run."""
    chain.observe(list(_texts(run)))
    run = _map_waiting_calls(run, chain.redact)
    checks = list(run.guardrail_checks)
    admitted: list[ToolResult] = []
    blocked = None
    try:
        for result in results:
            item = GuardrailInput(
                stage="question", text=result.text, run_id=run.id, question=run.question
            )
            admitted.append(replace(result, text=await chain.check(item, checks.append)))
    except GuardrailBlocked as error:
        blocked = error
    return replace(run, guardrail_checks=tuple(checks)), admitted, blocked


def restorer(chain: GuardrailChain, options: ResponseOptions) -> Callable[[str], str] | None:
    """Return a function that restores redacted values for the asker; None if none can be.

    Where the answer must be JSON, values are quoted as JSON.
    """
    if not chain.restores:
        return None
    if options.schema is None:
        return chain.restore
    return lambda text: restore_in_json(chain, text)


def restore_run(run: Run, chain: GuardrailChain) -> Run:
    """Return the run for the asker: answer and pending tool calls restored. It is not stored."""
    restore = restorer(chain, run.response_options)
    if restore is None:
        return run
    if run.answer is not None:
        run = replace(run, answer=restore(run.answer))
    return _map_waiting_calls(run, lambda text: restore_in_json(chain, text))


def restore_in_json(chain: GuardrailChain, text: str) -> str:
    """Restore redacted values in JSON, quoted as JSON."""
    return PLACEHOLDER.sub(lambda match: json.dumps(chain.restore(match[0]))[1:-1], text)


def _map_waiting_calls(run: Run, change: Callable[[str], str]) -> Run:
    """Return the run with `change` applied to the arguments of pending tool calls."""
    if not run.pending_tool_calls:
        return run

    def map_part(part: Part) -> Part:
        if isinstance(part, ToolCall):
            return replace(part, arguments=change(part.arguments))
        return part

    def map_step(step: StepRecord) -> StepRecord:
        if not step.waiting_for:
            return step
        turns = tuple(replace(turn, parts=tuple(map(map_part, turn.parts))) for turn in step.turns)
        nested = tuple(_map_waiting_calls(item, change) for item in step.nested)
        return replace(step, turns=turns, nested=nested)

    last = run.rounds[-1]
    rounds = (*run.rounds[:-1], replace(last, steps=tuple(map(map_step, last.steps))))
    return replace(run, rounds=rounds)


def _texts(run: Run) -> Iterator[str]:
    yield run.question
    for message in (*run.history, *run.trailing_messages):
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
