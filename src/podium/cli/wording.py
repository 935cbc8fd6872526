"""How plans, steps and runs are put into words, for the drawing and for plain lines alike."""

from __future__ import annotations

from typing import Final

from podium.attempt import total_usage
from podium.check import Check
from podium.cli.text import counted, money, reads, seconds, tokens_of
from podium.run import Round, Run, StepRecord
from podium.store import Feedback
from podium.workflow import Step


def plan_line(run: Run, round_: Round) -> str:
    """What the conductor decided in a round."""
    which = f"round {round_.index + 1}" if run.max_rounds > 1 or round_.index else "plan"
    if round_.accepted:
        return f"{which} by {run.conductor}: the answer stands"
    if round_.workflow is None:
        return f"{which} by {run.conductor}: no plan was made"
    if round_.role is not None:
        return f"{which} by {run.conductor}: a turn as {round_.role}"
    steps = counted(len(round_.workflow), "step")
    return f"{which} by {run.conductor}: {steps}, {round_.workflow.shape}"


def step_line(index: int, step: Step) -> str:
    """A step of a plan."""
    return f"{index} {step.worker}: {step.subtask} ({reads(step.access)})"


def took(record: StepRecord) -> str:
    """What a step that has ended used."""
    parts = [tokens_of(record.usage), money(record.cost_usd)]
    parts.append(seconds((record.finished_ms - record.started_ms) / 1000))
    if record.answered_by not in ("", record.worker):
        parts.append(f"by its fallback {record.answered_by}")
    return ", ".join(parts)


def ending(record: StepRecord) -> str:
    """How a step ended, and what it used."""
    if record.status == "done":
        return f"done, {took(record)}"
    return f"{record.status}: {record.error}"


def check_line(check: Check) -> str:
    """What a guardrail did, and what its verifier took."""
    why = f": {check.reason}" if check.reason else ""
    by = ""
    if check.attempts:
        used = tokens_of(total_usage(iter(check.attempts)))
        by = f" (asked {check.attempts[-1].worker}: {used})"
    return f"the guardrail {check.guardrail} {check.deed} the {check.place}{why}{by}"


CUT_OFF: Final = "cut off"
"""What a run is, in place of `running`, whose process is gone."""


def total(run: Run, *, cut_off: bool = False) -> str:
    """How a run ended and what it used, the conductor's part shown apart."""
    planning = run.orchestration.total_tokens
    used = tokens_of(run.usage)
    if planning and run.usage.total_tokens:
        used += f" ({planning:,} of them for planning)"
    parts = (counted(len([*run.calls]), "call"), used, money(run.cost_usd))
    status = CUT_OFF if cut_off else run.status
    return f"{status}: {', '.join(parts)}, {seconds(run.spent.seconds)}, {run.id}"


def thought(given: Feedback) -> str:
    """What was thought of an answer, by whom where it was a grader, and what would be right."""
    by = f" by {given.grader}" if given.grader else ""
    said = f": {given.comment}" if given.comment else ""
    right = f"; right would be: {given.answer}" if given.answer else ""
    return f"{given.score:g}{by}{said}{right}"
