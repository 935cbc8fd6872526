"""OpenAI's Responses API, as its SDKs and coding agents such as Codex speak it.

Every field of a body is honoured or refused by name. `text.verbosity` is told to the workers in
words. With `parallel_tool_calls: false`, which Codex sends with most models that it knows,
each worker calls one tool at a time; steps that run at once may still call one each. Accepted
without effect, because they demand nothing of the answer:

    user, safety_identifier, metadata        told back in the response
    prompt_cache_retention,
    prompt_cache_options                     hints; workers cache as they do
    client_metadata                          what Codex says of itself
    service_tier "auto" or "default"         there is one tier of service
    include of what tools of OpenAI's own return: there are none here
    stream_options.reasoning_summary_delivery: summaries come in order

`prompt_cache_key` is passed on to OpenAI's models. `truncation` is always "auto": history is
fitted to each worker's window.

Items are read in `input`, tools in `tools`; what is said is in
`output`, and as a stream in `stream`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from podium.core.request import Message, ResponseOptions
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.base import Answer, ApiRequest, Json, PodiumParams, Writer
from podium.server.dialects.fields import (
    Fields,
    choice,
    document,
    effort,
    flag,
    listed,
    number,
    opened,
    shown,
    text,
    text_of,
    whole,
)
from podium.server.dialects.openai import (
    answer_format,
    cache_options,
    metadata,
    stream_options,
    verbosity,
)
from podium.server.dialects.podium_params import wished
from podium.server.dialects.responses.input import conversation
from podium.server.dialects.responses.output import (
    ENCRYPTED,
    Item,
    ItemIds,
    Status,
    call_item,
    ending,
    error_told,
    message_item,
    output_text,
    reasoning_item,
    refusal_part,
    response,
    run_id,
    sealed_for,
)
from podium.server.dialects.responses.stream import ResponsesWriter
from podium.server.dialects.responses.tools import offered, spoken_names, tool_choice
from podium.server.dialects.tools import with_instructions, without_thinking

_HINTS: Final = ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")

_NOT_SERVED: Final[Mapping[str, str]] = {
    "conversation": "conversations are not kept here; send previous_response_id, or all items",
    "prompt": "prompt templates are not kept here; send instructions and input as text",
    "max_tool_calls": (
        "it caps tools of OpenAI's own, which are not here; podium.budget.calls caps the calls "
        "of a run"
    ),
    "moderation": "there is no moderation here; leave it out",
    "context_management": "history is fitted to each worker's window by itself; leave it out",
    "access_programs": "there are no access programs here; leave it out",
    "image": "pictures go to workers as they are; leave it out",
}
"""Fields of the API that are refused whatever they hold, and what to do."""

_NO_LOGPROBS: Final = "not every worker tells how likely its words were; leave it out"

_KNOWN: Final = frozenset(
    {
        *("model", "input", "instructions", "previous_response_id", "store", "metadata"),
        *("stream", "stream_options", "include", "background", "truncation", "service_tier"),
        *("max_output_tokens", "temperature", "top_p", "top_logprobs", "text", "reasoning"),
        *("tools", "tool_choice", "parallel_tool_calls"),
        *("client_metadata", "prompt_cache_options", "podium"),
        *_HINTS,
        *_NOT_SERVED,
    }
)

_INCLUDABLE: Final = (
    ENCRYPTED,
    "message.input_image.image_url",
    "web_search_call.results",
    "web_search_call.action.sources",
    "file_search_call.results",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)


class Responses:
    """The dialect. It has no state: `RESPONSES` is the one there is."""

    def read(self, body: Json) -> ApiRequest:
        """Read a body; raises `ApiError`. `previous` is a run's id."""
        fields = opened(body).only(_KNOWN)
        _refuse_what_is_not_served(fields)
        _read_hints(fields)
        previous = fields.optional("previous_response_id", text)
        reasoning = fields.optional("reasoning", _reasoning) or Fields({})
        form = fields.optional("text", _text) or Fields({})
        stream = bool(fields.optional("stream", flag))
        _check_stream_options(fields, stream=stream)
        return ApiRequest(
            model=fields.required("model", text_of(1, 200)),
            messages=_messages(fields, form, reasoning, goes_on=previous is not None),
            response_options=_response_options(fields, form, reasoning),
            stream=stream,
            store=fields.optional("store", flag) is not False,
            previous=run_id(previous, "previous_response_id") if previous is not None else None,
            shows_reasoning=reasoning.given("summary") or reasoning.given("generate_summary"),
            wished=fields.optional("podium", wished) or PodiumParams(),
            body=body,
        )

    def whole(self, asked: ApiRequest, answer: Answer) -> dict[str, Any]:
        """The response object."""
        refused_in_words = answer.finish == "refused" and bool(answer.text)
        status, reason = ending(answer, refused_in_words=refused_in_words)
        output = self._output(asked, answer, status, refused_in_words=refused_in_words)
        return response(asked, answer, status=status, output=output, incomplete=reason)

    def unfinished(
        self, asked: ApiRequest, answer: Answer, status: Status, refusal: ApiError | None = None
    ) -> dict[str, Any]:
        """A response that has not ended well, or not yet, with what there is of it."""
        output = self._output(asked, answer, "incomplete", refused_in_words=False)
        return response(asked, answer, status=status, output=output, refusal=refusal)

    def _output(
        self, asked: ApiRequest, answer: Answer, status: Status, *, refused_in_words: bool
    ) -> list[Item]:
        ids = ItemIds(asked, answer.id)
        output: list[Item] = []
        summary = [part.text for part in answer.thinking if part.text and asked.shows_reasoning]
        sealed = sealed_for(asked, answer.thinking)
        if summary or sealed:
            output.append(reasoning_item(ids.new("rs"), summary, sealed))
        if answer.text:
            part = refusal_part(answer.text) if refused_in_words else output_text(answer.text)
            output.append(message_item(ids.new("msg"), status, part))
        spoken = spoken_names(asked.body)
        output += [call_item(call, spoken) for call in answer.tool_calls]
        return output

    def writer(self, asked: ApiRequest, opening: Answer) -> Writer:
        """A stream of events."""
        return ResponsesWriter(asked, opening)

    def refused(self, refusal: ApiError) -> dict[str, Any]:
        """The body of an error."""
        return {"error": error_told(refusal)}


RESPONSES: Final = Responses()


def _refuse_what_is_not_served(fields: Fields) -> None:
    for name, instead in _NOT_SERVED.items():
        if fields.given(name):
            raise invalid(name, f"{name} is not served: {instead}")
    if fields.optional("background", flag):
        raise invalid("background", "background: true is not served; use stream, or wait")
    if fields.optional("top_logprobs", whole(0, 20)):
        raise invalid("top_logprobs", f"top_logprobs: {_NO_LOGPROBS}")
    fields.optional("truncation", _truncation)
    fields.optional("service_tier", _service_tier)
    fields.optional("include", listed(_includable, most=32))


def _truncation(value: object, path: str) -> None:
    if choice(("auto", "disabled"))(value, path) == "disabled":
        raise invalid(
            path, f"{path}: history is fitted to each worker's window here; send 'auto' or nothing"
        )


def _service_tier(value: object, path: str) -> None:
    if text(value, path) not in ("auto", "default"):
        raise invalid(
            path,
            f"{path}: expected 'auto' or 'default', got {shown(value)}; there is one tier of "
            f"service here (in Codex: take service_tier out of config.toml)",
        )


def _includable(value: object, path: str) -> None:
    if value == "message.output_text.logprobs":
        raise invalid(path, f"{path}: {_NO_LOGPROBS}")
    choice(_INCLUDABLE)(value, path)


def _read_hints(fields: Fields) -> None:
    """What demands nothing must still be what it says."""
    for name in _HINTS:
        fields.optional(name, text_of(0, 1024))
    fields.optional("prompt_cache_retention", choice(("in_memory", "24h")))
    fields.optional("metadata", metadata)
    fields.optional("client_metadata", document)
    fields.optional("prompt_cache_options", cache_options("30m", "12h"))


def _check_stream_options(fields: Fields, *, stream: bool) -> None:
    options = stream_options(fields, "reasoning_summary_delivery", stream=stream)
    if options is not None:
        options.optional("reasoning_summary_delivery", text)


def _reasoning(value: object, path: str) -> Fields:
    fields = opened(value, path).only(("effort", "summary", "generate_summary", "context", "mode"))
    for name in ("summary", "generate_summary"):
        fields.optional(name, choice(("auto", "concise", "detailed")))
    fields.optional("context", choice(("auto", "current_turn", "all_turns")))
    fields.optional("mode", choice(("standard",)))
    return fields


def _text(value: object, path: str) -> Fields:
    return opened(value, path).only(("format", "verbosity"))


def _messages(
    fields: Fields, form: Fields, reasoning: Fields, *, goes_on: bool
) -> tuple[Message, ...]:
    def told(value: object, path: str) -> tuple[Message, ...]:
        return conversation(value, path, goes_on=goes_on)

    instructions = fields.optional("instructions", text)
    length = form.optional("verbosity", verbosity)
    messages = fields.required("input", told)
    if reasoning.values.get("context") == "current_turn":
        messages = _with_thinking_of_this_turn_alone(messages)
    return with_instructions(messages, instructions, length)


def _with_thinking_of_this_turn_alone(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    turn = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    earlier = map(without_thinking, messages[:turn])
    return (*(message for message in earlier if message.parts), *messages[turn:])


def _response_options(fields: Fields, form: Fields, reasoning: Fields) -> ResponseOptions:
    tools = offered(fields)
    parallel = fields.optional("parallel_tool_calls", flag)
    demanded = ""
    if fields.given("tool_choice"):
        demanded, tools = tool_choice(fields.values["tool_choice"], "tool_choice", tools)
    return ResponseOptions(
        max_tokens=fields.optional("max_output_tokens", whole(1)),
        temperature=fields.optional("temperature", number(0, 2)),
        top_p=fields.optional("top_p", number(0, 1)),
        tools=tools,
        tool_choice=demanded,
        schema=form.optional("format", answer_format(nested=False)),
        effort=reasoning.optional("effort", effort),
        parallel_tools=not tools or parallel is not False,
        cache_key=fields.optional("prompt_cache_key", text) or "",
    )
