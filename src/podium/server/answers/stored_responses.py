"""Responses on record: each is one exchange of a stored run.

A request may name an earlier response, whose conversation then comes before its own messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from podium.core.budget import Spent
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Image, Message, Reply, ToolResult, unanswered_calls
from podium.core.run import (
    DIRECT,
    Attempt,
    ClientRequest,
    Exchange,
    Round,
    Run,
    StepRecord,
    timestamp,
)
from podium.core.workflow import Step, Workflow
from podium.server.access import Principal
from podium.server.answers.conversation import (
    expose_call_ids,
    output_message,
    parse_response_id,
)
from podium.server.answers.result import build_response
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import Json
from podium.server.dialects.request import ApiRequest, ApiResponse, id_stem
from podium.server.dialects.responses import count_instructions
from podium.server.model_catalog import MODEL_NAMES
from podium.server.records.repository import RunRepository

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
        return self.number == len(self.run.exchanges)

    @property
    def exchange(self) -> Exchange:
        """The response as the run has it."""
        return self.run.current_exchange if self.is_last else self.run.exchanges[self.number]

    @property
    def input(self) -> tuple[Message, ...]:
        """The whole conversation that it answers, instructions included."""
        run = self.run
        question = run.question_message
        messages = [*run.history, *((question,) if question.parts else ()), *run.trailing]
        for exchange in run.exchanges[: self.number]:
            messages += (
                output_message(exchange.thinking, exchange.text, exchange.tool_calls),
                Message("tool", exchange.results),
            )
        return tuple(messages)

    @property
    def output(self) -> Message:
        """The response as the assistant's message."""
        exchange = self.exchange
        return output_message(exchange.thinking, exchange.text, exchange.tool_calls)

    def reconstruct(self) -> tuple[ApiRequest, ApiResponse]:
        """Rebuild the request, without its messages, and the response."""
        run, exchange = self.run, self.exchange
        body = exchange.request.echoed
        model = body.get("model") or MODEL_NAMES[run.tier]
        reasoning = body.get("reasoning") or {}
        request = ApiRequest(
            model=model,
            messages=(),
            response_options=run.response_options,
            shows_reasoning=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
            body=body,
        )
        before = run.exchanges[self.number - 1] if self.number else Exchange(text="")
        response = replace(
            build_response(run, model),
            id=f"{run.id}_{self.number}" if self.number else run.id,
            text=exchange.text,
            thinking=exchange.thinking,
            tool_calls=expose_call_ids(run, exchange.tool_calls),
            finish=run.final_finish if self.is_last else "tool",
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
        return StoredResponse(run, number) if number <= len(run.exchanges) else None

    async def read_messages(self, request: ApiRequest, principal: Principal) -> tuple[Message, ...]:
        """Return the whole conversation, with the stored part before what was sent."""
        id_ = request.previous_response
        if id_ is None:
            return request.messages
        found = await self.find(id_, principal)
        if found is None:
            raise ApiError(
                "invalid",
                f"Previous response with id 'resp_{id_stem(id_)}' not found.",
                field=PREVIOUS,
                code="previous_response_not_found",
            )
        if found.is_last and found.run.status in ("running", "interrupted"):
            raise ApiError("conflict", f"{PREVIOUS}: that response is not complete", field=PREVIOUS)
        earlier = found.input[count_instructions(found.exchange.request.echoed) :]
        if found.output.parts:
            earlier = (*earlier, found.output)
        count = count_instructions(request.body)
        messages = (*request.messages[:count], *earlier, *request.messages[count:])
        answered = {p.call_id for m in messages for p in m.parts if isinstance(p, ToolResult)}
        exposed = expose_call_ids(found.run, unanswered_calls(earlier))
        if missing := [call.id for call in exposed if call.id not in answered]:
            raise invalid("input", f"No tool output found for function call {missing[0]}.")
        return messages

    def echoed(self, request: ApiRequest) -> Json:
        """Return the fields to keep with a stored response."""
        if not request.store or request.echoed is None:
            return {}
        if not self._has_guardrails:
            return request.echoed
        withheld = dict.fromkeys(_FREE_TEXT & request.echoed.keys(), "[withheld]")
        return {**request.echoed, "metadata": None, **withheld}

    async def keep_reply(
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
            trailing=messages[at + 1 :],
            response_options=request.response_options,
            owner=principal.key_id,
            request=ClientRequest(echoed=self.echoed(request)),
        )
        await self._repository.store.finish(run)
        return run


SUBTASK: Final = "Answer the conversation."
"""The subtask on record; the worker is sent the conversation alone."""
