"""What a worker is asked: the conversation as this very worker may have it, and the terms.

The words of a step's own message are `context`; here it is put after the conversation before it
and before what was said in the step since. Each worker gets what it can take: thinking goes only
to the model that did it, images only to those who can see, and where no tools are offered, what
was done with tools is told in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from string import Template
from typing import Any, Final

from podium.core.budget import estimated_input_tokens
from podium.core.errors import BadReply, RequestRefused
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import (
    Image,
    Message,
    Part,
    Reply,
    Request,
    ResponseOptions,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    assistant,
    user,
)
from podium.core.requirements import final_needs, needs_in_words, offers_tools
from podium.core.run import Round, Run, StepRecord
from podium.core.structured_output import misfit_unquoted
from podium.core.toolbox import Toolbox, toolbox_excluding
from podium.engine.assignment import Assignment
from podium.engine.context import prompt_text

ROOM_FOR_AN_ANSWER: Final = 1024
"""Tokens that are left for the reply where nobody says how long it may be, but never more than a
quarter of the window."""

UNSEEN: Final = "[an image that you cannot see]"


def require_able(profile: WorkerProfile, response_options: ResponseOptions) -> None:
    """Refuse a worker that cannot do what the final step must."""
    missing = final_needs(response_options) - profile.capabilities
    if missing:
        what = needs_in_words(missing)
        raise RequestRefused(f"{profile.name} cannot {what}, which the answer needs")


def tools_for(
    profile: WorkerProfile,
    response_options: ResponseOptions,
    toolbox: Toolbox | None,
    *,
    is_final: bool,
) -> tuple[Tool, ...]:
    """What the worker may call in its step. That tools are not to be called must be told to the
    final step alone; the others are not offered them."""
    if "tools" not in profile.capabilities:
        return ()
    clients = response_options.tools if is_final or offers_tools(response_options) else ()
    return clients if toolbox is None else (*clients, *toolbox.tools)


def request_for(
    profile: WorkerProfile,
    prompt: str,
    assignment: Assignment,
    turns: Sequence[Message],
    tools: tuple[Tool, ...],
    *,
    is_final: bool,
    kept: str = "",
) -> Request:
    """The request for one step. `turns` is what was said in it so far; `kept` is how its reply
    begins, where it was broken off and is to be gone on with."""
    pictures = assignment.images if "vision" in profile.capabilities else ()
    rest = (Message("user", (*pictures, Text(prompt))), *_heard(turns, profile, tools))
    if kept:
        rest = (*rest, assistant(kept), user(prompt_text("go_on.txt")))
    response_options = assignment.response_options
    before = assignment.history
    if before:
        room = _room(
            profile, Request(rest, tools=tools), response_options.max_tokens if is_final else None
        )
        before = _newest(tuple(_heard(before, profile, tools)), room)
    if not is_final:
        return Request(
            (*before, *rest),
            tools=tools,
            effort=response_options.effort,
            parallel_tools=response_options.parallel_tools,
            cache_key=response_options.cache_key,
            cache_time=response_options.cache_time,
        )
    return Request(
        (*before, *rest),
        max_tokens=response_options.max_tokens,
        temperature=response_options.temperature,
        top_p=response_options.top_p,
        seed=response_options.seed,
        stop=response_options.stop,
        tools=tools,
        tool_choice=_tool_choice(response_options, turns) if tools else "",
        schema=response_options.schema,
        effort=response_options.effort,
        parallel_tools=response_options.parallel_tools,
        cache_key=response_options.cache_key,
        cache_time=response_options.cache_time,
        thinking_tokens=response_options.thinking_tokens,
    )


def _tool_choice(response_options: ResponseOptions, turns: Sequence[Message]) -> str:
    """A worker that had to call a tool and did so is free to answer."""
    has_called = any(isinstance(part, ToolCall) for turn in turns for part in turn.parts)
    return (
        "auto"
        if has_called and response_options.tool_choice != "none"
        else response_options.tool_choice
    )


def turn_of(reply: Reply, calls: tuple[ToolCall, ...] = ()) -> Message:
    """The reply as a turn to be handed back: thinking first, as the vendors want it, then the
    words, then the calls."""
    words = (Text(reply.text),) if reply.text else ()
    return Message("assistant", (*reply.thinking, *words, *calls))


def asked_again(reply: Reply, problem: str) -> tuple[Message, Message]:
    """The reply, which is not the JSON that was demanded, and the request to correct it."""
    asked = Template(prompt_text("repair.txt")).substitute(problem=problem)
    return turn_of(reply), user(asked)


def never_fitted(worker: str, reply: Reply, schema: Mapping[str, Any]) -> BadReply:
    """The fault of a worker that was asked again in vain. It reaches whoever asked, so it does not
    quote a reply that guardrails have not looked at as the answer."""
    problem = misfit_unquoted(reply.text, schema)
    return BadReply(f"{worker} was asked twice for JSON that fits the schema: {problem}")


def in_words(result: ToolResult) -> ToolResult:
    """The result for one who cannot see: that there were pictures is told."""
    words = (result.text, *(UNSEEN for _ in result.images))
    return replace(result, text="\n".join(filter(None, words)), images=())


def _room(profile: WorkerProfile, rest: Request, max_tokens: int | None) -> int | None:
    """Tokens that the conversation may take; None where the worker's window is not known."""
    window = profile.limits.context_window
    if window is None:
        return None
    answer = max_tokens or profile.limits.max_output_tokens or ROOM_FOR_AN_ANSWER
    return window - min(answer, window // 4) - estimated_input_tokens(rest)


def _newest(history: tuple[Message, ...], room: int | None) -> tuple[Message, ...]:
    """As much of the conversation as there is room for: its newest turns, each whole, and all
    that the system says. A turn is what the user said and all that came of it, so that no tool's
    result is without its call."""
    if room is None:
        return history
    sizes = [estimated_input_tokens(Request((message,))) for message in history]
    room -= sum(size for m, size in zip(history, sizes, strict=True) if m.role == "system")
    first = len(history)
    size_of_turn = 0
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "system":
            continue
        size_of_turn += sizes[index]
        if index == 0 or _opens_a_turn(history[index]):
            if size_of_turn > room:
                break
            room -= size_of_turn
            first, size_of_turn = index, 0
    return tuple(m for i, m in enumerate(history) if i >= first or m.role == "system")


def _opens_a_turn(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(p, ToolResult) for p in message.parts)


def _heard(
    turns: Sequence[Message], profile: WorkerProfile, tools: tuple[Tool, ...]
) -> Iterator[Message]:
    """The turns as this worker may have them; one of which nothing is left is left out."""
    names: dict[str, str] = {}
    for message in turns:
        parts = tuple(_parts(message, profile, bool(tools), names))
        if parts == message.parts:
            yield message
        elif parts:
            role = "user" if message.role == "tool" and not tools else message.role
            yield replace(message, role=role, parts=parts)


def _parts(
    message: Message, profile: WorkerProfile, has_tools: bool, names: dict[str, str]
) -> Iterator[Part]:
    sees = "vision" in profile.capabilities
    for part in message.parts:
        if isinstance(part, ToolResult) and part.images and not sees:
            part = in_words(part)
        if isinstance(part, Thinking):
            if part.model == profile.model:
                yield part
        elif isinstance(part, Image) and not sees:
            yield Text(UNSEEN)
        elif isinstance(part, ToolCall) and not has_tools:
            names[part.id] = part.name
            yield Text(f"[called the tool {part.name} with {part.arguments}]")
        elif isinstance(part, ToolResult) and not has_tools:
            what = "failed" if part.is_error else "answered"
            yield Text(f"[the tool {names.get(part.call_id, part.call_id)} {what}: {part.text}]")
            yield from part.images
        else:
            yield part


def asked_last(run: Run, step: StepRecord) -> WorkerProfile | None:
    """The worker that answered the step, or was the last to be asked; None where the run's pool
    no longer says who that is."""
    tried = step.attempts[-1].worker if step.attempts else step.worker
    name = step.answered_by or tried
    return run.pool[name] if name in run.pool.names else None


def request_of(
    run: Run, round_: Round, step: StepRecord, toolbox: Toolbox | None = None
) -> Request | None:
    """What that worker had been asked when it gave its reply, or when the step ended without one.

    None where no worker was asked: the step was skipped, was answered by a run of its own, or its
    message is not on record. `toolbox` holds tools of Podium's own, which are not part of a run.
    After a call that broke off in mid-reply, the next one was also given what had been said, and
    asked to go on; a record does not hold where that was.
    """
    profile, workflow = asked_last(run, step), round_.workflow
    if profile is None or workflow is None or not step.prompt:
        return None
    if profile.provider == CONDUCTOR_PROVIDER:
        return None
    assignment = Assignment(
        workflow=workflow,
        question=run.question,
        pool=run.pool,
        history=run.history,
        round=round_.index,
        images=run.images,
        response_options=run.response_options,
    )
    is_final = round_.answers and step.index == len(workflow) - 1
    own = toolbox_excluding(toolbox, run.exclude)
    tools = tools_for(profile, run.response_options, own, is_final=is_final)
    return request_for(profile, step.prompt, assignment, step.turns, tools, is_final=is_final)
