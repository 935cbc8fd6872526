"""Tool calls of a run: unique ids, Podium's own tools, and the client's results.

A result belongs to the step that made the call, also in a nested run. Sending the same results
again changes nothing, so a client may retry.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.core.errors import UsageError
from podium.core.events import ToolUsed
from podium.core.request import (
    Message,
    Part,
    Reply,
    ResponseOptions,
    ToolCall,
    ToolResult,
    unanswered_calls,
)
from podium.core.run import Run, StepRecord
from podium.engine.requests import reply_message

if TYPE_CHECKING:
    from podium.engine.execution import Execution


def assistant_turn(reply: Reply, options: ResponseOptions, known: set[str]) -> Message:
    """Return the turn in which a worker called tools; ids of its calls are added to `known`.

    Results find their step by the id, so a missing or repeated one is replaced.
    """
    if not options.parallel_tools:
        reply = reply.with_first_call()
    calls = []
    for call in reply.tool_calls:
        if not call.id or call.id in known:
            call = replace(call, id=f"call_{secrets.token_hex(8)}")
        known.add(call.id)
        calls.append(call)
    return reply_message(reply, tuple(calls))


async def answer_calls(
    calls: Sequence[ToolCall], execution: Execution, index: int
) -> list[ToolResult]:
    """Call Podium's own tools, concurrently. Each counts as a call of the budget.

    Raises `BudgetExhausted` before any is called if they would exceed it.
    """
    for _ in calls:
        execution.context.ledger.count_tool_call()
    return list(await asyncio.gather(*(_answer(call, execution, index) for call in calls)))


async def _answer(call: ToolCall, execution: Execution, index: int) -> ToolResult:
    toolbox = execution.context.toolbox
    if toolbox is None or all(tool.name != call.name for tool in toolbox.tools):
        return ToolResult(call.id, f"there is no tool named {call.name!r}", is_error=True)
    try:
        result = replace(await toolbox.call(call), call_id=call.id)
    except Exception as error:  # noqa: BLE001 - a tool is user code
        result = ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)
    if execution.emit is not None:
        execution.emit(ToolUsed(execution.run.id, execution.round, index, call, result))
    return result


def with_answers(
    turns: tuple[Message, ...], results: Mapping[str, ToolResult]
) -> tuple[Message, ...]:
    """Add the results that answer the last assistant turn, as one message in call order."""
    given: dict[str, Part] = {
        call.id: results[call.id] for call in unanswered_calls(turns) if call.id in results
    }
    if not given:
        return turns
    if turns[-1].role == "tool":
        given |= {part.call_id: part for part in turns[-1].parts if isinstance(part, ToolResult)}
        turns = turns[:-1]
    calls = (part for part in turns[-1].parts if isinstance(part, ToolCall))
    return (*turns, Message("tool", tuple(given[call.id] for call in calls if call.id in given)))


def apply_results(run: Run, results: Sequence[ToolResult]) -> Run:
    """Add the client's results to the waiting steps; results given before are ignored.

    Raises `UsageError` unless there is exactly one result for each pending call. An interrupted
    run, some of whose steps wait, may continue without results.
    """
    pending = {call.id: call for call in run.pending_tool_calls}
    before = _given_results(run)
    given: dict[str, ToolResult] = {}
    for result in results:
        if result.call_id not in pending:
            if _is_repeated(run, before, result):
                continue
            if result.call_id in before:
                raise UsageError(
                    f"{run.id} already has another result for the call {result.call_id!r}; "
                    f"a result cannot be changed"
                )
            raise UsageError(
                f"unexpected result for the call {result.call_id!r}: {run.id} waits for "
                f"{', '.join(pending) or 'none'}"
            )
        if result.call_id in given:
            raise UsageError(f"there are two results for the call {result.call_id!r}; give one")
        given[result.call_id] = result
    missing = [call for call in pending.values() if call.id not in given]
    if missing and (given or run.status == "waiting"):
        wanted = ", ".join(f"{call.id} ({call.name})" for call in missing)
        raise UsageError(f"{run.id} waits for the results of {wanted}; give them all")
    return _with_results(run, given) if given else run


def _is_repeated(run: Run, before: Mapping[str, ToolResult], result: ToolResult) -> bool:
    """True if the run already has the result.

    With guardrails only the redacted result is recorded, so any result for that call is the same.
    """
    if run.guardrails:
        return result.call_id in before
    return before.get(result.call_id) == result


def awaits_results(run: Run) -> bool:
    """True if the client can continue the run by sending results: it waits, or was cut off."""
    if run.status in ("waiting", "answered"):
        return run.status == "waiting"
    clients = {tool.name for tool in run.response_options.tools}
    given = _given_results(run)
    return any(call.id in given and call.name in clients for call in _calls(run))


def tool_call_ids(run: Run) -> set[str]:
    """Return the ids of all tool calls in the run and in the conversation before it."""
    return {call.id for call in _calls(run)}


def _with_results(run: Run, given: Mapping[str, ToolResult]) -> Run:
    last = run.rounds[-1]
    steps = tuple(
        _step_with_results(step, given) if step.waiting_for else step for step in last.steps
    )
    return replace(run, rounds=(*run.rounds[:-1], replace(last, steps=steps)))


def _step_with_results(step: StepRecord, given: Mapping[str, ToolResult]) -> StepRecord:
    if unanswered_calls(step.turns):
        return replace(step, turns=with_answers(step.turns, given))
    return replace(step, nested=(*step.nested[:-1], _with_results(step.nested[-1], given)))


def _given_results(run: Run) -> dict[str, ToolResult]:
    results = {
        part.call_id: part
        for step in run.steps
        for turn in step.turns
        for part in turn.parts
        if isinstance(part, ToolResult)
    }
    for step in run.steps:
        for nested in step.nested:
            results |= _given_results(nested)
    return results


def _calls(run: Run) -> Iterator[ToolCall]:
    yield from _calls_in(run.history)
    yield from _calls_in(run.trailing_messages)
    for step in run.steps:
        yield from _calls_in(step.turns)
        for nested in step.nested:
            yield from _calls(nested)


def _calls_in(turns: Sequence[Message]) -> Iterator[ToolCall]:
    for message in turns:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield part
