"""The conversation of a request as a run takes it, and the waiting run that it may continue.

The conversation that a client sends is the truth; a waiting run is only a cache of it. Clients see
ids of tool calls that name the run, so that any process finds it. Inside, calls have the ids that
their workers gave them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from podium.core.request import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from podium.core.run import Run
from podium.engine.guardrails.redaction import PLACEHOLDER
from podium.server.api_error import invalid
from podium.server.dialects.request import ApiRequest

IMAGE_QUESTION: Final = "See the picture."
"""The question where a client sends an image without text."""

_EXPOSED_ID: Final = re.compile(r"call_([0-9a-f]{16})_(.+)", re.DOTALL)
_RESPONSE: Final = re.compile(r"(run_[0-9a-f]{16})(?:_([1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True)
class Conversation:
    """The question, the history before it, and the `trailing_messages` after it: tool calls with
    their results, or the start of the answer."""

    history: tuple[Message, ...]
    question: str
    images: tuple[Image, ...] = ()
    trailing_messages: tuple[Message, ...] = ()


def split_conversation(messages: Sequence[Message]) -> Conversation:
    """Find the question: the last message of the user, or the text beside the last tool results.

    System messages after the question belong to the history.
    """
    messages = strip_call_ids(messages)
    asked = [index for index, message in enumerate(messages) if message.role == "user"]
    if not asked:
        return _split_at_results(messages)
    last = asked[-1]
    images = tuple(part for part in messages[last].parts if isinstance(part, Image))
    question = messages[last].text
    if not question.strip():
        if not images:
            raise invalid("messages", "the last message of the user is empty")
        question = IMAGE_QUESTION
    rest = messages[last + 1 :]
    instructions = (message for message in rest if message.role == "system")
    trailing = tuple(message for message in rest if message.role != "system")
    return Conversation((*messages[:last], *instructions), question, images, trailing)


def _split_at_results(messages: tuple[Message, ...]) -> Conversation:
    for index in reversed(range(len(messages))):
        message = messages[index]
        if message.role != "tool" or not message.text.strip():
            continue
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        images = tuple(part for part in message.parts if isinstance(part, Image))
        before = (*messages[:index], replace(message, parts=results))
        return Conversation(before, message.text, images, messages[index + 1 :])
    raise invalid("messages", "there is no message of the user; send one")


class Continuation(NamedTuple):
    """Tool results at the end of a conversation, and what they answer.

    `run_id` is the run that their ids name, or empty. `before` are the messages before the
    `output` that called the tools. The results have the ids of the worker.
    """

    run_id: str
    before: tuple[Message, ...]
    output: Message
    results: tuple[ToolResult, ...]


def find_continuation(messages: Sequence[Message]) -> Continuation | None:
    """Return the results that end the conversation; None if it ends otherwise.

    Text and images in a message with results reach the worker with the last one.
    """
    end = len(messages)
    while end and messages[end - 1].role != "assistant":
        end -= 1
    latest = messages[end:]
    start = end
    while start and messages[start - 1].role == "assistant":
        start -= 1
    parts = [part for message in latest for part in message.parts]
    results = [part for part in parts if isinstance(part, ToolResult)]
    if not results or any(message.role != "tool" for message in latest):
        return None
    runs = {_split_call_id(result.call_id)[0] for result in results}
    last = results[-1]
    text = "\n\n".join(filter(None, (message.text for message in latest)))
    images = tuple(part for part in parts if isinstance(part, Image))
    joined = f"{last.text}\n\n{text}" if text.strip() else last.text
    results[-1] = replace(last, text=joined, images=(*last.images, *images))
    output = [part for message in messages[start:end] for part in message.parts]
    return Continuation(
        runs.pop() if len(runs) == 1 else "",
        tuple(messages[:start]),
        Message("assistant", tuple(output)),
        tuple(replace(r, call_id=_split_call_id(r.call_id)[1]) for r in results),
    )


def continues(run: Run, found: Continuation) -> bool:
    """True if the run waits for just these results, and the client repeats what it was sent."""
    pending = Counter(call.id for call in run.waiting_for)
    if not pending or pending != Counter(result.call_id for result in found.results):
        return False
    calls = [part for part in found.output.parts if isinstance(part, ToolCall)]
    if len(calls) != len(run.waiting_for):
        return False
    texts = [(run.answer or "", found.output.text)]
    for known, sent in zip(run.waiting_for, calls, strict=True):
        if (known.id, known.name) != (_split_call_id(sent.id)[1], sent.name):
            return False
        texts.append((_normal_json(known.arguments), _normal_json(sent.arguments)))
    return all(_matches(known.strip(), sent.strip()) for known, sent in texts)


def _matches(known: str, sent: str) -> bool:
    """True if the texts are equal; where a guardrail redacted a value, any value is."""
    if known == sent or not PLACEHOLDER.search(known):
        return known == sent
    first, *middle, last = PLACEHOLDER.sub("\0", known).split("\0")
    if not (sent.startswith(first) and sent.endswith(last)):
        return False
    end = len(first)
    for piece in middle:
        start = sent.find(piece, end)
        if start < 0:
            return False
        end = start + len(piece)
    return end <= len(sent) - len(last)


def _normal_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


class Fingerprint(NamedTuple):
    """Digests of a request: of its settings with the instructions, and of its other messages.

    A run keeps both, joined by a dot.
    """

    settings: str
    messages: str

    @classmethod
    def of(cls, request: ApiRequest, messages: Sequence[Message], key_id: str) -> Fingerprint:
        """Compute the digests; thinking and the spelling of arguments make no difference."""
        count = count_instructions(messages)
        params = request.params
        settings = (
            key_id,
            request.model,
            request.response_options,
            (params.budget, params.max_steps, params.rounds, params.workflow, params.quality_bias),
            params.rerun,
            sorted(params.exclude),
            *map(_normal_message, messages[:count]),
        )
        return cls(_digest(settings), _digest(map(_normal_message, messages[count:])))


def _digest(items: Iterable[object]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        digest.update(f"{item!r}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()


def _normal_message(message: Message) -> tuple[object, ...]:
    parts = (part for part in message.parts if not isinstance(part, Thinking))
    return message.role, *map(_normal_part, parts)


def _normal_part(part: Part) -> Part:
    part = _strip_call_id(part)
    if isinstance(part, ToolCall):
        return replace(part, arguments=_normal_json(part.arguments))
    return part


def count_instructions(messages: Sequence[Message]) -> int:
    """Count the system messages that begin a conversation."""
    return next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))


def response_id(run: Run) -> str:
    """Return the id of the run's current response: the run's own, and a number if it resumed."""
    return f"{run.id}_{len(run.earlier_responses)}" if run.earlier_responses else run.id


def parse_response_id(id_: str) -> tuple[str, int]:
    """Return the run and the number of a response in it; no run if the id is malformed."""
    found = _RESPONSE.fullmatch(id_)
    return (found[1], int(found[2] or 0)) if found else ("", 0)


def output_message(
    thinking: tuple[Thinking, ...], text: str, calls: tuple[ToolCall, ...]
) -> Message:
    texts = (Text(text),) if text else ()
    return Message("assistant", (*thinking, *texts, *calls))


def expose_call_ids(run: Run, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return a run's calls with the ids that clients see: of a worker asked by name, its own."""
    if run.direct_worker:
        return tuple(calls)
    return tuple(replace(call, id=expose_call_id(run.id, call.id)) for call in calls)


def expose_call_id(run_id: str, call_id: str) -> str:
    """Return a call's id as clients see it, which names the run."""
    return f"call_{run_id.removeprefix('run_')}_{call_id}"


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
