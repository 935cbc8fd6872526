"""Going on with a run: which may go on at all, and where the results of the client's tools belong.

A result belongs to the step that made the call, and to no other; also when that step is one of a
nested run. A client that does not know whether its results arrived sends them again: the same
results once more change nothing, and the run goes on from where it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from podium.core.errors import ConfigError, UsageError
from podium.core.request import Message, Part, ToolCall, ToolResult, unanswered
from podium.core.run import Run, StepRecord


def refuse_to_go_on(run: Run, in_force: Collection[str]) -> None:
    """Refuse a run that is done with, and one that would get out of a guardrail by going on;
    `in_force` are the names of the guardrails there are now. Raises `ConfigError`."""
    if run.status == "answered":
        raise ConfigError(f"{run.id} is answered already; there is nothing to resume")
    if run.blocked_by:
        raise ConfigError(
            f"{run.id} was blocked by the guardrail {run.blocked_by!r}, and stays so; ask again"
        )
    for name in run.guardrails:
        if name not in in_force:
            raise ConfigError(
                f"{run.id} began under the guardrail {name!r}, which is not in force now; "
                f"configure it again, or ask again"
            )


def with_results(run: Run, results: Sequence[ToolResult]) -> Run:
    """The run with the results in its waiting steps; raises `UsageError` unless there is exactly
    one for each call that it waits for. Those that it was given before are passed over.

    A run that was interrupted while some of its steps wait may go on without results.
    """
    pending = {call.id: call for call in run.left_waiting}
    before = _given_before(run)
    given: dict[str, ToolResult] = {}
    for result in results:
        if result.call_id not in pending:
            if _is_repeated(run, before, result):
                continue
            if result.call_id in before:
                raise UsageError(
                    f"{run.id} has a result for the call {result.call_id!r} already, and another "
                    f"one; a result cannot be changed"
                )
            raise UsageError(
                f"there is a result for the call {result.call_id!r}, but {run.id} waits for "
                f"{', '.join(pending) or 'none'}"
            )
        if result.call_id in given:
            raise UsageError(f"there are two results for the call {result.call_id!r}; give one")
        given[result.call_id] = result
    missing = [call for call in pending.values() if call.id not in given]
    if missing and (given or run.status == "waiting"):
        wanted = ", ".join(f"{call.id} ({call.name})" for call in missing)
        raise UsageError(f"{run.id} waits for the results of {wanted}; give them all")
    return _answered(run, given) if given else run


def repeats(run: Run, results: Sequence[ToolResult]) -> bool:
    """Whether the run was given these very results before."""
    before = _given_before(run)
    return all(_is_repeated(run, before, result) for result in results)


def _is_repeated(run: Run, before: Mapping[str, ToolResult], result: ToolResult) -> bool:
    """Whether the run was given that result before. What guardrails left of one is on record, and
    not what it was, so that with them any result for the same call is taken for the same."""
    if run.guardrails:
        return result.call_id in before
    return before.get(result.call_id) == result


def goes_on_with_results(run: Run) -> bool:
    """Whether the client can have the run go on by sending results: it waits for them, or it was
    cut off after it was given some."""
    if run.status in ("waiting", "answered"):
        return run.status == "waiting"
    clients = {tool.name for tool in run.response_options.tools}
    given = _given_before(run)
    return any(call.id in given and call.name in clients for call in _calls(run))


def known_calls(run: Run) -> set[str]:
    """The ids of all tool calls in the run and in the conversation before it."""
    return {call.id for call in _calls(run)}


def with_answers(
    turns: tuple[Message, ...], results: Mapping[str, ToolResult]
) -> tuple[Message, ...]:
    """The turns, with those of the results that answer calls of the last assistant turn. They
    are one message, in the order of the calls, together with what was answered before."""
    given: dict[str, Part] = {
        call.id: results[call.id] for call in unanswered(turns) if call.id in results
    }
    if not given:
        return turns
    if turns[-1].role == "tool":
        given |= {part.call_id: part for part in turns[-1].parts if isinstance(part, ToolResult)}
        turns = turns[:-1]
    calls = (part for part in turns[-1].parts if isinstance(part, ToolCall))
    return (*turns, Message("tool", tuple(given[call.id] for call in calls if call.id in given)))


def _answered(run: Run, given: Mapping[str, ToolResult]) -> Run:
    last = run.rounds[-1]
    steps = tuple(_answered_step(step, given) if step.waiting_for else step for step in last.steps)
    return replace(run, rounds=(*run.rounds[:-1], replace(last, steps=steps)))


def _answered_step(step: StepRecord, given: Mapping[str, ToolResult]) -> StepRecord:
    if unanswered(step.turns):
        return replace(step, turns=with_answers(step.turns, given))
    return replace(step, nested=(*step.nested[:-1], _answered(step.nested[-1], given)))


def _given_before(run: Run) -> dict[str, ToolResult]:
    """The results that steps of the run have, by the ids of their calls."""
    results = {
        part.call_id: part
        for step in run.steps
        for turn in step.turns
        for part in turn.parts
        if isinstance(part, ToolResult)
    }
    for step in run.steps:
        for nested in step.nested:
            results |= _given_before(nested)
    return results


def _calls(run: Run) -> Iterator[ToolCall]:
    yield from _calls_in(run.history)
    for step in run.steps:
        yield from _calls_in(step.turns)
        for nested in step.nested:
            yield from _calls(nested)


def _calls_in(turns: Sequence[Message]) -> Iterator[ToolCall]:
    for message in turns:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield part
