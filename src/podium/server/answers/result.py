"""What a client gets to know of a run: the answer that it came to, or why it is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from textwrap import shorten
from typing import Final, Protocol

from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    Planned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
    StepStarted,
)
from podium.core.request import Thinking, ToolResult
from podium.core.run import GuardrailCheck, Run
from podium.core.workflow import Workflow
from podium.engine.guardrails.redaction import restore_events
from podium.engine.tool_calls import are_repeated
from podium.server.answers.conversation import expose_call_ids, question_message
from podium.server.api_error import ApiError, prompt_too_long
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.model_catalog import MODEL_NAMES
from podium.server.records.metrics import RequestCost

LONGEST_SUBTASK: Final = 160
"""Characters of a subtask that a line tells."""


class StreamSink(Protocol):
    """Who is told while an answer comes. Every method returns at once."""

    def opened(self, run: str, *, kept: bool) -> None:
        """The answer has an id now; `kept` says that it is that of a run on record."""
        ...

    def progress(self, line: str) -> None:
        """A line on what is being done."""
        ...

    def thinking(self, text: str) -> None:
        """A piece of the answering worker's thinking."""
        ...

    def text(self, text: str) -> None:
        """A piece of the answer."""
        ...

    def anew(self) -> None:
        """The pieces so far are void: the answer begins again."""
        ...


class EventFilter:
    """Follows one run. `run` is the run as it ended, once it has. `begun` gets one that is not to
    be kept as it begins, and `performs` one that is.

    Only what will be the answer is told, and only the run itself is reported on, not the runs
    nested in it. A round that the conductor may still improve upon is
    held back until the run has ended: its words could not be taken back. What guardrails took out
    of the question is put back for the teller, and for nobody else.
    """

    def __init__(
        self,
        sink: StreamSink | None = None,
        *,
        begun: Callable[[Run], None] | None = None,
        performs: Callable[[Run], None] | None = None,
        broadcast: Emit | None = None,
    ) -> None:
        self.run: Run | None = None
        self._broadcast = broadcast
        self._teller = sink
        self._begun = begun
        self._performs = performs
        self._started: dict[str, RunStarted] = {}
        self._last_rounds: set[str] = set()
        self._speaker: tuple[str, int, int] | None = None
        self._root = ""
        self._hear = restore_events(self._take)

    def fall_silent(self) -> None:
        """Tell no piece of what comes: whoever asked gets it as a whole."""
        self._teller = None

    def __call__(self, event: Event) -> None:
        """Take the next event."""
        if self._broadcast is not None:
            self._broadcast(event)
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        self._hear(event)

    def _take(self, event: Event) -> None:
        """Take an event as whoever asked is to hear of it."""
        match event:
            case StepDelta():
                self._delta(event)
            case RunStarted():
                self._started[event.run_id] = event
                if event.parent is None:
                    self._begin(event.run)
            case Planned() if self._is_last(event):
                self._last_rounds.add(event.run_id)
            case StepRetried() if not event.kept and self._speaks(event):
                self._speaker = None
        if self._teller is not None and event.run_id == self._root:
            line = _line(event)
            if line is not None:
                self._teller.progress(line)

    def _begin(self, run: Run) -> None:
        self._root = run.id
        if self._begun is not None:
            self._begun(run)
        if self._performs is not None:
            self._performs(run)
        if self._teller is not None:
            self._teller.opened(run.id, kept=self._begun is None)

    def _delta(self, delta: StepDelta) -> None:
        if self._teller is None or not self._is_live(delta.run_id):
            return
        speaker = (delta.run_id, delta.round, delta.index)
        if speaker != self._speaker:
            self._teller.anew()
            self._speaker = speaker
        if delta.thinking:
            self._teller.thinking(delta.text)
        else:
            self._teller.text(delta.text)

    def _speaks(self, retried: StepRetried) -> bool:
        return (retried.run_id, retried.round, retried.index) == self._speaker

    def _is_last(self, planned: Planned) -> bool:
        if planned.round.is_routed:
            return True
        return planned.round.index + 1 >= self._started[planned.run_id].run.max_rounds

    def _is_live(self, run_id: str) -> bool:
        """Whether that run's words are the answer's: it is in its last round, and so are the
        runs that it is nested in."""
        while run_id in self._last_rounds:
            parent = self._started[run_id].parent
            if parent is None:
                return True
            run_id = parent[0]
        return False


def _line(event: Event) -> str | None:
    """What a person may want to know of an event."""
    match event:
        case Planned(round=round_) if round_.workflow is not None and round_.role is not None:
            step = round_.workflow.steps[-1]
            return f"Turn {round_.index + 1}: {step.worker} is the {round_.role}."
        case Planned(round=round_) if round_.workflow is not None:
            again = "" if round_.index == 0 else f"Round {round_.index + 1}: "
            return again + _plan(round_.workflow)
        case Planned():
            return "The answer was accepted."
        case StepStarted(index=index, worker=worker):
            return f"Step {index + 1}: {worker} is asked."
        case StepRetried(index=index, worker=worker):
            return f"Step {index + 1}: a call failed; {worker} is asked again."
        case GuardrailActed(check=check):
            return f"The guardrail {check.guardrail} looked at the {check.stage}: {check.action}."
        case StepDone(step=step):
            ended = "is done" if step.status == "done" else f"ended: {step.status}"
            return f"Step {step.index + 1}: {step.answered_by or step.worker} {ended}."
        case _:
            return None


def _plan(workflow: Workflow) -> str:
    count = "one step" if len(workflow) == 1 else f"{len(workflow)} steps"
    workers = ", ".join(dict.fromkeys(step.worker for step in workflow.steps))
    lines = [f"Planned {count} for {workers}."]
    if len(workflow) > 1:
        lines += (
            f"{number}. {step.worker}: {shorten(step.subtask, LONGEST_SUBTASK, placeholder=' …')}"
            for number, step in enumerate(workflow.steps, 1)
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResult:
    """What the client gets to know, and the run behind it, where there is one; else what guardrails
    did."""

    answer: ApiResponse
    run: Run | None = None
    checks: tuple[GuardrailCheck, ...] = ()


def build_result(request: ApiRequest, run: Run, cost: RequestCost) -> ApiResult:
    """The answer of a run that has ended, with what this request came to; raises `ApiError` where
    it is none."""
    failure = find_failure(run)
    if failure is not None:
        raise failure
    answer = replace(
        build_response(run, request.model), usage=cost.usage, orchestration=cost.orchestration
    )
    return ApiResult(answer=answer, run=run)


def build_repeated_result(request: ApiRequest, run: Run) -> ApiResult:
    """The answer of a run that another request began, with all that the run used; raises `ApiError`
    where it is none."""
    failure = find_failure(run)
    if failure is not None:
        raise failure
    return ApiResult(answer=build_response(run, request.model), run=run)


def reconstruct_exchange(run: Run) -> tuple[ApiRequest, ApiResponse]:
    """What was asked and answered in a run on record, for telling it again."""
    name = MODEL_NAMES[run.tier]
    request = ApiRequest(
        model=name,
        messages=(*run.history, question_message(run)),
        response_options=run.response_options,
    )
    return request, build_response(run, name)


def build_response(run: Run, model: str) -> ApiResponse:
    """What a client gets to know of a run, with all that it used."""
    return ApiResponse(
        id=run.id,
        model=model,
        created=int(datetime.fromisoformat(run.created_at).timestamp()),
        text=run.answer or "",
        thinking=_thinking(run),
        tool_calls=expose_call_ids(run.id, run.waiting_for) if run.status == "waiting" else (),
        finish=run.final_finish,
        stop_sequence=run.final_stop_sequence,
        usage=run.usage,
        orchestration=run.orchestration,
    )


def _thinking(run: Run) -> tuple[Thinking, ...]:
    final = run.rounds[-1].final if run.rounds else None
    return final.thinking if final is not None else ()


def find_failure(run: Run) -> ApiError | None:
    """Why a run that has ended is no answer; None where it is one, or waits for tools. That a
    guardrail blocked it is told as an answer that was refused, which every dialect has words
    for."""
    if run.blocked_by:
        return None
    if run.status == "exhausted":
        return ApiError("out_of_budget", run.error or "the budget of this run is spent")
    if run.too_long:
        return prompt_too_long(run.error or "no worker could take it")
    if _is_broken(run) or (run.answer is None and run.status != "waiting"):
        return ApiError("upstream", run.error or "no worker answered")
    return None


def is_already_answered(run: Run, results: tuple[ToolResult, ...]) -> bool:
    """Whether the answer to these results has been given already, or was blocked for good."""
    settled = run.status in ("answered", "partial", "waiting") and not _is_broken(run)
    return (settled or bool(run.blocked_by)) and are_repeated(run, results)


def _is_broken(run: Run) -> bool:
    """Whether a worker failed in the middle of what is told as the answer."""
    return run.status == "partial" and any(
        step.status == "failed" and step.reply for step in run.rounds[-1].steps
    )
