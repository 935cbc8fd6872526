"""The conversation that a client tells, as a run takes it: what came before, the question with
its pictures, or the results of tools that a run waits for.

The ids of tool calls that clients get to see name the run that waits for them, so that the next
request finds it in whichever process it arrives. Inside, calls have the ids that their workers
gave them.
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
    """The most steps of a plan, and the most rounds."""

    max_steps: int
    rounds: int


def limits_for_effort(
    effort: Effort | None, usual: Options, *, may_plan_again: bool = True
) -> PlanLimits:
    """What an effort comes to, where `usual` is what the settings allow.

    Without one, or with a medium one, it is what is usual. `none` and `minimal` leave a single
    step; `low` leaves two, in one round; `high` lets the conductor look at the answer once more
    than usual, and at least once. A conductor that would not plan again has one round.
    """
    match effort:
        case "none" | "minimal":
            steps, rounds = 1, 1
        case "low":
            steps, rounds = min(2, usual.max_steps), 1
        case "high":
            steps, rounds = usual.max_steps, max(2, usual.rounds + 1)
        case _:
            steps, rounds = usual.max_steps, usual.rounds
    return PlanLimits(steps, rounds if may_plan_again else 1)


IMAGE_QUESTION: Final = "See the picture."
"""The question where a client sends a picture without a word."""

_EXPOSED_ID: Final = re.compile(r"call_([0-9a-f]{16})_(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked now, and what came before. With `results` there is no question: the run
    `waiting` is to go on with them. Where more came beside them, `afresh` is what is to be asked
    should that run be gone."""

    history: tuple[Message, ...]
    question: str = ""
    images: tuple[Image, ...] = ()
    results: tuple[ToolResult, ...] = ()
    waiting: str = ""
    afresh: Turn | None = None


def parse_turn(messages: Sequence[Message]) -> Turn:
    """The last turn of a conversation."""
    spoken = [index for index, message in enumerate(messages) if message.role == "assistant"]
    start = spoken[-1] + 1 if spoken else 0
    latest = messages[start:]
    results = [part for turn in latest for part in turn.parts if isinstance(part, ToolResult)]
    if results:
        told = [message for message in latest if message.role == "system"]
        said = [message for message in latest if message.role != "system"]
        return _resuming((*messages[:start], *told), said, results)
    request = [index for index, message in enumerate(latest) if message.role == "user"]
    if not request:
        raise invalid("messages", "the last turn is not the user's; end with what is asked")
    question = latest[request[-1]]
    before = (*messages[:start], *latest[: request[-1]], *latest[request[-1] + 1 :])
    images = tuple(part for part in question.parts if isinstance(part, Image))
    words = question.text
    if not words.strip():
        if not images:
            raise invalid("messages", "the last turn is empty; ask something")
        words = IMAGE_QUESTION
    return Turn(strip_call_ids(before), words, images)


def _resuming(
    history: tuple[Message, ...], latest: Sequence[Message], results: list[ToolResult]
) -> Turn:
    """Tools have answered. Words and pictures beside their results reach the worker with the last
    of them, for that is where it goes on. Where the calls were made elsewhere, for the conversation
    began with another server, no run goes on: what is said beside the results is asked."""
    words = "\n\n".join(filter(None, (message.text for message in latest)))
    images = tuple(part for turn in latest for part in turn.parts if isinstance(part, Image))
    afresh = None
    if words.strip() or images:
        told = (*history, *(_only_results(message) for message in latest))
        request = words if words.strip() else IMAGE_QUESTION
        afresh = Turn(strip_call_ids(m for m in told if m.parts), request, images)
        if _made_elsewhere(results, history):
            return afresh
    waiting = _run_waiting_for(results)
    own = [replace(result, call_id=_parts_of(result.call_id)[1]) for result in results]
    if afresh is not None:
        last = own[-1]
        text = f"{last.text}\n\n{words}" if words.strip() else last.text
        own[-1] = replace(last, text=text, images=(*last.images, *images))
    return Turn(strip_call_ids(history), results=tuple(own), waiting=waiting, afresh=afresh)


def _made_elsewhere(results: Iterable[ToolResult], history: Iterable[Message]) -> bool:
    """Whether all the calls are told in the conversation, and no run here made any of them."""
    calls = {part.id for turn in history for part in turn.parts if isinstance(part, ToolCall)}
    return all(result.call_id in calls and not _parts_of(result.call_id)[0] for result in results)


def _run_waiting_for(results: list[ToolResult]) -> str:
    """The one run that made all the calls."""
    runs = {_parts_of(result.call_id)[0] for result in results}
    unknown = [result.call_id for result in results if not _parts_of(result.call_id)[0]]
    if unknown or len(runs) != 1:
        named = ", ".join(repr(id_[:80]) for id_ in unknown or [r.call_id for r in results])
        raise invalid(
            "messages",
            f"there are results for {named}, and no run here waits for "
            f"{'that' if len(unknown) == 1 else 'these'}; send the results of the calls of one "
            f"answer, with their ids as they came",
        )
    return runs.pop()


def _only_results(message: Message) -> Message:
    return replace(message, parts=tuple(p for p in message.parts if isinstance(p, ToolResult)))


def question_message(run: Run) -> Message:
    """What was asked in a run, with its pictures."""
    return Message("user", (Text(run.question), *run.images))


def continue_run(run: Run, turn: Turn) -> Turn:
    """The turn as it goes on from that run's answer. Instructions that come with it take the place
    of those that the conversation began with."""
    answer = () if run.answer is None else (assistant(run.answer),)
    earlier = (*run.history, question_message(run), *answer)
    if any(message.role == "system" for message in turn.history):
        earlier = earlier[_instructions(earlier) :]
    count = _instructions(turn.history)
    return replace(turn, history=(*turn.history[:count], *earlier, *turn.history[count:]))


def _instructions(messages: Sequence[Message]) -> int:
    """How many system messages a conversation begins with."""
    return next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))


def expose_call_ids(run_id: str, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """A run's calls with the ids that clients get to see."""
    run = run_id.removeprefix("run_")
    return tuple(replace(call, id=f"call_{run}_{call.id}") for call in calls)


def strip_call_ids(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages with the ids of calls as their workers gave them."""
    return tuple(
        replace(message, parts=tuple(map(_inside, message.parts)))
        if any(isinstance(part, ToolCall | ToolResult) for part in message.parts)
        else message
        for message in messages
    )


def _inside(part: Part) -> Part:
    if isinstance(part, ToolCall):
        return replace(part, id=_parts_of(part.id)[1])
    if isinstance(part, ToolResult):
        return replace(part, call_id=_parts_of(part.call_id)[1])
    return part


def _parts_of(id_: str) -> tuple[str, str]:
    """The run that an id names, if it does, and the worker's own id."""
    found = _EXPOSED_ID.fullmatch(id_)
    return (f"run_{found[1]}", found[2]) if found else ("", id_)
