"""The use of tools in a step: calls that can be told apart, and Podium's own tools carried out.

What the client's tools answer is none of this: the step waits for it, and a resumed run has it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podium.core.errors import BadReply
from podium.core.events import ToolUsed
from podium.core.request import Message, Reply, ResponseOptions, ToolCall, ToolResult
from podium.engine.assignment import Scope
from podium.engine.requests import turn_of
from podium.engine.resume import with_answers

if TYPE_CHECKING:
    from podium.engine.execution import Execution


def unwanted_calls(reply: Reply, worker: str) -> BadReply:
    """What is said of a worker that called tools although it has none."""
    called = ", ".join(call.name for call in reply.tool_calls)
    return BadReply(f"{worker} called {called}, but was offered no tools")


def turn_with_calls(reply: Reply, response_options: ResponseOptions, known: set[str]) -> Message:
    """The turn in which the worker called tools, one at a time where that is demanded; `known`
    takes up the ids of its calls."""
    if not response_options.parallel_tools:
        reply = reply.with_one_call()
    return turn_of(reply, with_own_ids(reply.tool_calls, known))


async def with_own_answers(
    turns: tuple[Message, ...], calls: Sequence[ToolCall], execution: Execution, index: int
) -> tuple[Message, ...]:
    """What was said in the step, with what Podium's own tools answer to those of the calls that
    are for them; the client's are left."""
    clients = {tool.name for tool in execution.assignment.response_options.tools}
    ours = [call for call in calls if call.name not in clients]
    if not ours:
        return turns
    results = await carry_out(ours, execution.scope, execution.assignment.round, index)
    return with_answers(turns, {result.call_id: result for result in results})


def with_own_ids(calls: Sequence[ToolCall], known: set[str]) -> tuple[ToolCall, ...]:
    """The calls, each with an id that no other has; `known` takes them up. Results find their
    step by the id, so no two calls of a run may share one."""
    named = []
    for call in calls:
        if not call.id or call.id in known:
            call = replace(call, id=f"call_{secrets.token_hex(8)}")
        known.add(call.id)
        named.append(call)
    return tuple(named)


async def carry_out(
    calls: Sequence[ToolCall], scope: Scope, round_: int, index: int
) -> list[ToolResult]:
    """What Podium's own tools answer, all of them at once. Each use counts as a call of the
    budget; raises `BudgetExhausted` before any is carried out that would pass it."""
    for _ in calls:
        scope.ledger.count()
    if len(calls) == 1:
        return [await _answer(calls[0], scope, round_, index)]
    return list(await asyncio.gather(*(_answer(call, scope, round_, index) for call in calls)))


async def _answer(call: ToolCall, scope: Scope, round_: int, index: int) -> ToolResult:
    """What the tool answers; whatever goes wrong is an answer as well."""
    toolbox = scope.toolbox
    if toolbox is None or all(tool.name != call.name for tool in toolbox.tools):
        return ToolResult(call.id, f"there is no tool named {call.name!r}", is_error=True)
    try:
        result = replace(await toolbox.call(call), call_id=call.id)
    except Exception as error:  # noqa: BLE001 - a tool may be anyone's
        result = ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)
    if scope.emit is not None:
        scope.emit(ToolUsed(scope.run_id, round_, index, call, result))
    return result
