"""The conversation of a request as a run takes it: history, question and tool results.

Clients see ids of tool calls that name the waiting run, so that any process finds it. Inside,
calls have the ids that their workers gave them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from podium.core.request import Effort, Image, Message, Part, Text, ToolCall, ToolResult, assistant
from podium.core.run import Run
from podium.engine.runner import Options
from podium.server.api_error import invalid


class PlanLimits(NamedTuple):
    """The most steps of a plan and the most rounds."""

    max_steps: int
    rounds: int


def limits_for_effort(
    effort: Effort | None, defaults: Options, *, can_replan: bool = True
) -> PlanLimits:
    """Map a reasoning effort to limits: `none` and `minimal` one step, `low` two steps in one
    round, `high` one more round than the default. A conductor that cannot replan has one round."""
    match effort:
        case "none" | "minimal":
            steps, rounds = 1, 1
        case "low":
            steps, rounds = min(2, defaults.max_steps), 1
        case "high":
            steps, rounds = defaults.max_steps, max(2, defaults.rounds + 1)
        case _:
            steps, rounds = defaults.max_steps, defaults.rounds
    return PlanLimits(steps, rounds if can_replan else 1)


IMAGE_QUESTION: Final = "See the picture."
"""The question where a client sends an image without text."""

_EXPOSED_ID: Final = re.compile(r"call_([0-9a-f]{16})_(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turn:
    """The question and the history before it.

    With `results` there is no question: the run `waiting` is resumed with them. `fallback` is the
    turn to answer if that run is gone, where the client sent more than results.
    """

    history: tuple[Message, ...]
    question: str = ""
    images: tuple[Image, ...] = ()
    results: tuple[ToolResult, ...] = ()
    waiting: str = ""
    fallback: Turn | None = None


def parse_turn(messages: Sequence[Message]) -> Turn:
    """Split off the last turn of a conversation."""
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    start = replies[-1] + 1 if replies else 0
    latest = messages[start:]
    results = [part for turn in latest for part in turn.parts if isinstance(part, ToolResult)]
    if results:
        instructions = [message for message in latest if message.role == "system"]
        rest = [message for message in latest if message.role != "system"]
        return _parse_results((*messages[:start], *instructions), rest, results)
    questions = [index for index, message in enumerate(latest) if message.role == "user"]
    if not questions:
        raise invalid("messages", "the last message must be from the user")
    last = questions[-1]
    history = (*messages[:start], *latest[:last], *latest[last + 1 :])
    images = tuple(part for part in latest[last].parts if isinstance(part, Image))
    question = latest[last].text
    if not question.strip():
        if not images:
            raise invalid("messages", "the last message is empty")
        question = IMAGE_QUESTION
    return Turn(strip_call_ids(history), question, images)


def _parse_results(
    history: tuple[Message, ...], latest: Sequence[Message], results: list[ToolResult]
) -> Turn:
    """Read tool results. Text and images beside them reach the worker with the last result. If the
    calls were made by another server, no run can resume, and the text is the question."""
    text = "\n\n".join(filter(None, (message.text for message in latest)))
    images = tuple(part for turn in latest for part in turn.parts if isinstance(part, Image))
    fallback = None
    if text.strip() or images:
        earlier = (*history, *(_only_results(message) for message in latest))
        question = text if text.strip() else IMAGE_QUESTION
        fallback = Turn(strip_call_ids(m for m in earlier if m.parts), question, images)
        if _are_from_another_server(results, history):
            return fallback
    waiting = _find_run_id(results)
    own = [replace(result, call_id=_split_call_id(result.call_id)[1]) for result in results]
    if fallback is not None:
        last = own[-1]
        joined = f"{last.text}\n\n{text}" if text.strip() else last.text
        own[-1] = replace(last, text=joined, images=(*last.images, *images))
    return Turn(strip_call_ids(history), results=tuple(own), waiting=waiting, fallback=fallback)


def _are_from_another_server(results: Iterable[ToolResult], history: Iterable[Message]) -> bool:
    """True if the history holds all the calls, and no run here made any of them."""
    calls = {part.id for turn in history for part in turn.parts if isinstance(part, ToolCall)}
    return all(
        result.call_id in calls and not _split_call_id(result.call_id)[0] for result in results
    )


def _find_run_id(results: list[ToolResult]) -> str:
    """Return the id of the one run that made all the calls."""
    runs = {_split_call_id(result.call_id)[0] for result in results}
    unknown = [result.call_id for result in results if not _split_call_id(result.call_id)[0]]
    if unknown or len(runs) != 1:
        ids = ", ".join(repr(id_[:80]) for id_ in unknown or [r.call_id for r in results])
        raise invalid(
            "messages",
            f"no run waits for the tool results {ids}; send the results of the calls of one "
            f"response, with unchanged ids",
        )
    return runs.pop()


def _only_results(message: Message) -> Message:
    return replace(message, parts=tuple(p for p in message.parts if isinstance(p, ToolResult)))


def question_message(run: Run) -> Message:
    """Return the question of a run with its images."""
    return Message("user", (Text(run.question), *run.images))


def continue_run(run: Run, turn: Turn) -> Turn:
    """Put the conversation of a stored run before the turn; its instructions replace the run's."""
    answer = () if run.answer is None else (assistant(run.answer),)
    earlier = (*run.history, question_message(run), *answer)
    if any(message.role == "system" for message in turn.history):
        earlier = earlier[_count_instructions(earlier) :]
    count = _count_instructions(turn.history)
    return replace(turn, history=(*turn.history[:count], *earlier, *turn.history[count:]))


def _count_instructions(messages: Sequence[Message]) -> int:
    """Count the system messages that begin a conversation."""
    return next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))


def expose_call_ids(run_id: str, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return a run's calls with the ids that clients see."""
    run = run_id.removeprefix("run_")
    return tuple(replace(call, id=f"call_{run}_{call.id}") for call in calls)


def strip_call_ids(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages with the workers' own ids of calls."""
    return tuple(
        replace(message, parts=tuple(map(_strip_call_id, message.parts)))
        if any(isinstance(part, ToolCall | ToolResult) for part in message.parts)
        else message
        for message in messages
    )


def _strip_call_id(part: Part) -> Part:
    if isinstance(part, ToolCall):
        return replace(part, id=_split_call_id(part.id)[1])
    if isinstance(part, ToolResult):
        return replace(part, call_id=_split_call_id(part.call_id)[1])
    return part


def _split_call_id(id_: str) -> tuple[str, str]:
    """Return the run that an id names, or "", and the worker's own id."""
    found = _EXPOSED_ID.fullmatch(id_)
    return (f"run_{found[1]}", found[2]) if found else ("", id_)
