"""OpenAI's Chat Completions.

- Supported: messages, model, tools, tool_choice, parallel_tool_calls (per worker), response_format,
  stop, max_completion_tokens or max_tokens, temperature, top_p, seed, reasoning_effort, verbosity
  (as an instruction), stream, stream_options, store, metadata, prompt_cache_key and `podium`.
- Without effect: user, safety_identifier, prompt_cache_options, prompt_cache_retention, and a
  function's `strict`.
- Unsupported, and refused, as ignoring them would be wrong: `_FIELDS.unsupported`. All others are
  ignored and reported.

`reasoning_effort` other than `none` makes progress and thinking visible as `reasoning_content`.
`usage` is null if a provider did not report all tokens; an unknown detail is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from podium.core.request import Delta, Effort, Finish, ResponseOptions, Tool, ToolCall
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.chat_messages import conversation
from podium.server.dialects.content import (
    MAX_TOOLS,
    check_unique_names,
    make_tool,
    metadata,
    openai_error,
    prepend_instructions,
    read_tool_choice,
    response_format,
    stream_options,
    usage_details,
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
    Dialect,
    PodiumParams,
    StreamWriter,
    read_podium_params,
    unsent_calls,
)

FINISH_REASONS: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tool": "tool_calls",
    "refused": "content_filter",
    "error": "stop",
}


def completion_id(request: ApiRequest, answer: ApiResponse) -> str:
    return f"chatcmpl-{answer.id.removeprefix('run_')}"


def completion(request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text if answer.text or not answer.tool_calls else None,
        "refusal": None,
    }
    if is_refusal(request, answer):
        message |= {"content": None, "refusal": answer.text}
    thinking = [part.text for part in answer.thinking if part.text]
    if request.shows_reasoning and thinking:
        message["reasoning_content"] = "\n\n".join(thinking)
    if answer.tool_calls:
        message["tool_calls"] = [tool_call(call) for call in answer.tool_calls]
    document = {
        "id": completion_id(request, answer),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": list(answer.choices)
        or [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "stop" if is_refusal(request, answer) else finish_reason(answer),
            }
        ],
        "usage": usage(answer),
    }
    return document | echoed_fields(request)


def echoed_fields(request: ApiRequest) -> dict[str, Any]:
    body = request.raw_body
    fields: dict[str, Any] = {}
    if body.get("metadata") is not None:
        fields["metadata"] = body["metadata"]
    if body.get("service_tier") is not None:
        fields["service_tier"] = "default"
    return fields


def tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def is_refusal(request: ApiRequest, answer: ApiResponse) -> bool:
    """True if the text refuses structured output, which has a field of its own."""
    return (
        answer.finish == "refused"
        and bool(answer.text)
        and request.response_options.schema is not None
    )


def finish_reason(answer: ApiResponse) -> str:
    return "tool_calls" if answer.tool_calls else FINISH_REASONS[answer.finish]


def usage(answer: ApiResponse) -> dict[str, Any] | None:
    """Return the usage of all calls; None if a count is unknown."""
    total = answer.usage
    if total.input_tokens is None or total.output_tokens is None:
        return None
    details = usage_details(total, answer.orchestration)
    return {
        "prompt_tokens": total.input_tokens,
        "completion_tokens": total.output_tokens,
        "total_tokens": total.input_tokens + total.output_tokens,
        "prompt_tokens_details": details.input,
        "completion_tokens_details": details.output,
    }


DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment of the event stream, which clients skip."""

_NOT_FINISHED: Final = b',"logprobs":null,"finish_reason":null}]'


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _encode_bytes(value: object) -> bytes:
    return _encode(value).encode()


def _as_delta(choice: Json) -> Json:
    """Return a whole answer as the only piece of a streamed one."""
    message = dict(choice["message"])
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
    return {**{key: choice[key] for key in choice if key != "message"}, "delta": message}


class ChatWriter:
    """Writes one stream of `chat.completion.chunk`."""

    def __init__(self, request: ApiRequest, opening: ApiResponse) -> None:
        self._asked = request
        self._shows_usage = request.shows_usage
        self._calls = 0
        self._has_choices = False
        self._common: dict[str, Any] = {
            "id": completion_id(request, opening),
            "object": "chat.completion.chunk",
            "created": opening.created,
            "model": opening.model,
        }
        tier = echoed_fields(request).get("service_tier")
        if tier is not None:
            self._common["service_tier"] = tier
        head = _encode_bytes(self._common)[:-1]
        self._before = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._after = (b',"usage":null}' if request.shows_usage else b"}") + b"\n\n"

    def begin(self) -> bytes:
        return self._delta({"role": "assistant", "content": ""})

    def progress(self, text: str) -> bytes:
        return self._delta({"reasoning_content": f"{text}\n"})

    def thinking(self, text: str) -> bytes:
        return self._delta({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        return self._delta({"content": text})

    def streams_call(self, name: str) -> bool:
        return True

    def tool_call(self, delta: Delta) -> bytes:
        """Write a piece of a tool call; the first one has its id and name."""
        call: dict[str, Any] = {"function": {"arguments": delta.text}}
        if delta.call == self._calls:
            self._calls += 1
            call = tool_call(ToolCall(delta.id, delta.name, delta.text))
        return self._delta({"tool_calls": [{"index": delta.call} | call]})

    def choices(self, choices: Sequence[Json]) -> bytes:
        self._has_choices = True
        return b"data: " + _encode_bytes(self._common | {"choices": choices}) + b"\n\n"

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def end(self, answer: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        if answer.choices:
            return self.choices([*map(_as_delta, answer.choices)]) + self._usage(answer) + DONE
        if self._has_choices:
            return self._usage(answer) + DONE
        if rest == answer.text and is_refusal(self._asked, answer):
            refused = self._delta({"refusal": rest})
            return refused + self._finish("stop") + self._usage(answer) + DONE
        text = self.text(rest) if rest else b""
        called = b"".join(map(self.tool_call, unsent_calls(answer.tool_calls, calls)))
        return text + called + self._finish(finish_reason(answer)) + self._usage(answer) + DONE

    def fail(self, error: ApiError) -> bytes:
        """Write the error in place of a chunk: SDKs raise it."""
        return b"data: " + _encode_bytes({"error": openai_error(error)}) + b"\n\n" + DONE

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._before + _encode_bytes(delta) + _NOT_FINISHED + self._after

    def _finish(self, reason: str) -> bytes:
        ending = _encode_bytes(reason)
        return self._before + b'{},"logprobs":null,"finish_reason":' + ending + b"}]" + self._after

    def _usage(self, answer: ApiResponse) -> bytes:
        if not self._shows_usage:
            return b""
        chunk = self._common | {"choices": [], "usage": usage(answer)}
        return b"data: " + _encode_bytes(chunk) + b"\n\n"


MAX_STOPS: Final = 4

_name: Final = bounded_text(1, 200)
_hint: Final = bounded_text(0, 1024)
_stop: Final = bounded_text(1, 1024)
_count: Final = integer(1)
_temperature: Final = number(0, 2)
_top_p: Final = number(0, 1)
_seed: Final = integer(-(2**63), 2**63 - 1)
_format: Final = response_format(nested=True)

_NO_LOGPROBS: Final = "not every worker reports log probabilities"

_FIELDS: Final = BodyFields(
    supported=frozenset(
        {"messages", "model", "tools", "tool_choice", "parallel_tool_calls", "response_format"}
        | {"stop", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"}
        | {"reasoning_effort", "verbosity", "stream", "stream_options", "store", "metadata"}
        | {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_options"}
        | {"prompt_cache_retention", "podium"}
    ),
    without_effect={
        "n": (1,),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
        "modalities": (["text"],),
        "service_tier": ("auto", "default"),
        "functions": ([],),
        "function_call": ("auto", "none"),
    },
    unsupported={
        "n": "each request gets one answer",
        "logprobs": _NO_LOGPROBS,
        "top_logprobs": _NO_LOGPROBS,
        "logit_bias": "workers have different tokenizers",
        "modalities": "answers are text",
        "audio": "answers are text",
        "web_search_options": "pass a search tool in tools, or configure an MCP server",
        "moderation": "there is no moderation",
        "functions": "deprecated; use tools",
        "function_call": "deprecated; use tool_choice",
    },
    wire="chat",
    passed_through=frozenset({"n", "logprobs", "top_logprobs", "logit_bias"}),
)

_TOOL: Final = frozenset({"type", "function"})
_FUNCTION: Final = frozenset({"name", "description", "parameters", "strict"})


class ChatDialect:
    """The dialect; `CHAT` is its only instance."""

    fields = _FIELDS

    def read(self, body: Json) -> ApiRequest:
        fields = read_object(body)
        fields.optional("metadata", metadata)
        stream = fields.optional("stream", flag) or False
        requested_effort = fields.optional("reasoning_effort", effort)
        model = fields.required("model", _name)
        messages = fields.required("messages", conversation)
        if instruction := fields.optional("verbosity", verbosity):
            messages = prepend_instructions(messages, instruction)
        shows_usage = _shows_usage(fields, stream) if "stream_options" in body else not stream
        return ApiRequest(
            model=model,
            messages=messages,
            response_options=_response_options(fields, requested_effort),
            stream=stream,
            store=fields.optional("store", flag) is not False,
            shows_reasoning=requested_effort not in (None, "none"),
            shows_usage=shows_usage,
            params=fields.optional("podium", read_podium_params) or PodiumParams(),
            raw_body=body,
            extra=_FIELDS.select_extra(body),
        )

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        return completion(request, answer)

    def stream_writer(self, request: ApiRequest, opening: ApiResponse) -> StreamWriter:
        return ChatWriter(request, opening)

    def format_error(self, error: ApiError) -> dict[str, Any]:
        return {"error": openai_error(error)}


CHAT: Final[Dialect] = ChatDialect()


def _shows_usage(fields: Fields, stream: bool) -> bool:
    options = stream_options(fields, "include_usage", stream=stream)
    if options is None:
        return not stream
    return options.optional("include_usage", flag) or False


def _response_options(fields: Fields, effort: Effort | None) -> ResponseOptions:
    tools = fields.optional("tools", _tools) or ()
    tool_choice = ""
    if (given := fields.values.get("tool_choice")) is not None:
        tool_choice, tools = read_tool_choice(given, "tool_choice", tools, nested=True)
    parallel = fields.optional("parallel_tool_calls", flag)
    max_tokens = fields.optional("max_completion_tokens", _count)
    older = fields.optional("max_tokens", _count)
    if max_tokens is not None and older is not None and max_tokens != older:
        raise invalid(
            "max_tokens",
            f"max_tokens is {older} and max_completion_tokens is {max_tokens}; "
            f"send only the latter",
        )
    return ResponseOptions(
        max_tokens=older if max_tokens is None else max_tokens,
        temperature=fields.optional("temperature", _temperature),
        top_p=fields.optional("top_p", _top_p),
        seed=fields.optional("seed", _seed),
        stop=fields.optional("stop", _stops) or (),
        tools=tools,
        tool_choice=tool_choice,
        schema=fields.optional("response_format", _format),
        effort=effort,
        parallel_tools=not tools or parallel is not False,
        cache_key=fields.optional("prompt_cache_key", _hint) or "",
    )


def _stops(value: object, path: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_stop(value, path),)
    return array(_stop, most=MAX_STOPS)(value, path)


def _tool(value: object, path: str) -> Tool:
    fields = read_object(value, path)
    if fields.values.get("type") == "custom":
        raise invalid(fields.at("type"), f"{fields.at('type')}: only functions are supported")
    fields.note_unknown(_TOOL).required("type", choice(("function",)))
    return fields.required("function", _function)


def _tools(value: object, path: str) -> tuple[Tool, ...]:
    return check_unique_names(array(_tool, most=MAX_TOOLS)(value, path), path)


def _function(value: object, path: str) -> Tool:
    fields = read_object(value, path).note_unknown(_FUNCTION)
    name = fields.required("name", text)
    return make_tool(
        name, fields.optional("description", text), fields.values.get("parameters"), path
    )
