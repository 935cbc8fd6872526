"""What a client gets to know of a run: the answer that it came to, or why it is none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from podium.check import Check
from podium.request import Thinking, ToolResult
from podium.resumption import repeats
from podium.run import Run
from podium.server.answers.conversation import outside, question_of
from podium.server.dialects.base import Answer, Asked
from podium.server.names import NAME_OF
from podium.server.records.bill import Bill
from podium.server.refusal import Refusal, too_long


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What the client gets to know, and the run behind it, where there is one; else what guardrails
    did."""

    answer: Answer
    run: Run | None = None
    checks: tuple[Check, ...] = ()


def answered(asked: Asked, run: Run, bill: Bill) -> Answered:
    """The answer of a run that has ended, with what this request came to; raises `Refusal` where
    it is none."""
    failure = failure_of(run)
    if failure is not None:
        raise failure
    answer = replace(
        answer_of(run, asked.model), usage=bill.usage, orchestration=bill.orchestration
    )
    return Answered(answer=answer, run=run)


def repeated(asked: Asked, run: Run) -> Answered:
    """The answer of a run that another request began, with all that the run used; raises `Refusal`
    where it is none."""
    failure = failure_of(run)
    if failure is not None:
        raise failure
    return Answered(answer=answer_of(run, asked.model), run=run)


def retold(run: Run) -> tuple[Asked, Answer]:
    """What was asked and answered in a run on record, for telling it again."""
    name = NAME_OF[run.tier]
    asked = Asked(model=name, messages=(*run.history, question_of(run)), terms=run.terms)
    return asked, answer_of(run, name)


def answer_of(run: Run, model: str) -> Answer:
    """What a client gets to know of a run, with all that it used."""
    return Answer(
        id=run.id,
        model=model,
        created=int(datetime.fromisoformat(run.created_at).timestamp()),
        text=run.answer or "",
        thinking=_thinking(run),
        tool_calls=outside(run.id, run.waiting_for) if run.status == "waiting" else (),
        finish=run.final_finish,
        stop_sequence=run.final_stop_sequence,
        usage=run.usage,
        orchestration=run.orchestration,
    )


def _thinking(run: Run) -> tuple[Thinking, ...]:
    final = run.rounds[-1].final if run.rounds else None
    return final.thinking if final is not None else ()


def failure_of(run: Run) -> Refusal | None:
    """Why a run that has ended is no answer; None where it is one, or waits for tools. That a
    guardrail blocked it is told as an answer that was refused, which every dialect has words
    for."""
    if run.blocked_by:
        return None
    if run.status == "exhausted":
        return Refusal("out_of_budget", run.error or "the budget of this run is spent")
    if run.too_long:
        return too_long(run.error or "no worker could take it")
    if _is_broken(run) or (run.answer is None and run.status != "waiting"):
        return Refusal("upstream", run.error or "no worker answered")
    return None


def stands(run: Run, results: tuple[ToolResult, ...]) -> bool:
    """Whether the answer to these results has been given already, or was blocked for good."""
    settled = run.status in ("answered", "partial", "waiting") and not _is_broken(run)
    return (settled or bool(run.blocked_by)) and repeats(run, results)


def _is_broken(run: Run) -> bool:
    """Whether a worker failed in the middle of what is told as the answer."""
    return run.status == "partial" and any(
        step.status == "failed" and step.reply for step in run.rounds[-1].steps
    )
