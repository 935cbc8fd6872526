"""Anthropic's Messages API, as its SDKs and Claude Code speak it.

    turns      the conversation in a body
    terms      everything else in a body: what is honoured, and what is refused
    cache      marks for a prompt cache
    thinking   thinking that travels through the client and back
    answer     what whole and streamed messages tell alike
    stream     the events of a stream

The header `anthropic-beta` needs no reading: a beta only allows fields of the body, and each of
these is served or refused by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from podium.core.request import CacheTime, Message
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.base import Answer, ApiRequest, Json, PodiumParams
from podium.server.dialects.fields import flag, opened, text_of
from podium.server.dialects.messages import options as response_options
from podium.server.dialects.messages import response as told
from podium.server.dialects.messages.response import SHOWN, MessageWriter, thinking_block
from podium.server.dialects.messages.turns import conversation, without_old_thinking
from podium.server.dialects.podium_params import wished


def cache_time(body: Json) -> CacheTime:
    """How long the prompt is to be kept. Of several times it is the shortest, which never costs
    more than the client has agreed to. The body has been read before."""
    times = {mark.get("ttl") for mark in _marks(body)}
    if not times:
        return ""
    return "1h" if times == {"1h"} else "5m"


def _marks(body: Json) -> Iterator[Json]:
    for holder in (body, *_blocks(body.get("system")), *_blocks(body.get("tools"))):
        yield from _mark(holder)
    for message in body["messages"]:
        for block in _blocks(message["content"]):
            yield from _mark(block)
            for inner in _blocks(block.get("content")):
                yield from _mark(inner)


def _blocks(content: object) -> list[Json]:
    return content if isinstance(content, list) else []


def _mark(holder: Json) -> Iterator[Json]:
    mark = holder.get("cache_control")
    if isinstance(mark, Mapping):
        yield mark


class MessagesDialect:
    """Reads and writes the bodies of `/v1/messages` and of `/v1/messages/count_tokens`."""

    def read(self, body: Json) -> ApiRequest:
        """Read a body; raises `ApiError`."""
        return _read(body, counting=False)

    def read_count(self, body: Json) -> ApiRequest:
        """Read a body whose tokens are to be counted; it needs no `max_tokens`."""
        return _read(body, counting=True)

    def counted(self, tokens: int) -> dict[str, Any]:
        """The body of a count."""
        return {"input_tokens": tokens}

    def whole(self, asked: ApiRequest, answer: Answer) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        content: list[dict[str, Any]] = []
        if answer.thinking and told.keeps_thinking(asked):
            block = thinking_block(answer.thinking, in_words=asked.shows_reasoning)
            if block["thinking"] or block["signature"] != SHOWN:
                content.append(block)
        if answer.text or not answer.tool_calls:
            content.append({"type": "text", "text": answer.text})
        content.extend(told.tool_use(call) for call in answer.tool_calls)
        return told.opening(asked, answer) | {"content": content} | told.ending(answer)

    def writer(self, asked: ApiRequest, opening: Answer) -> MessageWriter:
        """A stream."""
        return MessageWriter(asked, opening)

    def refused(self, refusal: ApiError) -> dict[str, Any]:
        """The body of an error."""
        return told.error(refusal)


MESSAGES: Final = MessagesDialect()


def _read(value: object, *, counting: bool) -> ApiRequest:
    body = opened(value)
    response_options.refuse_unserved(body)
    response_options.read_hints(body)
    demanded, thinking = response_options.read_thinking(
        body, response_options.read_terms(body, counting=counting)
    )
    messages = conversation(body)
    if not counting:
        _check_last(messages)
    turns = response_options.turns_of_thinking(body)
    return ApiRequest(
        model=body.required("model", text_of(1, 256)),
        messages=messages if turns is None else without_old_thinking(messages, turns),
        response_options=replace(demanded, cache_time=cache_time(body.values)),
        stream=body.optional("stream", flag) or False,
        shows_reasoning=thinking.shown,
        wished=body.optional("podium", wished) or PodiumParams(),
        body=body.values,
    )


def _check_last(messages: tuple[Message, ...]) -> None:
    """What a system message at the end adds to the user's turn is still that turn."""
    said = [message.role for message in messages if message.role != "system"]
    if not said or said[-1] == "assistant":
        raise invalid(
            "messages",
            "messages: expected the last one to be the user's, with something in it; Podium does "
            "not go on with an answer that was begun (no prefill)",
        )
