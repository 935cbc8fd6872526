"""The events of a run, as they happen.

Command line, server and tests all watch runs through these. A nested run's events come through its
parent's stream, under its own `run_id`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Final

from podium.core.request import Delta, ToolCall, ToolResult
from podium.core.run import GuardrailCheck, Round, Run, StepRecord
from podium.core.workflow import Workflow

log = logging.getLogger("podium")


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run started or was resumed.

    `parent` is the enclosing run and its step. `restore` puts redacted values back into a text; it
    is for the asker alone.
    """

    run: Run
    parent: tuple[str, int] | None = None
    restore: Callable[[str], str] | None = field(default=None, repr=False, compare=False)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.id


@dataclass(frozen=True, slots=True)
class RoundPlanned:
    """The conductor wrote a workflow, or accepted the last answer (`workflow` is None)."""

    run_id: str
    round: Round

    @property
    def workflow(self) -> Workflow | None:
        """The workflow to execute."""
        return self.round.workflow


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step's inputs are done and its worker is asked with this prompt."""

    run_id: str
    round: int
    index: int
    worker: str
    prompt: str


@dataclass(frozen=True, slots=True)
class StepRetried:
    """A call failed and will be made again, perhaps by the fallback `worker`.

    `sent_chars` is how many characters of the reply were already sent as deltas. They stand: the
    next call continues after them. Thinking sent so far is void.
    """

    run_id: str
    round: int
    index: int
    worker: str
    error: str
    wait_seconds: float
    sent_chars: int = 0


@dataclass(frozen=True, slots=True)
class StepDelta:
    """A piece of the final step's reply, or of its thinking.

    A reply that must fit a schema comes as one piece. Text before tool calls comes as pieces too.
    Every round has its own final step and reply.
    """

    run_id: str
    round: int
    index: int
    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a call of the client's tools, by the final step. A call may also come only whole,
    with the run that waits for its result."""

    run_id: str
    round: int
    index: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """One of Podium's own tools was called inside a step."""

    run_id: str
    round: int
    index: int
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class GuardrailActed:
    """A guardrail checked a reply or an answer; checks of the question are on `RunStarted.run`."""

    run_id: str
    check: GuardrailCheck


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A running step, or the run nested in it, made progress that a resume would continue from."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step ended: done, failed, skipped or cancelled; or it waits for tool results."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Every step of a round has ended, and none waits."""

    run_id: str
    round: Round


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run ended, or waits and can be resumed."""

    run: Run

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.id


Event = (
    RunStarted
    | RoundPlanned
    | StepStarted
    | StepRetried
    | StepDelta
    | ToolCallDelta
    | ToolUsed
    | GuardrailActed
    | StepProgress
    | StepDone
    | RoundDone
    | RunDone
)

Emit = Callable[[Event], None]
"""Takes events. It must return at once: a slow listener keeps a queue."""


def fan_out(*listeners: Emit | None) -> Emit:
    """Return an `Emit` that calls each listener; one that fails is dropped."""
    active = [listener for listener in listeners if listener is not None]

    def emit(event: Event) -> None:
        for listener in tuple(active):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a listener is user code
                active.remove(listener)
                log.warning("a listener of this run failed: %r", error)

    return emit


MAX_SUBTASK: Final = 160
"""Characters of a subtask in a line of progress."""


def describe_progress(event: Event) -> str | None:
    """Return a line of progress for people; None for events that they need not see."""
    match event:
        case RoundPlanned(round=round_) if round_.workflow is not None and round_.role is not None:
            step = round_.workflow.steps[-1]
            return f"Turn {round_.index + 1}: {step.worker} is the {round_.role}."
        case RoundPlanned(round=round_) if round_.workflow is not None:
            again = "" if round_.index == 0 else f"Round {round_.index + 1}: "
            return again + _plan_lines(round_.workflow)
        case RoundPlanned():
            return "The answer was accepted."
        case StepStarted(index=index, worker=worker):
            return f"Step {index + 1}: calling {worker}."
        case StepRetried(index=index, worker=worker):
            return f"Step {index + 1}: a call failed; retrying {worker}."
        case GuardrailActed(check=check):
            return f"Guardrail {check.guardrail} checked the {check.stage}: {check.action}."
        case StepDone(step=step):
            ended = "is done" if step.status == "done" else f"ended: {step.status}"
            return f"Step {step.index + 1}: {step.answered_by or step.worker} {ended}."
        case _:
            return None


def _plan_lines(workflow: Workflow) -> str:
    count = "one step" if len(workflow) == 1 else f"{len(workflow)} steps"
    workers = ", ".join(dict.fromkeys(step.worker for step in workflow.steps))
    lines = [f"Planned {count} for {workers}."]
    if len(workflow) > 1:
        lines += (
            f"{number}. {step.worker}: {shorten(step.subtask, MAX_SUBTASK, placeholder=' …')}"
            for number, step in enumerate(workflow.steps, 1)
        )
    return "\n".join(lines)
