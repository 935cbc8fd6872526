"""One step: ask its worker, or a fallback, until there is a reply; then make its record.

A plain step is one call. With tools it is a conversation: Podium's own tools are answered at once,
and calls to the client's tools end the step as `waiting` until a resumed run brings the results.
Calls and retries are `calls`; prompts are `requests`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from podium.core.errors import (
    BadReply,
    GuardrailBlocked,
    PromptTooLong,
    RequestRefused,
    WorkerError,
)
from podium.core.events import StepRetried, StepStarted
from podium.core.json_schema import find_mismatch
from podium.core.pool import (
    CONDUCTOR_PROVIDER,
    PYTHON_PROVIDER,
    Capabilities,
    WorkerProfile,
    answer_capabilities,
    intermediate_options,
    is_capable,
    sole_worker_capabilities,
)
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    EMPTY_REPLY,
    Message,
    Reply,
    Request,
    Tool,
    assistant,
    images_in,
    unanswered_calls,
    user,
)
from podium.core.run import GuardrailCheck, Run, StepRecord, StepStatus
from podium.engine.calls import BudgetedCaller
from podium.engine.reply_stream import ReplyStream
from podium.engine.requests import (
    PriorResult,
    compose_prompt,
    repair_request,
    request_for,
    require_capable,
    schema_error,
    tools_for,
)
from podium.engine.tool_calls import answer_calls, assistant_turn, with_answers

if TYPE_CHECKING:
    from podium.engine.execution import Execution

UNFINISHED: Final = "its process ended before it was done"
"""Error of a step that is saved while it runs; visible only after a crash."""

MAX_TOOL_TURNS: Final = 100


class StepRunner:
    """Run one step of an execution."""

    _asked_worker: str
    """The worker that is being asked."""
    _tried: list[str]
    """Workers that were asked or considered so far."""
    _prompt = ""
    _prior_results: Sequence[PriorResult] = ()
    _nested: tuple[Run, ...] = ()
    _checks: tuple[GuardrailCheck, ...] = ()
    _turns: tuple[Message, ...] = ()
    _stream: ReplyStream | None = None
    _first_repair: int | None = None

    def __init__(self, execution: Execution, index: int) -> None:
        self._execution = execution
        self._run = execution.run
        self._context = context = execution.context
        self._reply_checker = execution.reply_checker
        self._index = index
        self._step = execution.steps[index]
        self._first_worker = self._step.worker
        self._started = context.call_policy.clock()
        self._caller = BudgetedCaller(context.call_policy, context.ledger, execution.started)
        self._is_final = index >= execution.earliest_answer_step
        if self._is_final and (execution.stream or not execution.sends_prompt_only):
            self._turns = execution.run.trailing_messages
            streams = execution.stream and index == execution.last  # a later one may replace it
            self._stream = ReplyStream(execution, index, streams=streams)
        before = execution.interrupted.get(index)
        if before is not None:
            self._continue_from(before)

    def _continue_from(self, before: StepRecord) -> None:
        self._caller.attempts.extend(before.attempts)
        self._checks = before.guardrail_checks
        self._nested = reopen_last(before.nested)
        if before.turns:
            self._turns = before.turns
            self._prompt = before.prompt
        if before.status == "waiting" and before.answered_by in self._context.workers:
            self._first_worker = before.answered_by

    async def run(self, prior: Sequence[PriorResult]) -> StepRecord:
        """Ask the worker, then its fallbacks; `prior` are the results that the step may read."""
        self._prior_results = prior
        if not self._prompt:
            run, asked = self._run, self._context.workers[self._step.worker]
            shares = run.pool.share_question and asked.profile.provider != PYTHON_PROVIDER
            self._prompt = compose_prompt(
                self._step.subtask,
                question=run.question if shares else None,
                prior=prior,
                is_final=self._is_final,
            )
        execution, worker = self._execution, self._step.worker
        if execution.emit is not None:
            execution.emit(
                StepStarted(self._run.id, execution.round, self._index, worker, self._prompt)
            )
        name = self._first_worker
        self._tried = [name]
        while True:
            try:
                reply = await self._ask(name)
                break
            except WorkerError as error:
                fallback = self._next_fallback(name, self._tried)
                if fallback is None:
                    raise
                self._report_retry(fallback, error, 0.0)
                name = fallback
        if reply is None:
            sent = Reply(self._sent(), finish="tool")
            return self.record("waiting", sent, answered_by=self._asked_worker)
        return self.record("done", reply, answered_by=self._asked_worker)

    def interrupted_record(self, status: StepStatus, error: str) -> StepRecord:
        """Make the record of a step without a complete reply; what was streamed is kept."""
        return self.record(status, Reply(self._sent()), error=error)

    def record(
        self,
        status: StepStatus,
        reply: Reply = EMPTY_REPLY,
        *,
        error: str | None = None,
        answered_by: str = "",
    ) -> StepRecord:
        step = self._step
        run_started = self._execution.started
        record = StepRecord(  # by position: keywords would cost 4 % of the engine's time
            self._execution.round,
            self._index,
            step.worker,
            step.subtask,
            step.access,
            status,
            reply.text,
            error,
            (self._started - run_started) * 1000,
            (self._context.call_policy.clock() - run_started) * 1000,
            tuple(self._caller.attempts),
            self._prompt,
            answered_by,
            reply.finish,
        )
        if self._nested or self._turns or self._checks or reply.thinking or reply.stop_sequence:
            return replace(
                record,
                nested=self._nested,
                turns=self._turns,
                guardrail_checks=self._checks,
                thinking=reply.thinking,
                stop_sequence=reply.stop_sequence,
            )
        return record

    def _sent(self) -> str:
        return self._stream.sent if self._stream is not None else ""

    def _next_fallback(self, name: str, tried: list[str]) -> str | None:
        """Return the next capable fallback; every worker considered is added to `tried`."""
        pool = self._run.pool
        needed = self._needed_capabilities(pool[name])
        following = pool[name].fallback
        while following is not None and following not in tried:
            tried.append(following)
            if is_capable(pool[following], needed, pool):
                return following
            following = pool[following].fallback
        return None

    def _can_fall_back(self) -> bool:
        return self._next_fallback(self._tried[-1], [*self._tried]) is not None

    def _needed_capabilities(self, profile: WorkerProfile) -> Capabilities:
        """Return what a replacement of that worker must be able to do in this step."""
        run, options = self._run, self._run.response_options
        images = images_in((run.question_message, *run.conversation))
        if options == DEFAULT_RESPONSE_OPTIONS and not images:
            return frozenset()
        if not self._is_final:
            options = intermediate_options(options)
        used = profile.capabilities & sole_worker_capabilities(options, images)
        return used | answer_capabilities(options)

    async def _ask(self, name: str) -> Reply | None:
        """Return the worker's reply, or None if it called tools of the client."""
        self._asked_worker = name
        execution = self._execution
        worker = self._context.workers[name]
        if worker.profile.provider == CONDUCTOR_PROVIDER:
            nested = await self._answer_nested()
            if nested is None or not self._holds_answer:
                return nested
            return await self._conclude(nested, name)
        if not execution.sends_prompt_only:
            self._begin_with(worker.profile)
        self._caller.budget_divisor = execution.last + 1 - len(execution.records)
        stream, reply_checker = self._stream, self._reply_checker
        tool_turns = 0
        while True:
            if self._turns and not await self._own_tools_answered():
                return None
            on_delta = stream.receive if stream is not None and stream.streams else None
            request = self._request(worker.profile)
            reply = await self._caller(
                worker, request, on_delta, self._report_retry, self._can_fall_back
            )
            if stream is not None and stream.prior_text:
                reply = stream.complete(reply)
            if reply_checker is not None:
                reply = await self._inspect(reply, name)
            if reply.tool_calls:
                tool_turns += 1
                if tool_turns > MAX_TOOL_TURNS:
                    raise BadReply(f"{name} exceeded {MAX_TOOL_TURNS} tool turns")
                self._take_calls(reply, worker.profile)
            elif not reply.text.strip():
                refused = reply.finish == "refused"
                what = "refused to answer" if refused else "returned an empty reply"
                raise WorkerError(f"{name} {what}")
            elif execution.sends_prompt_only or self._fits_schema(reply, name):
                if stream is None and reply_checker is None:
                    return reply
                return await self._conclude(reply, name)

    async def _conclude(self, reply: Reply, name: str) -> Reply:
        """Return the whole reply, checked as the answer if it is one, and send what was held."""
        stream = self._stream
        if stream is not None and stream.before_tools:
            reply = stream.conclude(reply)
        if self._holds_answer:
            reply = await self._inspect_answer(reply, name)
        if stream is not None and stream.holds_back and reply.finish != "refused":
            stream.send_rest(reply.text)  # a refusal has a form of its own in some dialects
        return reply

    @property
    def _holds_answer(self) -> bool:
        """True if guardrails must see the whole reply before any of it is sent."""
        return (
            self._is_final
            and self._reply_checker is not None
            and self._reply_checker.checks_answers
        )

    async def _inspect(self, reply: Reply, worker: str) -> Reply:
        """Apply the guardrails on replies. Thinking is dropped: they do not see it.

        Only what the provider needs to continue after tool calls is kept of it.
        """
        reply_checker = self._reply_checker
        assert reply_checker is not None

        async def check(text: str) -> str:
            return await reply_checker.check("reply", text, self._index, worker, self._add_check)

        calls = [replace(call, arguments=await check(call.arguments)) for call in reply.tool_calls]
        needed = tuple(part for part in reply.thinking if part.opaque) if calls else ()
        text = await check(reply.text) if reply.text else ""
        return replace(reply, text=text, tool_calls=tuple(calls), thinking=needed)

    async def _inspect_answer(self, reply: Reply, worker: str) -> Reply:
        """Apply the guardrails on answers; one that breaks the demanded schema blocks."""
        assert self._reply_checker is not None
        first = len(self._checks)
        records = self._execution.records
        others = [records[index] for index in sorted(records)]
        text = await self._reply_checker.check(
            "answer", reply.text, self._index, worker, self._add_check, others
        )
        schema = self._run.response_options.schema
        if text != reply.text and schema is not None:
            problem = find_mismatch(text, schema, quotes=False)
            if problem:
                guardrail = self._checks[first:][-1].guardrail
                raise GuardrailBlocked(
                    guardrail, "answer", f"what it left of it does not fit: {problem}"
                )
        return replace(reply, text=text, thinking=())

    def _add_check(self, check: GuardrailCheck) -> None:
        self._checks += (check,)

    def _begin_with(self, profile: WorkerProfile) -> None:
        """Refuse an incapable worker, and drop the repair turns of the one before."""
        if self._is_final:
            require_capable(profile, self._run.response_options)
        if self._first_repair is not None:
            self._turns = self._turns[: self._first_repair]
            self._first_repair = None

    def _request(self, profile: WorkerProfile) -> Request:
        prior_text = self._stream.prior_text if self._stream is not None else ""
        if self._execution.sends_prompt_only and not self._turns and not prior_text:
            return Request((user(self._prompt),))
        return request_for(
            profile,
            self._prompt,
            self._run,
            self._turns,
            self._tools(profile),
            is_final=self._is_final,
            prior_text=prior_text,
        )

    def _tools(self, profile: WorkerProfile) -> tuple[Tool, ...]:
        options = self._run.response_options
        with_client_tools = self._index == self._execution.earliest_answer_step
        return tools_for(
            profile, options, self._context.toolbox, with_client_tools=with_client_tools
        )

    def _take_calls(self, reply: Reply, profile: WorkerProfile) -> None:
        if not self._tools(profile):
            called = ", ".join(call.name for call in reply.tool_calls)
            raise BadReply(f"{profile.name} called {called}, but was offered no tools")
        options = self._run.response_options
        self._turns += (assistant_turn(reply, options, self._context.call_ids),)
        if self._stream is not None:
            self._stream.add_before_tools(reply.text)

    async def _own_tools_answered(self) -> bool:
        """Have Podium's own tools answer; False if the client's results are still missing."""
        calls = unanswered_calls(self._turns)
        if not calls:
            return True
        clients = {tool.name for tool in self._run.response_options.tools}
        own = [call for call in calls if call.name not in clients]
        if own:
            results = await answer_calls(own, self._execution, self._index)
            self._turns = with_answers(self._turns, {result.call_id: result for result in results})
            self._execution.save_progress(self.record("cancelled", error=UNFINISHED))
        return not unanswered_calls(self._turns)

    def _fits_schema(self, reply: Reply, name: str) -> bool:
        """True if the reply is what is demanded; otherwise ask for it once more.

        Refusals and replies cut off at their length pass: they say so themselves.
        """
        schema = self._run.response_options.schema
        if schema is None or not self._is_final or reply.finish != "stop":
            return True
        problem = find_mismatch(reply.text, schema)
        if problem is None:
            return True
        if self._first_repair is not None:
            raise schema_error(name, reply, schema)
        self._first_repair = len(self._turns)
        self._turns += repair_request(reply, problem)
        return False

    async def _answer_nested(self) -> Reply | None:
        """Return the answer of a nested run, or None while that waits.

        What the step may read becomes the conversation before its question.
        """
        execution, run, is_final = self._execution, self._run, self._is_final
        history = list(run.history if is_final else run.conversation)
        for result in self._prior_results:
            history += (user(result.subtask), assistant(result.reply))
        resumed = self._nested[-1] if self._nested else None
        if resumed is not None and resumed.status not in ("running", "interrupted", "waiting"):
            resumed = None
        options = run.response_options
        await execution.run_nested(
            self._step.subtask,
            tuple(history),
            run.trailing_messages if is_final else (),
            options if is_final else intermediate_options(options),
            step=self._index,
            resumed=resumed,
            stream=execution.stream and self._index == execution.last and not self._holds_answer,
            on_change=self._save_nested,
        )
        nested = self._nested[-1]
        if nested.status != "waiting":
            return nested_reply(nested)
        if nested.answer and self._stream is not None:
            self._stream.add_before_tools(nested.answer, is_sent=True)
        return None

    def _save_nested(self, run: Run) -> None:
        """Store the nested run as it stands, replacing its earlier state."""
        nested = self._nested
        before = nested[:-1] if nested and nested[-1].id == run.id else nested
        self._nested = (*before, run)
        if run.status == "running":
            self._execution.save_progress(self.record("cancelled", error=UNFINISHED))

    def _report_retry(self, worker: str, error: WorkerError, wait: float) -> Request:
        sent_chars = 0
        if self._stream is not None:
            if self._stream.has_sent_calls:
                raise error
            self._stream.break_off()
            sent_chars = len(self._stream.sent) if self._stream.streams else 0
        run_id, round_, emit = self._run.id, self._execution.round, self._execution.emit
        if emit is not None:
            emit(StepRetried(run_id, round_, self._index, worker, str(error), wait, sent_chars))
        return self._request(self._context.workers[worker].profile)


def reopen_last(nested: tuple[Run, ...]) -> tuple[Run, ...]:
    """Reopen the last nested run of a resumed step, so that its finished steps are not repeated."""
    if nested and nested[-1].status in ("failed", "exhausted", "answered"):
        return (*nested[:-1], replace(nested[-1], status="interrupted"))
    return nested


def nested_reply(nested: Run) -> Reply:
    """Return the nested run's answer as a reply; raise `WorkerError` if it has none."""
    if nested.answer is None:
        refusal = RequestRefused if nested.request_refused else WorkerError
        error = PromptTooLong if nested.context_exceeded else refusal
        raise error(
            nested.error or "the nested run gave no answer",
            retry_after=nested.retry_after,
            status=nested.error_status,
        )
    return nested.final_reply
