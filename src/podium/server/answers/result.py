"""From a run to the client: the events it may see, the response, or the error.

A stored response is one exchange of a stored run. A request may name an earlier one, whose
conversation then comes before its own messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from podium.core.budget import Spent
from podium.core.events import (
    Emit,
    Event,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepRetried,
    ToolCallDelta,
    describe_progress,
)
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Image, Message, Reply, ToolResult, Usage, unanswered_calls
from podium.core.run import (
    DIRECT,
    Attempt,
    ClientRequest,
    GuardrailCheck,
    Round,
    Run,
    RunResponse,
    StepRecord,
    timestamp,
)
from podium.core.workflow import Step, Workflow
from podium.engine.guardrails.redaction import restore_events
from podium.server.access import Principal
from podium.server.access.policy import RequestCost
from podium.server.answers.conversation import (
    expose_call_id,
    expose_call_ids,
    output_message,
    parse_response_id,
    response_id,
)
from podium.server.api_error import ApiError, invalid, prompt_too_long, upstream_error
from podium.server.dialects.fields import Json
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.dialects.responses import count_instructions
from podium.server.model_catalog import MODEL_NAMES
from podium.server.records.repository import RunRepository


class StreamSink:
    """Receives a response while it is produced. Every method returns at once; here, none acts."""

    def open(self, response_id: str, *, stored: bool) -> None:
        """Take the response's id; `stored` if its run is stored."""

    def start(self, usage: Usage) -> None:
        """Begin the response: a worker accepted the request, with this usage so far."""

    def progress(self, line: str) -> None:
        """Take a line of progress."""

    def thinking(self, text: str) -> None:
        """Take a piece of the answering worker's thinking."""

    def text(self, text: str) -> None:
        """Take a piece of the answer."""

    def tool_call(self, delta: Delta) -> None:
        """Take a piece of a tool call."""

    def choices(self, choices: Sequence[Mapping[str, Any]]) -> None:
        """Take pieces of several answers as a worker wrote them."""

    def restart(self) -> None:
        """Discard the pieces so far: the answer starts over."""


class EventFilter:
    """Passes on the events of one run that its client may see.

    `run_id` is set when the run has started, `run` when it has ended.

    Only text of the final answer is streamed, and only the run itself is reported, not runs nested
    in it. A round that the conductor may still improve is held back until the run has ended, and
    its tool calls only if text comes before them. What guardrails redacted in the question is
    restored for the sink alone. `on_start` gets the run as it begins.
    """

    def __init__(
        self,
        sink: StreamSink | None = None,
        *,
        stored: bool = True,
        on_start: Callable[[Run], None] | None = None,
        broadcast: Emit | None = None,
    ) -> None:
        self.run_id = ""
        self.run: Run | None = None
        self._broadcast = broadcast
        self._sink = sink
        self._stored = stored
        self._on_start = on_start
        self._started: dict[str, RunStarted] = {}
        self._in_last_round: set[str] = set()
        self._streaming_step: tuple[str, int, int] | None = None
        self._held: set[tuple[str, int, int]] = set()
        self._root = ""
        self._show_restored = restore_events(self._show) if sink is not None else self._show

    def mute(self) -> None:
        """Stream nothing more: the client gets the answer as a whole."""
        self._sink = None

    def __call__(self, event: Event) -> None:
        if self._broadcast is not None:
            self._broadcast(event)
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        elif isinstance(event, RunStarted) and event.parent is None:
            self.run_id = event.run.id
            if self._on_start is not None:
                self._on_start(event.run)
        if self._sink is not None:
            self._show_restored(event)

    def _show(self, event: Event) -> None:
        if self._sink is None:
            return
        match event:
            case StepDelta():
                self._stream(event, self._sink)
            case ToolCallDelta() if self._step_of(event) not in self._held:
                piece = event.delta  # it ends this response in whichever round it is made
                id_ = expose_call_id(self._root, piece.id)
                self._sink.tool_call(replace(piece, id=id_))
            case RunStarted():
                self._started[event.run_id] = event
                if event.parent is None:
                    self._root = event.run_id
                    self._sink.open(response_id(event.run), stored=self._stored)
            case RoundPlanned() if self._is_last_round(event):
                self._in_last_round.add(event.run_id)
            case StepRetried() if (
                not event.sent_chars and self._step_of(event) == self._streaming_step
            ):
                self._streaming_step = None
        if event.run_id == self._root and (line := describe_progress(event)) is not None:
            self._sink.progress(line)

    def _stream(self, delta: StepDelta, sink: StreamSink) -> None:
        if not self._is_final(delta.run_id):
            if not delta.thinking:
                self._held.add(self._step_of(delta))
            return
        step = self._step_of(delta)
        if step != self._streaming_step:
            sink.restart()
            self._streaming_step = step
        if delta.thinking:
            sink.thinking(delta.text)
        else:
            sink.text(delta.text)

    @staticmethod
    def _step_of(event: StepDelta | ToolCallDelta | StepRetried) -> tuple[str, int, int]:
        return event.run_id, event.round, event.index

    def _is_last_round(self, planned: RoundPlanned) -> bool:
        if planned.round.uses_router_choice:
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
    prefill = request.prefill if request.response_options.is_prefilled else ""
    response = build_response(run, request.model, cost, prefill)
    return ApiResult(response=response, run=run)


def build_response(
    run: Run, model: str, cost: RequestCost | None = None, prefill: str = ""
) -> ApiResponse:
    """Return the response of a run, with the usage of all its calls or that of `cost`."""
    spent, reply = run.totals if cost is None else cost, run.final_reply
    return ApiResponse(
        id=response_id(run),
        model=model,
        created=int(datetime.fromisoformat(run.created_at).timestamp()),
        text=reply.text.removeprefix(prefill),
        thinking=reply.thinking,
        tool_calls=expose_call_ids(run, reply.tool_calls) if reply.tool_calls else (),
        finish=reply.finish,
        stop_sequence=reply.stop_sequence,
        usage=spent.usage,
        orchestration=spent.orchestration,
    )


def find_failure(run: Run) -> ApiError | None:
    """Return the error of a run that ended without an answer; None if it answered or waits for
    tool results. A run blocked by a guardrail is a refused answer, not an error."""
    if run.blocked_by:
        return None
    if run.status == "exhausted":
        return ApiError("out_of_budget", run.error or "the budget of this run is spent")
    if run.context_exceeded:
        return prompt_too_long(run.error or "no worker has a context window that long")
    is_broken_off = run.status == "partial" and any(
        step.status == "failed" and step.reply for step in run.rounds[-1].steps
    )
    if is_broken_off or (run.answer is None and run.status != "waiting"):
        return upstream_error(run.error or "no worker answered", run.error_status, run.retry_after)
    return None


PREVIOUS: Final = "previous_response_id"

_FREE_TEXT: Final = frozenset({"instructions", "user", "safety_identifier"})
"""Echoed fields, besides `metadata`, that may hold what guardrails redact."""


class StoredResponse(NamedTuple):
    """The response of a run with that number."""

    run: Run
    number: int

    @property
    def is_last(self) -> bool:
        """True if the run has not gone on since."""
        return self.number == len(self.run.earlier_responses)

    @property
    def response(self) -> RunResponse:
        return (
            self.run.current_response if self.is_last else self.run.earlier_responses[self.number]
        )

    @property
    def input(self) -> tuple[Message, ...]:
        """The whole conversation that it answers, instructions included."""
        run = self.run
        question = run.question_message
        messages = [*run.history, *((question,) if question.parts else ()), *run.trailing_messages]
        for exchange in run.earlier_responses[: self.number]:
            messages += (
                output_message(exchange.thinking, exchange.text, exchange.tool_calls),
                Message("tool", exchange.results),
            )
        return tuple(messages)

    @property
    def output(self) -> Message:
        exchange = self.response
        return output_message(exchange.thinking, exchange.text, exchange.tool_calls)

    def reconstruct(self) -> tuple[ApiRequest, ApiResponse]:
        """Rebuild the request, without its messages, and the response."""
        run, exchange = self.run, self.response
        body = exchange.request.stored_fields
        model = body.get("model") or MODEL_NAMES[run.tier]
        reasoning = body.get("reasoning") or {}
        request = ApiRequest(
            model=model,
            messages=(),
            response_options=run.response_options,
            shows_reasoning=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
            raw_body=body,
        )
        before = run.earlier_responses[self.number - 1] if self.number else RunResponse(text="")
        whole = build_response(run, model)
        response = replace(
            whole,
            id=f"{run.id}_{self.number}" if self.number else run.id,
            text=exchange.text,
            thinking=exchange.thinking,
            tool_calls=expose_call_ids(run, exchange.tool_calls),
            finish=whole.finish if self.is_last else "tool",
            usage=exchange.usage - before.usage,
            orchestration=exchange.orchestration - before.orchestration,
        )
        return request, response


class StoredResponses:
    """Finds responses for principals, and keeps replies of workers called by their own names."""

    def __init__(self, repository: RunRepository, *, has_guardrails: bool) -> None:
        self._repository = repository
        self._has_guardrails = has_guardrails
        self.background: dict[str, asyncio.Future[Any]] = {}
        """The work of background responses in this process, by their ids."""

    async def find(self, id_: str, principal: Principal) -> StoredResponse | None:
        """Return a response that the principal may see; None if there is none."""
        run_id, number = parse_response_id(id_)
        if not run_id:
            return None
        try:
            run = await self._repository.run(run_id, principal)
        except ApiError as error:
            if error.reason != "not_found":
                raise
            return None
        return StoredResponse(run, number) if number <= len(run.earlier_responses) else None

    async def read_messages(self, request: ApiRequest, principal: Principal) -> tuple[Message, ...]:
        """Return the whole conversation, with the stored part before what was sent."""
        id_ = request.previous_response
        if id_ is None:
            return request.messages
        found = await self.find(id_, principal)
        if found is None:
            raise ApiError(
                "invalid",
                f"Previous response with id 'resp_{id_.removeprefix('run_')}' not found.",
                field=PREVIOUS,
                code="previous_response_not_found",
            )
        if found.is_last and found.run.status in ("running", "interrupted"):
            raise ApiError("conflict", f"{PREVIOUS}: that response is not complete", field=PREVIOUS)
        earlier = found.input[count_instructions(found.response.request.stored_fields) :]
        if found.output.parts:
            earlier = (*earlier, found.output)
        count = count_instructions(request.raw_body)
        messages = (*request.messages[:count], *earlier, *request.messages[count:])
        answered = {p.call_id for m in messages for p in m.parts if isinstance(p, ToolResult)}
        exposed = expose_call_ids(found.run, unanswered_calls(earlier))
        if missing := [call.id for call in exposed if call.id not in answered]:
            raise invalid("input", f"No tool output found for function call {missing[0]}.")
        return messages

    def fields_to_keep(self, request: ApiRequest) -> Json:
        if not request.store or request.stored_fields is None:
            return {}
        if not self._has_guardrails:
            return request.stored_fields
        withheld = dict.fromkeys(_FREE_TEXT & request.stored_fields.keys(), "[withheld]")
        return {**request.stored_fields, "metadata": None, **withheld}

    async def store_reply(
        self,
        id_: str,
        request: ApiRequest,
        principal: Principal,
        profile: WorkerProfile,
        messages: tuple[Message, ...],
        reply: Reply,
        attempts: Sequence[Attempt],
        spent: Spent,
        created: datetime,
    ) -> Run:
        """Store a worker's reply as a run of one step, so that later requests may name it."""
        asked = [index for index, message in enumerate(messages) if message.role == "user"]
        at = asked[-1] if asked else len(messages)
        question = messages[at] if asked else Message("user", ())
        output = output_message(reply.thinking, reply.text, reply.tool_calls)
        step = StepRecord(
            round=0,
            index=0,
            worker=profile.name,
            subtask=SUBTASK,
            access=(),
            status="waiting" if reply.tool_calls else "done",
            reply=reply.text,
            error=None,
            started_ms=0.0,
            finished_ms=attempts[-1].finished_ms,
            attempts=tuple(attempts),
            answered_by=profile.name,
            finish=reply.finish,
            turns=(output,) if reply.tool_calls else (),
            thinking=reply.thinking,
            stop_sequence=reply.stop_sequence,
        )
        run = Run(
            id=id_,
            question=question.text,
            status="waiting" if reply.tool_calls else "answered",
            pool=Pool((replace(profile, fallback=None),)),
            conductor=DIRECT,
            created_at=timestamp(created),
            rounds=(Round(0, Workflow((Step(profile.name, SUBTASK),)), (step,)),),
            answer=reply.text,
            tier="mini",
            max_steps=1,
            spent=spent,
            history=messages[:at],
            images=tuple(part for part in question.parts if isinstance(part, Image)),
            trailing_messages=messages[at + 1 :],
            response_options=request.response_options,
            owner=principal.key_id,
            request=ClientRequest(stored_fields=self.fields_to_keep(request)),
        )
        await self._repository.store.finish(run)
        return run


SUBTASK: Final = "Answer the conversation."
"""The subtask on record; the worker is sent the conversation alone."""
