"""OpenAI's Responses API, as its SDKs and coding agents such as Codex use it.

`text.verbosity` becomes an instruction to the workers, `parallel_tool_calls` holds for each worker,
and history is truncated to a worker's context window whatever `truncation` says. Without effect:
user, safety_identifier, prompt_cache_retention, prompt_cache_options, client_metadata, `include` of
results of OpenAI's own tools, and stream_options.reasoning_summary_delivery. Fields that must not
be ignored are refused; all others are ignored and reported.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

from podium.core.request import LOGPROBS, Message, ResponseOptions
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.content import (
    VERBOSITY,
    metadata,
    prepend_instructions,
    read_tool_choice,
    response_format,
    stream_options,
    strip_thinking,
    verbosity,
)
from podium.server.dialects.fields import (
    Fields,
    Json,
    array,
    bounded_text,
    choice,
    effort,
    flag,
    integer,
    number,
    read_object,
    text,
)
from podium.server.dialects.request import (
    ApiRequest,
    ApiResponse,
    BodyFields,
    PodiumParams,
    StreamWriter,
    read_podium_params,
)
from podium.server.dialects.responses_input import conversation
from podium.server.dialects.responses_items import (
    Item,
    ItemIds,
    Status,
    answer_text,
    call_item,
    client_tool_names,
    input_items,
    message_item,
    read_response_id,
    read_tools,
    reasoning_item,
    refusal_part,
)
from podium.server.dialects.responses_output import (
    ENCRYPTED,
    STORED_REQUEST_FIELDS,
    ResponsesWriter,
    encrypted_content,
    response_object,
    response_status,
    responses_error,
)

_HINTS: Final = ("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
"""Fields that the response repeats, and that have no other effect on it."""

_NO_LOGPROBS: Final = "not every worker reports log probabilities; leave it out"

_FIELDS: Final = BodyFields(
    supported=frozenset(
        {"model", "input", "instructions", "previous_response_id", "store", "metadata", "stream"}
        | {"stream_options", "include", "background", "truncation", "max_output_tokens"}
        | {"temperature", "top_p", "text", "reasoning", "tools", "tool_choice"}
        | {"parallel_tool_calls", "user", "safety_identifier", "client_metadata", "podium"}
        | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    ),
    without_effect={
        "top_logprobs": (0,),
        "service_tier": ("auto", "default"),
        "max_tool_calls": (),
    },
    unsupported={
        "conversation": "conversations are not stored; send previous_response_id, or all items",
        "prompt": "prompt templates are not stored; send instructions and input",
        "moderation": "there is no moderation",
        "top_logprobs": _NO_LOGPROBS,
        "include": f"{LOGPROBS}: {_NO_LOGPROBS}",  # other values are not among the extra fields
    },
    wire="responses",
    passed_through=frozenset({"top_logprobs", "include"}),
)

_REASONING: Final = frozenset({"effort", "summary", "generate_summary", "context", "mode"})
_TEXT: Final = frozenset({"format", "verbosity"})

_INCLUDABLE: Final = (
    ENCRYPTED,
    LOGPROBS,
    "message.input_image.image_url",
    "web_search_call.results",
    "web_search_call.action.sources",
    "file_search_call.results",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)


class ResponsesDialect:
    """The dialect; `RESPONSES` is its only instance."""

    fields = _FIELDS

    def read(self, body: Json) -> ApiRequest:
        fields = read_object(body)
        fields.optional("metadata", metadata)
        for name in _HINTS:
            fields.optional(name, bounded_text(0, 1024))
        fields.optional("truncation", choice(("auto", "disabled")))
        fields.optional("include", array(choice(_INCLUDABLE), most=32))
        previous = fields.optional("previous_response_id", text)
        reasoning = fields.optional("reasoning", _read_reasoning) or Fields({})
        summary = reasoning.values.get("summary") or reasoning.values.get("generate_summary")
        form = (fields.optional("text", read_object) or Fields({})).note_unknown(_TEXT)
        stream = bool(fields.optional("stream", flag))
        options = stream_options(fields, "reasoning_summary_delivery", stream=stream)
        if options is not None:
            options.optional("reasoning_summary_delivery", text)
        extra = _FIELDS.select_extra(body)
        if reasoning.values:  # a single worker may be asked for a summary as well
            extra["reasoning"] = dict(reasoning.values)
        if LOGPROBS in (body.get("include") or ()):
            extra["include"] = [LOGPROBS]
        return ApiRequest(
            model=fields.required("model", bounded_text(1, 200)),
            messages=_messages(fields, form, reasoning, continues=previous is not None),
            response_options=_response_options(fields, form, reasoning),
            stream=stream,
            store=fields.optional("store", flag) is not False,
            previous_response=None
            if previous is None
            else read_response_id(previous, "previous_response_id"),
            shows_reasoning=summary not in (None, "none"),
            params=fields.optional("podium", read_podium_params) or PodiumParams(),
            raw_body=body,
            extra=extra,
            stored_fields={
                name: body[name] for name in STORED_REQUEST_FIELDS if body.get(name) is not None
            },
            background=_background(fields, stream=stream),
        )

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        is_text_refusal = answer.finish == "refused" and bool(answer.text)
        status, reason = response_status(answer, is_text_refusal=is_text_refusal)
        output = self._output(request, answer, status, is_text_refusal=is_text_refusal)
        return response_object(
            request, answer, status=status, output=output, incomplete_reason=reason
        )

    def format_unfinished(
        self,
        request: ApiRequest,
        answer: ApiResponse,
        status: Status,
        error: ApiError | None = None,
    ) -> dict[str, Any]:
        """Return a response that is in progress, incomplete, cancelled or failed."""
        output = self._output(request, answer, "incomplete", is_text_refusal=False)
        return response_object(request, answer, status=status, output=output, error=error)

    def _output(
        self, request: ApiRequest, answer: ApiResponse, status: Status, *, is_text_refusal: bool
    ) -> list[Item]:
        ids = ItemIds(answer.id)
        output: list[Item] = []
        summary = [part.text for part in answer.thinking if part.text and request.shows_reasoning]
        opaque = encrypted_content(request, answer.thinking)
        if summary or opaque:
            output.append(reasoning_item(ids.new("rs"), summary, opaque))
        if answer.text:
            part = refusal_part(answer.text) if is_text_refusal else answer_text(answer)
            output.append(message_item(ids.new("msg"), status, part))
        client_names = client_tool_names(request.raw_body)
        output += [call_item(ids, call, client_names) for call in answer.tool_calls]
        return output

    def stored_items(
        self, request: ApiRequest, answer: ApiResponse, messages: tuple[Message, ...]
    ) -> list[Item]:
        """Return the items of a stored response and of the conversation before it, with opaque
        thinking."""
        names = client_tool_names(request.raw_body)
        request = replace(request, raw_body={**request.raw_body, "include": [ENCRYPTED]})
        output = self._output(request, answer, "completed", is_text_refusal=False)
        return [*input_items(answer.id, messages, names), *output]

    def stream_writer(self, request: ApiRequest, opening: ApiResponse) -> StreamWriter:
        return ResponsesWriter(request, opening)

    def format_error(self, error: ApiError) -> dict[str, Any]:
        return {"error": responses_error(error)}


RESPONSES: Final = ResponsesDialect()


def _background(fields: Fields, *, stream: bool) -> bool:
    if not fields.optional("background", flag):
        return False
    if stream:
        raise invalid("background", "background: true cannot be combined with stream; send one")
    if fields.optional("store", flag) is False:
        raise invalid("background", "background: true requires store: true")
    return True


def _read_reasoning(value: object, path: str) -> Fields:
    fields = read_object(value, path).note_unknown(_REASONING)
    for name in ("summary", "generate_summary"):
        fields.optional(name, choice(("auto", "concise", "detailed", "none")))
    fields.optional("mode", choice(("standard",)))
    fields.optional("context", choice(("auto", "current_turn", "all_turns")))
    return fields


def _messages(
    fields: Fields, form: Fields, reasoning: Fields, *, continues: bool
) -> tuple[Message, ...]:
    instructions = fields.optional("instructions", text)
    length = form.optional("verbosity", verbosity)
    messages = fields.required("input", partial(conversation, continues=continues))
    if reasoning.values.get("context") == "current_turn":
        messages = _strip_earlier_thinking(messages)
    return prepend_instructions(messages, instructions, length)


def count_instructions(body: Json) -> int:
    """Count the messages that come before the input. They belong to one request alone."""
    length = VERBOSITY.get((body.get("text") or {}).get("verbosity") or "")
    return bool(body.get("instructions")) + bool(length)


def _strip_earlier_thinking(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    turn = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    earlier = map(strip_thinking, messages[:turn])
    return (*(message for message in earlier if message.parts), *messages[turn:])


def _response_options(fields: Fields, form: Fields, reasoning: Fields) -> ResponseOptions:
    tools = read_tools(fields)
    parallel = fields.optional("parallel_tool_calls", flag)
    demanded = ""
    if (given := fields.values.get("tool_choice")) is not None:
        demanded, tools = read_tool_choice(given, "tool_choice", tools, nested=False)
    return ResponseOptions(
        max_tokens=fields.optional("max_output_tokens", integer(1)),
        temperature=fields.optional("temperature", number(0, 2)),
        top_p=fields.optional("top_p", number(0, 1)),
        tools=tools,
        tool_choice=demanded,
        schema=form.optional("format", response_format(nested=False)),
        effort=reasoning.optional("effort", effort),
        parallel_tools=not tools or parallel is not False,
        cache_key=fields.optional("prompt_cache_key", text) or "",
    )
