"""From a run to the client: the events it may see, the response, or the error."""

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
from podium.core.request import ToolResult
from podium.core.run import GuardrailCheck, Run
from podium.core.workflow import Workflow
from podium.engine.guardrails.redaction import restore_events
from podium.engine.tool_calls import are_repeated
from podium.server.answers.conversation import expose_call_ids, question_message
from podium.server.api_error import ApiError, prompt_too_long
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.model_catalog import MODEL_NAMES
from podium.server.records.metrics import RequestCost

MAX_SUBTASK: Final = 160
"""Characters of a subtask in a line of progress."""


class StreamSink(Protocol):
    """Receives a response while it is produced. Every method returns at once."""

    def open(self, run: str, *, stored: bool) -> None:
        """Take the response's id; `stored` if it is the id of a stored run."""
        ...

    def progress(self, line: str) -> None:
        """Take a line of progress."""
        ...

    def thinking(self, text: str) -> None:
        """Take a piece of the answering worker's thinking."""
        ...

    def text(self, text: str) -> None:
        """Take a piece of the answer."""
        ...

    def restart(self) -> None:
        """Discard the pieces so far: the answer starts over."""
        ...


class EventFilter:
    """Passes on the events of one run that its client may see. `run` is the run once it has ended.

    Only text of the final answer is streamed, and only the run itself is reported, not runs nested
    in it. A round that the conductor may still improve is held back until the run has ended. What
    guardrails redacted in the question is restored for the sink alone. `on_unstored` and
    `on_stored` get the run as it begins.
    """

    def __init__(
        self,
        sink: StreamSink | None = None,
        *,
        on_unstored: Callable[[Run], None] | None = None,
        on_stored: Callable[[Run], None] | None = None,
        broadcast: Emit | None = None,
    ) -> None:
        self.run: Run | None = None
        self._broadcast = broadcast
        self._sink = sink
        self._on_unstored = on_unstored
        self._on_stored = on_stored
        self._started: dict[str, RunStarted] = {}
        self._in_last_round: set[str] = set()
        self._streaming_step: tuple[str, int, int] | None = None
        self._root = ""
        self._handle_restored = restore_events(self._handle)

    def mute(self) -> None:
        """Stream nothing more: the client gets the answer as a whole."""
        self._sink = None

    def __call__(self, event: Event) -> None:
        """Take the next event."""
        if self._broadcast is not None:
            self._broadcast(event)
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        self._handle_restored(event)

    def _handle(self, event: Event) -> None:
        match event:
            case StepDelta():
                self._stream(event)
            case RunStarted():
                self._started[event.run_id] = event
                if event.parent is None:
                    self._begin(event.run)
            case Planned() if self._is_last_round(event):
                self._in_last_round.add(event.run_id)
            case StepRetried() if not event.kept and self._step_of(event) == self._streaming_step:
                self._streaming_step = None
        if self._sink is not None and event.run_id == self._root:
            line = _progress_line(event)
            if line is not None:
                self._sink.progress(line)

    def _begin(self, run: Run) -> None:
        self._root = run.id
        if self._on_unstored is not None:
            self._on_unstored(run)
        if self._on_stored is not None:
            self._on_stored(run)
        if self._sink is not None:
            self._sink.open(run.id, stored=self._on_unstored is None)

    def _stream(self, delta: StepDelta) -> None:
        if self._sink is None or not self._is_final(delta.run_id):
            return
        step = self._step_of(delta)
        if step != self._streaming_step:
            self._sink.restart()
            self._streaming_step = step
        if delta.thinking:
            self._sink.thinking(delta.text)
        else:
            self._sink.text(delta.text)

    @staticmethod
    def _step_of(event: StepDelta | StepRetried) -> tuple[str, int, int]:
        return event.run_id, event.round, event.index

    def _is_last_round(self, planned: Planned) -> bool:
        if planned.round.is_routed:
            return True
        return planned.round.index + 1 >= self._started[planned.run_id].run.max_rounds

    def _is_final(self, run_id: str) -> bool:
        """True if the run and all runs that it is nested in are in their last round."""
        while run_id in self._in_last_round:
            parent = self._started[run_id].parent
            if parent is None:
                return True
            run_id = parent[0]
        return False


def _progress_line(event: Event) -> str | None:
    match event:
        case Planned(round=round_) if round_.workflow is not None and round_.role is not None:
            step = round_.workflow.steps[-1]
            return f"Turn {round_.index + 1}: {step.worker} is the {round_.role}."
        case Planned(round=round_) if round_.workflow is not None:
            again = "" if round_.index == 0 else f"Round {round_.index + 1}: "
            return again + _plan_lines(round_.workflow)
        case Planned():
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResult:
    """The response and its run; for a single worker, no run but the guardrails' checks."""

    response: ApiResponse
    run: Run | None = None
    checks: tuple[GuardrailCheck, ...] = ()


def build_result(request: ApiRequest, run: Run, cost: RequestCost | None = None) -> ApiResult:
    """Return the result of a run that has ended; raises `ApiError` if it has no answer.

    The usage is `cost`, or the whole run's where another request began it.
    """
    error = find_failure(run)
    if error is not None:
        raise error
    response = build_response(run, request.model)
    if cost is not None:
        response = replace(response, usage=cost.usage, orchestration=cost.orchestration)
    return ApiResult(response=response, run=run)


def reconstruct_exchange(run: Run) -> tuple[ApiRequest, ApiResponse]:
    """Rebuild the request and the response of a stored run."""
    model = MODEL_NAMES[run.tier]
    request = ApiRequest(
        model=model,
        messages=(*run.history, question_message(run)),
        response_options=run.response_options,
    )
    return request, build_response(run, model)


def build_response(run: Run, model: str) -> ApiResponse:
    """Return the response of a run, with the usage of all its calls."""
    final = run.rounds[-1].final if run.rounds else None
    return ApiResponse(
        id=run.id,
        model=model,
        created=int(datetime.fromisoformat(run.created_at).timestamp()),
        text=run.answer or "",
        thinking=final.thinking if final is not None else (),
        tool_calls=expose_call_ids(run.id, run.waiting_for) if run.status == "waiting" else (),
        finish=run.final_finish,
        stop_sequence=run.final_stop_sequence,
        usage=run.usage,
        orchestration=run.orchestration,
    )


def find_failure(run: Run) -> ApiError | None:
    """Return the error of a run that ended without an answer; None if it answered or waits for
    tool results. A run blocked by a guardrail is a refused answer, not an error."""
    if run.blocked_by:
        return None
    if run.status == "exhausted":
        return ApiError("out_of_budget", run.error or "the budget of this run is spent")
    if run.too_long:
        return prompt_too_long(run.error or "no worker has a context window that long")
    if _is_broken_off(run) or (run.answer is None and run.status != "waiting"):
        return ApiError("upstream", run.error or "no worker answered")
    return None


def is_already_answered(run: Run, results: tuple[ToolResult, ...]) -> bool:
    """True if these tool results were answered before, or blocked for good."""
    settled = run.status in ("answered", "partial", "waiting") and not _is_broken_off(run)
    return (settled or bool(run.blocked_by)) and are_repeated(run, results)


def _is_broken_off(run: Run) -> bool:
    """True if a worker failed in the middle of the answer."""
    return run.status == "partial" and any(
        step.status == "failed" and step.reply for step in run.rounds[-1].steps
    )
