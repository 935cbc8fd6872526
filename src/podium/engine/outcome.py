"""How a run ends, read off its rounds: what its answer is, what it comes to, what went wrong.

Nothing is decided here that is not on record already; who performs the run, and stops it, is
`podium.performance`.
"""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.errors import BudgetExhausted, GuardrailBlocked, PodiumError, ReplanDemanded
from podium.core.request import ResponseOptions
from podium.core.run import Round, RunStatus, StepRecord, told_best


def is_answered(rounds: Sequence[Round]) -> bool:
    """Whether the final step of some round is done."""
    return any(round_.final is not None for round_ in rounds)


def is_final(step: StepRecord, rounds: Sequence[Round]) -> bool:
    """Whether that step is the final one of its round, and done."""
    return any(step is round_.final for round_ in rounds)


def answering_step(rounds: Sequence[Round], response_options: ResponseOptions) -> StepRecord | None:
    """The step whose reply is the answer. Where that must fit a schema, only the reply of a final
    step can."""
    best = told_best(rounds)
    if best is None or response_options.schema is None or is_final(best, rounds):
        return best
    return None


def answer_while_waiting(rounds: Sequence[Round]) -> str | None:
    """There is no answer while a run waits, but what its final step said with its calls."""
    round_, last = rounds[-1], rounds[-1].steps[-1]
    is_last = round_.workflow is not None and last.index == len(round_.workflow) - 1
    return (last.reply or None) if is_last and round_.answers else None


def status_at_the_end(
    rounds: Sequence[Round], best: StepRecord | None, stopped_by: PodiumError | None
) -> RunStatus:
    """What was achieved, by a run that no guardrail ended; `best` is the step that answers."""
    if is_answered(rounds):
        return "answered"
    if best is not None:
        return "partial"
    return "exhausted" if isinstance(stopped_by, BudgetExhausted) else "failed"


def what_blocked(
    rounds: Sequence[Round], stopped_by: PodiumError | None, unmet: ReplanDemanded | None
) -> GuardrailBlocked | None:
    """What a guardrail did not let through, where that ends the run: a plan that it demanded and
    did not get, too."""
    if isinstance(stopped_by, GuardrailBlocked):
        return stopped_by
    if unmet is None or is_answered(rounds):
        return None
    why = str(stopped_by) if stopped_by is not None else "no round is left to plan"
    return GuardrailBlocked(unmet.guardrail, unmet.place, f"{unmet.reason}; {why}")


def what_went_wrong(rounds: Sequence[Round], stopped_by: PodiumError | None) -> str | None:
    """The first thing that did not go as planned, in the last round that was carried out."""
    if stopped_by is not None:
        return str(stopped_by)
    carried_out = [round_ for round_ in rounds if round_.workflow is not None]
    if not carried_out:
        return None
    for step in carried_out[-1].steps:
        if step.status != "done":
            return f"step {step.index} ({step.worker}) {step.status}: {step.error}"
    final = carried_out[-1].final
    if final is None:
        return None
    if final.nested and final.nested[-1].error is not None:
        return final.nested[-1].error
    if final.finish == "length":
        return f"{final.answered_by} reached the limit of its output, so the answer is cut off"
    return None
