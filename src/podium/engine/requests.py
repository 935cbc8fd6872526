"""Build the request for a worker: its prompt, the conversation before it, and the options.

A worker sees the conversation, the question (unless the pool withholds it), the results of the
earlier steps that its access names, and its own subtask. Text between tags is data that cannot
close them.
Each worker gets what it can take: thinking goes only to the model that produced it, images only
to models with vision, and without tools, earlier tool calls become text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from string import Template
from typing import Any, Final, NamedTuple

from podium.core.budget import estimate_input_tokens
from podium.core.errors import BadReply, RequestRefused
from podium.core.json_schema import find_mismatch
from podium.core.pool import (
    CONDUCTOR_PROVIDER,
    WorkerProfile,
    answer_capabilities,
    can_see,
    describe_capabilities,
)
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
from podium.core.run import Round, Run, StepRecord
from podium.core.tags import unused_suffix
from podium.core.worker import Toolbox, exclude_servers

TAGS: Final = ("question", "subtask", "reply")

PROMPT_FILES: Final = ("step.txt", "final.txt", "continue.txt", "repair.txt")

OUTPUT_RESERVE_TOKENS: Final = 1024
"""Tokens left for the reply where no limit is known; at most a quarter of the window."""

_DEMANDED: Final = tuple(
    option.name for option in fields(ResponseOptions) if option.name != "is_prefilled"
)

UNSEEN_IMAGE: Final = "[an image that you cannot see]"
UNSEEN_PDF: Final = "[a PDF that you cannot read]"


class PriorResult(NamedTuple):
    """An earlier step as later workers see it."""

    step: str
    subtask: str
    reply: str


def compose_prompt(
    subtask: str, *, question: str | None, prior: Sequence[PriorResult] = (), is_final: bool
) -> str:
    """Write the prompt of one step; `question` is None where the pool withholds it.

    A worker that reads nothing and answers, or must not know the question, gets no rules: they
    cost a small model right answers. The last step reads the question at the end, so that such a
    model answers it and not its subtask.
    """
    if not prior and question is None:
        return subtask
    if not prior and is_final:
        return subtask if subtask == question else f"Your subtask: {subtask}\n\n{question}"
    texts = [question or ""]
    for result in prior:
        texts += result
    suffix, results = unused_suffix(TAGS, texts), ""
    for step, done, reply in prior:
        results += (
            f'<subtask{suffix} step="{step}">\n{done}\n</subtask{suffix}>\n'
            f'<reply{suffix} step="{step}">\n{reply}\n</reply{suffix}>\n\n'
        )
    if question is None:
        return results + subtask
    rules = prompt_text("step.txt")
    asked = f"<question{suffix}>\n{question}\n</question{suffix}>"
    todo = f"{results}Your subtask: {subtask}"
    if is_final:
        return f"{rules}\n\n{todo}\n\n{prompt_text('final.txt')}\n\n{asked}"
    return f"{rules}\n\n{asked}\n\n{todo}"


@cache
def prompt_hash() -> str:
    texts = "\0".join(prompt_text(name) for name in PROMPT_FILES)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


@cache
def prompt_text(name: str) -> str:
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()


def require_capable(profile: WorkerProfile, options: ResponseOptions) -> None:
    """Raise `RequestRefused` if the worker cannot do what the final step must."""
    missing = answer_capabilities(options) - profile.capabilities
    if missing:
        what = describe_capabilities(missing)
        raise RequestRefused(f"{profile.name} cannot {what}, which the answer needs")


def tools_for(
    profile: WorkerProfile,
    options: ResponseOptions,
    toolbox: Toolbox | None,
    *,
    with_client_tools: bool,
) -> tuple[Tool, ...]:
    """Return the tools a worker is offered; the client's only `with_client_tools`."""
    if "tools" not in profile.capabilities:
        return ()
    clients = options.tools if with_client_tools else ()
    return clients if toolbox is None else (*clients, *toolbox.tools)


def request_for(
    profile: WorkerProfile,
    prompt: str,
    run: Run,
    turns: Sequence[Message],
    tools: tuple[Tool, ...],
    *,
    is_final: bool,
    prior_text: str = "",
) -> Request:
    """Build the request for one step.

    `turns` are the step's turns so far; `prior_text` is the start of a broken-off reply to
    continue.
    """
    images = tuple(image for image in run.images if can_see(profile, image))
    options = run.response_options
    start = ""
    if is_final and options.is_prefilled and turns and len(turns) == len(run.trailing_messages):
        *turns, last = turns
        start = last.text.rstrip()  # some providers refuse trailing space
    rest = (Message("user", (*images, Text(prompt))), *_adapt_for_worker(turns, profile, tools))
    prefill = ""
    if prior_text:
        rest = ask_to_continue(
            rest, prior_text if prior_text.startswith(start) else start + prior_text
        )
    elif "prefill" in profile.capabilities:
        prefill = start
    elif start:
        rest = ask_to_continue(rest, start)
    before = run.history if is_final else run.conversation
    if before:
        max_tokens = options.max_tokens if is_final else None
        room = _room_for_history(profile, Request(rest, tools=tools), max_tokens)
        before = _newest_turns(tuple(_adapt_for_worker(before, profile, tools)), room)
    if not is_final:
        return Request(
            (*before, *rest),
            tools=tools,
            effort=options.effort,
            parallel_tools=options.parallel_tools,
            cache_key=options.cache_key,
            cache_ttl=options.cache_ttl,
        )
    has_clients = any(tool in tools for tool in options.tools)
    choice = _tool_choice(options, turns) if has_clients else ""
    return final_request(
        options, (*before, *rest), tools=tools, tool_choice=choice, prefill=prefill
    )


def final_request(
    options: ResponseOptions, messages: tuple[Message, ...], **changes: Any
) -> Request:
    """Return the request whose reply is the answer, as the client demands it."""
    demanded = {name: getattr(options, name) for name in _DEMANDED}
    return Request(messages, **(demanded | changes))


def ask_to_continue(messages: tuple[Message, ...], start: str) -> tuple[Message, ...]:
    """Ask for the rest of a reply, of a worker that cannot be given its start as a prefill."""
    return (*messages, assistant(start), user(prompt_text("continue.txt")))


def _tool_choice(options: ResponseOptions, turns: Sequence[Message]) -> str:
    """Return the client's choice; one of Podium's own tools satisfies `required` too."""
    clients = {tool.name for tool in options.tools}
    for turn in reversed(turns if options.tool_choice == "required" else ()):
        calls = [part.name for part in turn.parts if isinstance(part, ToolCall)]
        if calls:
            return "auto" if clients.isdisjoint(calls) else "required"
    return options.tool_choice


def reply_message(reply: Reply, calls: tuple[ToolCall, ...] = ()) -> Message:
    """Turn a reply into a message: thinking first, as vendors require, then text, then calls."""
    text = (Text(reply.text),) if reply.text else ()
    return Message("assistant", (*reply.thinking, *text, *calls))


def repair_request(reply: Reply, problem: str) -> tuple[Message, Message]:
    """Return the reply that does not fit its schema, and the request to correct it."""
    prompt = Template(prompt_text("repair.txt")).substitute(problem=problem)
    return reply_message(reply), user(prompt)


def schema_error(worker: str, reply: Reply, schema: Mapping[str, Any]) -> BadReply:
    """Return the error of a worker whose corrected reply does not fit either; quotes nothing."""
    problem = find_mismatch(reply.text, schema, quotes=False)
    return BadReply(f"{worker} was asked twice for JSON that fits the schema: {problem}")


def describe_unseen(result: ToolResult, profile: WorkerProfile) -> ToolResult:
    """Replace the images of a tool result that the worker cannot see by notes."""
    unseen = [image for image in result.images if not can_see(profile, image)]
    if not unseen:
        return result
    texts = (result.text, *map(_describe_unseen, unseen))
    seen = tuple(image for image in result.images if image not in unseen)
    return replace(result, text="\n".join(filter(None, texts)), images=seen)


def _describe_unseen(image: Image) -> str:
    return UNSEEN_PDF if image.is_pdf else UNSEEN_IMAGE


def _room_for_history(profile: WorkerProfile, rest: Request, max_tokens: int | None) -> int | None:
    """Return how many tokens the conversation may take; None where the window is unknown."""
    window = profile.limits.context_window
    if window is None:
        return None
    output = max_tokens or profile.limits.max_output_tokens or OUTPUT_RESERVE_TOKENS
    return window - min(output, window // 4) - estimate_input_tokens(rest)


def _newest_turns(history: tuple[Message, ...], room: int | None) -> tuple[Message, ...]:
    """Return the newest whole turns that fit, and every system message.

    A turn is a user message with all that followed, so no tool result loses its call.
    """
    if room is None:
        return history
    sizes = [estimate_input_tokens(Request((message,))) for message in history]
    room -= sum(size for m, size in zip(history, sizes, strict=True) if m.role == "system")
    start = next((i for i, m in enumerate(history) if m.role != "system"), len(history))
    first = len(history)
    turn_size = 0
    for index in range(len(history) - 1, -1, -1):
        if history[index].role == "system":
            continue
        turn_size += sizes[index]
        if index == start or _starts_turn(history[index]):
            if turn_size > room:
                break
            room -= turn_size
            first, turn_size = index, 0
    return tuple(m for i, m in enumerate(history) if i >= first or m.role == "system")


def _starts_turn(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(p, ToolResult) for p in message.parts)


def _adapt_for_worker(
    turns: Sequence[Message], profile: WorkerProfile, tools: tuple[Tool, ...]
) -> Iterator[Message]:
    """Yield the turns as this worker may have them; emptied ones are dropped."""
    names: dict[str, str] = {}
    for message in turns:
        parts = tuple(_adapt_parts(message, profile, bool(tools), names))
        if parts == message.parts:
            yield message
        elif parts:
            role = "user" if message.role == "tool" and not tools else message.role
            yield replace(message, role=role, parts=parts)


def _adapt_parts(
    message: Message, profile: WorkerProfile, has_tools: bool, names: dict[str, str]
) -> Iterator[Part]:
    for part in message.parts:
        if isinstance(part, ToolResult) and part.images:
            part = describe_unseen(part, profile)
        if isinstance(part, Thinking):
            if part.model == profile.model:
                yield part
        elif isinstance(part, Image) and not can_see(profile, part):
            yield Text(_describe_unseen(part))
        elif isinstance(part, ToolCall) and not has_tools:
            names[part.id] = part.name
            yield Text(f"[called the tool {part.name} with {part.arguments}]")
        elif isinstance(part, ToolResult) and not has_tools:
            what = "failed" if part.is_error else "answered"
            yield Text(f"[the tool {names.get(part.call_id, part.call_id)} {what}: {part.text}]")
            yield from part.images
        else:
            yield part


def replay_request(
    run: Run, round_: Round, step: StepRecord, toolbox: Toolbox | None = None
) -> Request | None:
    """Rebuild the last request of a recorded step.

    None where no worker was asked: the step was skipped, was a nested run, or its prompt is not on
    record. `toolbox` holds Podium's own tools, which are not part of a run. Not recorded is where
    a broken-off call was continued.
    """
    profile, workflow = _last_worker(run, step), round_.workflow
    if profile is None or workflow is None or not step.prompt:
        return None
    if profile.provider == CONDUCTOR_PROVIDER:
        return None
    first = workflow.earliest_answer_step if round_.has_answer_role else len(workflow)
    own = exclude_servers(toolbox, run.exclude)
    tools = tools_for(profile, run.response_options, own, with_client_tools=step.index == first)
    is_final = step.index >= first
    return request_for(profile, step.prompt, run, step.turns, tools, is_final=is_final)


def _last_worker(run: Run, step: StepRecord) -> WorkerProfile | None:
    """Return the worker that was asked last; None if the run's pool lacks it."""
    tried = step.attempts[-1].worker if step.attempts else step.worker
    name = step.answered_by or tried
    return run.pool[name] if name in run.pool.names else None
