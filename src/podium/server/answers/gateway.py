"""A worker called by its own name: no plan and no run, but the same gates, retries, deadlines,
budget and guardrails as in any run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from podium.core.budget import Budget, Ledger
from podium.core.errors import GuardrailBlocked, WorkerError
from podium.core.json_schema import check_schema, find_mismatch
from podium.core.pool import WorkerProfile
from podium.core.request import (
    Delta,
    Image,
    Message,
    Reply,
    Request,
    ResponseOptions,
    ToolResult,
    assistant,
    user,
)
from podium.core.requirements import (
    check_response_options,
    describe_capabilities,
    sole_worker_capabilities,
)
from podium.core.run import GuardrailCheck, GuardrailStage, new_run_id, total_cost, total_usage
from podium.core.worker import Worker
from podium.engine import CallPolicy, Calls
from podium.engine.guardrails import Guardrail, GuardrailChain
from podium.engine.guardrails.admission import restore_in_json, restorer
from podium.engine.guardrails.base import GuardrailInput
from podium.engine.guardrails.redaction import StreamRestorer
from podium.engine.reply_stream import ResumableText
from podium.engine.requests import prompt_text, repair_request, schema_error, without_images
from podium.server.access import Principal
from podium.server.answers.conversation import strip_call_ids
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.api_error import ApiError, api_error_boundary, invalid
from podium.server.dialects.request import ApiRequest, ApiResponse, check_exclude
from podium.server.records.metrics import RequestCost

Look = Callable[[Reply], Awaitable[Reply]]
"""Gives what is left of a reply once guardrails have looked at it."""


class Gateway:
    """Passes requests on to workers."""

    def __init__(
        self,
        call_policy: CallPolicy,
        budget: Budget,
        excludable: frozenset[str],
        *,
        guardrails: Sequence[Guardrail] = (),
        workers: Sequence[Worker] = (),
    ) -> None:
        self._guardrails = guardrails
        self._workers = {worker.profile.name: worker for worker in workers}
        self._call_policy = call_policy
        self._excludable = excludable
        self._budget = budget

    @property
    def is_guarded(self) -> bool:
        """Whether guardrails look at what passes here."""
        return bool(self._guardrails)

    async def answer(
        self,
        asked: ApiRequest,
        principal: Principal,
        worker: Worker,
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """The worker's reply; raises `ApiError`. `cost` is filled in however it ends."""
        check_exclude(asked.params.exclude, self._excludable)
        with api_error_boundary():
            _check(asked, worker.profile)
        request = _request(asked, worker.profile)
        budget = principal.quota.narrow(self._budget.narrowed(asked.params.budget))
        call_policy = self._call_policy
        call_policy.bind()
        id_ = new_run_id()
        ledger = Ledger(budget, account=principal.quota.account)
        calls = Calls(
            call_policy, ledger, call_policy.clock(), principal.exclude | asked.params.exclude
        )
        if sink is not None:
            sink.opened(id_, kept=False)
        watched = _Watched(self._guardrails, self._workers, calls, id_) if self.is_guarded else None
        try:
            with api_error_boundary():
                budget.check((worker.profile,))
                if watched is None:
                    reply = await _replied(calls, worker, request, sink)
                else:
                    reply = await watched.replied(worker, request, sink)
        finally:
            cost.usage = total_usage(iter(calls.attempts))
            cost.cost_usd = total_cost(iter(calls.attempts))
        if not request.parallel_tools:
            reply = reply.with_first_call()
        return ApiResult(
            answer=ApiResponse(
                id=id_,
                model=asked.model,
                created=int(time.time()),
                text=reply.text,
                thinking=reply.thinking,
                tool_calls=reply.tool_calls,
                finish=reply.finish,
                stop_sequence=reply.stop_sequence,
                usage=cost.usage,
            ),
            checks=() if watched is None else tuple(watched.checks),
        )


async def _as_it_is(reply: Reply) -> Reply:
    """What is left of a reply that nobody looks at."""
    return reply


async def _replied(
    calls: Calls,
    worker: Worker,
    request: Request,
    sink: StreamSink | None,
    words: StreamRestorer | None = None,
    look: Look = _as_it_is,
) -> Reply:
    """The worker's reply as `look` leaves it, told as it comes where somebody listens."""
    if request.schema is not None:
        return await _fitting(calls, worker, request, request.schema, look)
    if sink is None:
        return await look(await calls.make(worker, request))
    listener = _Listener(sink, request, words)
    reply = await calls.make(worker, request, listener.delta, listener.retried)
    return replace(reply, text=listener.format_response(reply.text))


class _Watched:
    """One request that guardrails look at. There is no plan that could be made again, so whoever
    demands one blocks; what is blocked is told as refused."""

    def __init__(
        self,
        guardrails: Sequence[Guardrail],
        workers: Mapping[str, Worker],
        calls: Calls,
        id_: str,
    ) -> None:
        self.checks: list[GuardrailCheck] = []
        self._calls = calls
        self._guard = GuardrailChain(guardrails, workers, lambda: calls)
        self._checked = GuardrailInput(stage="question", text="", run_id=id_, question="")

    async def replied(self, worker: Worker, request: Request, sink: StreamSink | None) -> Reply:
        """The reply as guardrails let it pass. Where they look at replies or answers, nothing is
        told before they have."""
        guard = self._guard
        holds = guard.has_stage("reply") or guard.has_stage("answer")
        try:
            messages = await guard.messages(self._checked, request.messages, self.checks.append)
            request = replace(request, messages=messages)
            restore = restorer(guard, ResponseOptions(schema=request.schema))
            words = StreamRestorer(restore) if restore is not None else None
            if holds:
                look = partial(self._looked_at, worker.profile.name, messages[-1].text)
                reply = await _replied(self._calls, worker, request, None, look=look)
            else:
                reply = await _replied(self._calls, worker, request, sink, words)
        except GuardrailBlocked:
            return Reply("", finish="refused")
        if restore is None:
            return reply
        calls = [
            replace(c, arguments=restore_in_json(guard, c.arguments)) for c in reply.tool_calls
        ]
        return replace(reply, text=restore(reply.text), tool_calls=tuple(calls))

    async def _looked_at(self, worker: str, question: str, reply: Reply) -> Reply:
        async def left(text: str, *places: GuardrailStage) -> str:
            for place in places if text else ():
                checked = GuardrailInput(
                    stage=place,
                    text=text,
                    run_id=self._checked.run_id,
                    question=question,
                    worker=worker,
                )
                text = await self._guard.check(checked, self.checks.append)
            return text

        calls = [
            replace(call, arguments=await left(call.arguments, "reply"))
            for call in reply.tool_calls
        ]
        needed = tuple(part for part in reply.thinking if part.opaque) if calls else ()
        text = await left(reply.text, "reply", "answer")
        return replace(reply, text=text, tool_calls=tuple(calls), thinking=needed)


async def _fitting(
    calls: Calls, worker: Worker, request: Request, schema: Mapping[str, Any], look: Look
) -> Reply:
    """A reply of which what `look` leaves fits the schema, asked for once more where it does not.
    As in any run, nothing of it is told before; a refusal, and a reply that was cut off, say so
    themselves."""
    reply = await look(await calls.make(worker, request))
    problem = find_mismatch(reply.text, schema) if reply.finish == "stop" else None
    if problem is None:
        return reply
    again = (*request.messages, *repair_request(reply, problem))
    reply = await look(await calls.make(worker, replace(request, messages=again)))
    if reply.finish == "stop" and find_mismatch(reply.text, schema) is not None:
        raise schema_error(worker.profile.name, reply, schema)
    return reply


class _Listener:
    """Tells what a worker streams. Where a call breaks off, the next is asked to go on from what
    was told already."""

    def __init__(
        self, sink: StreamSink, request: Request, restored: StreamRestorer | None = None
    ) -> None:
        self._restored = restored
        self._teller = sink
        self._request = request
        self._words = ResumableText()

    def delta(self, delta: Delta) -> None:
        if delta.kind == "thinking":
            self._teller.thinking(delta.text)
        elif text := self._words.receive(delta.text):
            if self._restored is not None:
                text = self._restored.receive(text)
            self._teller.text(text)

    def retried(self, worker: str, error: WorkerError, wait: float) -> Request:
        self._words.break_off()
        if not self._words.kept:
            return self._request
        again = (assistant(self._words.kept), user(prompt_text("continue.txt")))
        return replace(self._request, messages=(*self._request.messages, *again))

    def format_response(self, text: str) -> str:
        """The whole reply, where `text` is the last call's."""
        return self._words.whole(text)


def _request(asked: ApiRequest, profile: WorkerProfile) -> Request:
    response_options = asked.response_options
    messages = strip_call_ids(asked.messages)
    return Request(
        messages=messages if "vision" in profile.capabilities else tuple(map(_unseen, messages)),
        max_tokens=response_options.max_tokens,
        temperature=response_options.temperature,
        top_p=response_options.top_p,
        seed=response_options.seed,
        stop=response_options.stop,
        tools=response_options.tools,
        tool_choice=response_options.tool_choice,
        schema=response_options.schema,
        effort=response_options.effort,
        parallel_tools=response_options.parallel_tools,
        cache_key=response_options.cache_key,
        cache_time=response_options.cache_time,
        thinking_tokens=response_options.thinking_tokens,
    )


def _unseen(message: Message) -> Message:
    """The message for a worker that cannot see what tools showed. A picture of the user's own is
    refused before; one of a tool's must not end a conversation."""
    if not any(isinstance(part, ToolResult) and part.images for part in message.parts):
        return message
    parts = (
        without_images(part) if isinstance(part, ToolResult) else part for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def _check(asked: ApiRequest, profile: WorkerProfile) -> None:
    """Refuse what one worker cannot do, rather than let it be lost on the way."""
    params = asked.params
    for name in ("workflow", "max_steps", "rounds", "quality_bias"):
        if getattr(params, name) is not None:
            raise invalid(
                f"podium.{name}",
                f"podium.{name} is for runs, and {profile.name!r} is a single worker; drop it, or "
                f"ask for a tier",
            )
    if asked.previous is not None:
        raise invalid(
            "previous_response_id",
            f"{profile.name!r} is a single worker, whose replies are not kept; send the "
            f"conversation, or ask for a tier",
        )
    for name in (profile.name, profile.provider):
        if name and name in params.exclude:
            raise ApiError("invalid", f"{name!r} is excluded and asked for", field="podium.exclude")
    check_response_options(asked.response_options)
    if asked.response_options.schema is not None:
        check_schema(asked.response_options.schema)
    pictures = (part for turn in asked.messages for part in turn.parts if isinstance(part, Image))
    missing = (
        sole_worker_capabilities(asked.response_options, tuple(pictures)) - profile.capabilities
    )
    if missing:
        raise ApiError(
            "invalid", f"{profile.name!r} cannot {describe_capabilities(missing)}; ask another"
        )
