"""The outcome of steps and of a run, read from what is recorded of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podium.core.answers import short_answer
from podium.core.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    GuardrailBlocked,
    PodiumError,
    PromptTooLong,
    ReplanRequested,
    RequestRefused,
    WorkerError,
)
from podium.core.request import ResponseOptions
from podium.core.run import Round, RunStatus, StepRecord, visible_answer_step
from podium.core.workflow import Condition


class Outcome(NamedTuple):
    """The fields of a run that say how it ended."""

    status: RunStatus
    answer: str | None
    error: str | None
    too_long: bool
    refused: bool
    error_status: int | None
    retry_after: float | None
    spent_cap: str
    blocked_by: str


def outcome_of(
    rounds: Sequence[Round],
    options: ResponseOptions,
    *,
    status: RunStatus | None,
    stopped_by: PodiumError | None,
    objection: ReplanRequested | None,
    failures: Sequence[WorkerError],
    checks_answers: bool,
    checked_answer: str | None,
) -> Outcome:
    """Return how a run ended; without a status, decide it.

    `failures` are the workers' errors, the one that counts first. If answers are checked, one that
    is not a final step's reply is the `checked_answer`.
    """
    best, blocked = answer_step(rounds, options), blocking_error(rounds, stopped_by, objection)
    if status is None:
        if blocked is not None:
            status, best = "failed", None
        else:
            status = end_status(rounds, best, stopped_by)
    answer = best.reply if best is not None else None
    if best is not None and checks_answers and not is_final(best, rounds):
        answer = checked_answer
    failure = failures[0] if failures and status in ("failed", "partial") else None
    return Outcome(
        status=status,
        answer=answer,
        error=str(blocked) if blocked is not None else first_error(rounds, stopped_by),
        too_long=status == "failed" and any(isinstance(one, PromptTooLong) for one in failures),
        refused=any(isinstance(one, AuthenticationFailed | RequestRefused) for one in failures),
        error_status=failure.status if failure is not None else None,
        retry_after=failure.retry_after if failure is not None else None,
        spent_cap=stopped_by.cap if isinstance(stopped_by, BudgetExhausted) else "",
        blocked_by=blocked.guardrail if blocked is not None and status == "failed" else "",
    )


def is_met(condition: Condition, records: Mapping[int, StepRecord]) -> bool:
    """True if the steps that the condition names failed or, where it says so, differ."""
    named = [records[index] for index in condition.steps]
    if any(record.has_failed for record in named):
        return True
    if condition.predicate == "failed":
        return False
    return len({short_answer(record.reply) for record in named if record.reply}) > 1


def final_steps(rounds: Sequence[Round]) -> list[StepRecord]:
    return [step for round_ in rounds if (step := round_.final) is not None]


def is_final(step: StepRecord, rounds: Sequence[Round]) -> bool:
    return any(step is final for final in final_steps(rounds))


def answer_step(rounds: Sequence[Round], options: ResponseOptions) -> StepRecord | None:
    """Return the step whose reply is the answer; with a schema, only a final step can be."""
    if finals := final_steps(rounds):
        return finals[-1]
    return visible_answer_step(rounds) if options.schema is None else None


def waiting_answer(rounds: Sequence[Round]) -> str | None:
    """Return the text that came with the final step's tool calls while a run waits."""
    round_, last = rounds[-1], rounds[-1].steps[-1]
    is_final = round_.workflow is not None and last.index >= round_.workflow.main
    return (last.reply or None) if is_final and round_.answers else None


def end_status(
    rounds: Sequence[Round], best: StepRecord | None, stopped_by: PodiumError | None
) -> RunStatus:
    if final_steps(rounds):
        return "answered"
    if best is not None:
        return "partial"
    return "exhausted" if isinstance(stopped_by, BudgetExhausted) else "failed"


def blocking_error(
    rounds: Sequence[Round], stopped_by: PodiumError | None, unmet: ReplanRequested | None
) -> GuardrailBlocked | None:
    if isinstance(stopped_by, GuardrailBlocked):
        return stopped_by
    if unmet is None or final_steps(rounds):
        return None
    why = str(stopped_by) if stopped_by is not None else "no round is left to plan"
    return GuardrailBlocked(unmet.guardrail, unmet.stage, f"{unmet.reason}; {why}")


def first_error(rounds: Sequence[Round], stopped_by: PodiumError | None) -> str | None:
    """Return what went wrong in the last executed round: in its final step, else first."""
    if stopped_by is not None:
        return str(stopped_by)
    executed = [round_ for round_ in rounds if round_.workflow is not None]
    if not executed:
        return None
    unfinished = [step for step in executed[-1].steps if step.status != "done"]
    unfinished = [step for step in unfinished if not step.is_unneeded]
    if unfinished:
        last = unfinished[-1]
        is_final = executed[-1].workflow is not None and last.index + 1 == len(
            executed[-1].workflow
        )
        step = last if is_final and last.status == "failed" else unfinished[0]
        return f"step {step.index} ({step.worker}) {step.status}: {step.error}"
    finals = final_steps(executed[-1:])
    if not finals:
        return None
    final = finals[0]
    if final.nested and final.nested[-1].error is not None:
        return final.nested[-1].error
    if final.finish == "length":
        return f"{final.answered_by} reached its output limit, so the answer is cut off"
    return None
