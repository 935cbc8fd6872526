"""Requests for a worker by its own name: no plan, but the same limits, retries, timeouts, budget
and guardrails as in a run. A stored response of one is kept as a run of one step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from podium.client.client import Runtime
from podium.core.budget import Ledger
from podium.core.errors import GuardrailBlocked, WorkerError
from podium.core.json_schema import check_schema, find_mismatch
from podium.core.pool import (
    WorkerProfile,
    check_response_options,
    describe_capabilities,
    sole_worker_capabilities,
)
from podium.core.request import (
    Delta,
    Message,
    Reply,
    Request,
    ResponseOptions,
    ToolResult,
    message_images,
)
from podium.core.run import GuardrailCheck, GuardrailStage, new_run_id, total_cost, total_usage
from podium.core.worker import Worker
from podium.engine import BudgetedCaller
from podium.engine.guardrails import Guardrail, GuardrailChain
from podium.engine.guardrails.admission import restore_in_json, restorer
from podium.engine.guardrails.base import GuardrailInput
from podium.engine.guardrails.redaction import StreamRestorer
from podium.engine.reply_stream import ResumableText
from podium.engine.requests import (
    ask_to_continue,
    describe_unseen,
    final_request,
    repair_request,
    schema_error,
)
from podium.server.access import Principal
from podium.server.access.policy import RequestCost
from podium.server.answers.conversation import strip_call_ids
from podium.server.answers.result import ApiResult, StoredResponses, StreamSink
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.request import ApiRequest, ApiResponse, check_exclude

ReplyCheck = Callable[[Reply], Awaitable[Reply]]
"""Checks a reply by guardrails and returns what they leave of it."""


class Gateway:
    """Passes requests on to single workers."""

    def __init__(self, runtime: Runtime, responses: StoredResponses) -> None:
        self._responses = responses
        assembly = runtime.assembly
        self._guardrails = assembly.guardrails
        self._workers = {worker.profile.name: worker for worker in assembly.workers}
        self._call_policy = runtime.call_policy
        self._excludable = runtime.excludable_names
        self._budget = assembly.call_budget or runtime.options.budget

    @property
    def has_guardrails(self) -> bool:
        """True if guardrails check requests or replies."""
        return bool(self._guardrails)

    async def answer(
        self,
        request: ApiRequest,
        principal: Principal,
        worker: Worker,
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """Call the worker. `cost` is filled in whatever happens."""
        check_exclude(request.params.exclude, self._excludable)
        principal.check_enabled(worker.profile.name)
        messages = await self._responses.read_messages(request, principal)
        if messages is not request.messages:
            request = replace(request, messages=messages)
        _check(request, worker.profile)
        created = datetime.now(UTC)
        prompt = _worker_request(request, worker.profile)
        if prompt.wants_choices and self.has_guardrails:
            raise ApiError(
                "invalid", "n and logprobs are not supported here: guardrails check one answer"
            )
        budget = principal.quota.narrow(self._budget.narrow(request.params.budget))
        self._call_policy.bind()
        id_ = new_run_id()
        ledger = Ledger(budget, shared_budget=principal.quota.shared_budget)
        caller = BudgetedCaller(
            self._call_policy,
            ledger,
            self._call_policy.clock(),
            principal.exclude | principal.disabled | request.params.exclude,
        )
        if sink is not None:
            sink.open(id_, stored=False)
        guarded = (
            _GuardedCall(self._guardrails, self._workers, caller, id_)
            if self.has_guardrails
            else None
        )
        try:
            budget.check((worker.profile,))
            if guarded is None:
                reply = await _call(caller, worker, prompt, sink)
            else:
                reply = await guarded.call(worker, prompt, sink)
        finally:
            cost.usage = total_usage(iter(caller.attempts))
            cost.cost_usd = total_cost(iter(caller.attempts))
        if not prompt.parallel_tools:
            reply = reply.with_first_call()
        if request.store and request.stored_fields is not None:
            kept = (prompt.messages, reply) if guarded is None else guarded.kept
            if kept is not None:
                cost.run = await self._responses.store_reply(
                    id_,
                    request,
                    principal,
                    worker.profile,
                    *kept,
                    caller.attempts,
                    ledger.spent,
                    created,
                )
        response = ApiResponse(
            id=id_,
            model=request.model,
            created=int(created.timestamp()),
            text=reply.text.removeprefix(request.prefill),
            thinking=reply.thinking,
            tool_calls=reply.tool_calls,
            finish=reply.finish,
            stop_sequence=reply.stop_sequence,
            usage=cost.usage,
            choices=reply.choices,
        )
        return ApiResult(response=response, checks=() if guarded is None else tuple(guarded.checks))


async def _no_check(reply: Reply) -> Reply:
    return reply


async def _call(
    caller: BudgetedCaller,
    worker: Worker,
    prompt: Request,
    sink: StreamSink | None,
    restored: StreamRestorer | None = None,
    check: ReplyCheck = _no_check,
) -> Reply:
    """Return the checked reply; stream it where there is a sink."""
    if prompt.schema is not None:
        return await _call_with_schema(caller, worker, prompt, prompt.schema, check)
    if sink is None:
        return await check(await caller(worker, prompt))
    streamer = _ReplyStreamer(sink, prompt, restored)
    reply = await caller(worker, prompt, streamer.on_delta, streamer.on_retry)
    return replace(reply, text=streamer.full_text(reply.text))


class _GuardedCall:
    """One call under guardrails. A blocked reply is returned as refused; a guardrail that demands
    another plan blocks as well, as there is none."""

    def __init__(
        self,
        guardrails: Sequence[Guardrail],
        workers: Mapping[str, Worker],
        caller: BudgetedCaller,
        id_: str,
    ) -> None:
        self.checks: list[GuardrailCheck] = []
        self.kept: tuple[tuple[Message, ...], Reply] | None = None
        """The conversation and the reply as guardrails left them; None if one blocked."""
        self._caller = caller
        self._guard = GuardrailChain(guardrails, workers, lambda: caller)
        self._input = GuardrailInput(stage="question", text="", run_id=id_, question="")

    async def call(self, worker: Worker, prompt: Request, sink: StreamSink | None) -> Reply:
        """Return the reply that passes; nothing is streamed where replies are checked."""
        guard = self._guard
        try:
            messages = await guard.check_messages(self._input, prompt.messages, self.checks.append)
            prompt = replace(prompt, messages=messages)
            if prompt.prefill:
                item = replace(self._input, text=prompt.prefill)
                prefill = await guard.check(item, self.checks.append)
                prompt = replace(prompt, prefill=prefill)
            restore = restorer(guard, ResponseOptions(schema=prompt.schema))
            restored = StreamRestorer(restore) if restore is not None else None
            if guard.has_stage("reply") or guard.has_stage("answer"):
                check = partial(self._check_reply, worker.profile.name, messages[-1].text)
                reply = await _call(self._caller, worker, prompt, None, check=check)
            else:
                reply = await _call(self._caller, worker, prompt, sink, restored)
        except GuardrailBlocked:
            return Reply("", finish="refused")
        self.kept = messages, reply
        if restore is None:
            return reply
        calls = [
            replace(c, arguments=restore_in_json(guard, c.arguments)) for c in reply.tool_calls
        ]
        return replace(reply, text=restore(reply.text), tool_calls=tuple(calls))

    async def _check_reply(self, worker: str, question: str, reply: Reply) -> Reply:
        async def check(text: str, *stages: GuardrailStage) -> str:
            for stage in stages if text else ():
                checked = GuardrailInput(
                    stage=stage,
                    text=text,
                    run_id=self._input.run_id,
                    question=question,
                    worker=worker,
                )
                text = await self._guard.check(checked, self.checks.append)
            return text

        calls = [
            replace(call, arguments=await check(call.arguments, "reply"))
            for call in reply.tool_calls
        ]
        thinking = tuple(part for part in reply.thinking if part.opaque) if calls else ()
        text = await check(reply.text, "reply", "answer")
        return replace(reply, text=text, tool_calls=tuple(calls), thinking=thinking)


async def _call_with_schema(
    caller: BudgetedCaller,
    worker: Worker,
    prompt: Request,
    schema: Mapping[str, Any],
    check: ReplyCheck,
) -> Reply:
    """Return a reply that fits the schema, after one retry. Refused and truncated replies pass."""
    reply = await check(await caller(worker, prompt))
    problem = find_mismatch(reply.text, schema) if reply.finish == "stop" else None
    if problem is None:
        return reply
    retry = (*prompt.messages, *repair_request(reply, problem))
    reply = await check(await caller(worker, replace(prompt, messages=retry)))
    if reply.finish == "stop" and find_mismatch(reply.text, schema) is not None:
        raise schema_error(worker.profile.name, reply, schema)
    return reply


class _ReplyStreamer:
    """Streams a worker's reply. A retried call is asked to continue what was sent."""

    def __init__(
        self, sink: StreamSink, prompt: Request, restored: StreamRestorer | None = None
    ) -> None:
        self._sink = sink
        self._prompt = prompt
        self._restored = restored
        self._text = ResumableText()
        self._is_bound = False

    def on_delta(self, delta: Delta) -> None:
        if delta.kind == "thinking":
            self._sink.thinking(delta.text)
        elif delta.kind == "tool_call":
            if self._restored is None and (self._prompt.parallel_tools or not delta.call):
                self._is_bound = True
                self._sink.tool_call(delta)
        elif delta.kind == "choices":
            self._is_bound = True
            self._sink.choices(delta.choices)
        elif delta.kind == "start":
            self._sink.start(delta.usage)
        elif text := self._text.receive(delta.text):
            if self._restored is not None:
                text = self._restored.receive(text)
            self._sink.text(text)

    def on_retry(self, worker: str, error: WorkerError, wait: float) -> Request:
        if self._is_bound:  # no other reply could continue what was sent
            raise error
        self._text.break_off()
        if not self._text.prior_text:
            return self._prompt
        messages = ask_to_continue(self._prompt.messages, self._text.prior_text)
        return replace(self._prompt, messages=messages, prefill="")

    def full_text(self, text: str) -> str:
        """Return the whole text, where `text` is the last call's."""
        return self._text.whole(text)


def _worker_request(request: ApiRequest, profile: WorkerProfile) -> Request:
    messages = strip_call_ids(request.messages)
    messages = tuple(_describe_tool_images(message, profile) for message in messages)
    prefill = ""
    if request.prefill:
        messages = messages[:-1]
        if "prefill" in profile.capabilities:
            prefill = request.prefill
        else:
            messages = ask_to_continue(messages, request.prefill)
    extra = request.extra or None
    return final_request(request.response_options, messages, prefill=prefill, extra=extra)


def _describe_tool_images(message: Message, profile: WorkerProfile) -> Message:
    """Replace images in tool results by text: unlike the user's own images, which are refused,
    they must not end a conversation."""
    if not any(isinstance(part, ToolResult) and part.images for part in message.parts):
        return message
    parts = (
        describe_unseen(part, profile) if isinstance(part, ToolResult) else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def _check(request: ApiRequest, profile: WorkerProfile) -> None:
    params, options = request.params, request.response_options
    for name in ("workflow", "max_steps", "rounds", "quality_bias", "rerun"):
        if getattr(params, name) is not None:
            raise invalid(
                f"podium.{name}",
                f"podium.{name} requires a tier, and {profile.name!r} is a single worker; drop it, "
                f"or choose a tier as model",
            )
    for name in (profile.name, profile.provider):
        if name and name in params.exclude:
            raise ApiError(
                "invalid", f"{name!r} is both requested and excluded", field="podium.exclude"
            )
    check_response_options(options)
    if options.schema is not None:
        check_schema(options.schema)
    needed = sole_worker_capabilities(options, message_images(request.messages))
    missing = needed - profile.capabilities
    if missing:
        raise ApiError(
            "invalid",
            f"{profile.name!r} cannot {describe_capabilities(missing)}; choose another model, or "
            f"where it can, add {' and '.join(map(repr, sorted(missing)))} to its capabilities",
        )
