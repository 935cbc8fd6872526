"""OpenAI's Chat Completions, as its current SDKs speak it.

Everything that a client may send is read here, and is one of four:

- *honoured*: messages (`messages`), model, tools, tool_choice, parallel_tool_calls (each
  worker calls one tool at a time; steps that run at once may call one each), response_format, stop,
  max_completion_tokens or max_tokens, temperature, top_p, seed, reasoning_effort, verbosity (told
  to the workers in words), stream, stream_options, store, prompt_cache_key (passed on to OpenAI's
  models), and our own `podium` object;
- *without effect by contract*, checked for form: user, safety_identifier, metadata (which the
  response repeats), and the hints on caches prompt_cache_options and prompt_cache_retention, by
  which no answer changes;
- *served at its default alone*: n, logprobs, penalties and the others of `_ONLY_DEFAULT`;
- *refused*: functions, audio and the others of `_NOT_SERVED`, and every name unknown.

`reasoning_effort` other than `none` also says that the client wants to see progress and thinking,
which come as `reasoning_content`. A function's `strict` asks that arguments fit the parameters:
providers that can enforce it do so for every schema that allows it, whatever is asked here.
What is written back is in `answer` and `stream`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podium.core.request import Message, ResponseOptions, Tool
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.base import Answer, ApiRequest, Dialect, Json, PodiumParams, Writer
from podium.server.dialects.chat.messages import conversation
from podium.server.dialects.chat.response import ChatWriter, completion
from podium.server.dialects.fields import (
    Fields,
    choice,
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
    error,
    metadata,
    stream_options,
    verbosity,
)
from podium.server.dialects.podium_params import wished
from podium.server.dialects.tools import MOST_TOOLS, demanded, distinct, tool, with_instructions

MOST_STOPS: Final = 4

_name: Final = text_of(1, 200)
_hint: Final = text_of(0, 1024)
_stop: Final = text_of(1, 1024)
_count: Final = whole(1)
_warmth: Final = number(0, 2)
_share: Final = number(0, 1)
_seed: Final = whole(-(2**63), 2**63 - 1)
_format: Final = answer_format(nested=True)
_cache_options: Final = cache_options("30m")


class _Default(NamedTuple):
    """The values that demand nothing, and why others cannot be served."""

    values: tuple[object, ...]
    why: str


_ONLY_DEFAULT: Final[Mapping[str, _Default]] = {
    "n": _Default((1,), "a request gets one answer; ask again for another"),
    "logprobs": _Default((False,), "not every worker tells how likely its words were"),
    "top_logprobs": _Default((0,), "not every worker tells how likely its words were"),
    "frequency_penalty": _Default((0,), "not every worker can be told to avoid its own words"),
    "presence_penalty": _Default((0,), "not every worker can be told to avoid its own words"),
    "logit_bias": _Default(({},), "workers have different tokens, so a bias on one has no meaning"),
    "modalities": _Default((["text"],), "answers are text"),
    "service_tier": _Default(("auto", "default"), "there is one way to be served"),
}

_NOT_SERVED: Final[Mapping[str, str]] = {
    "audio": "answers are text",
    "prediction": "workers cannot be handed a predicted answer; leave it out",
    "web_search_options": "name a search among the tools, or have the server's own configured",
    "moderation": "nothing is moderated here; leave it out",
    "functions": "functions are no longer; use tools",
    "function_call": "function_call is no longer; use tool_choice",
}

_KNOWN: Final = frozenset(
    {"messages", "model", "tools", "tool_choice", "parallel_tool_calls", "response_format"}
    | {"stop", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"}
    | {"reasoning_effort", "verbosity", "stream", "stream_options", "store", "metadata", "user"}
    | {"safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"podium"}
    | _ONLY_DEFAULT.keys()
    | _NOT_SERVED.keys()
)


class Chat:
    """The dialect. It has no state: `CHAT` is the one there is."""

    def read(self, body: Json) -> ApiRequest:
        """Read a body; raises `ApiError`."""
        fields = opened(body).only(_KNOWN)
        _check_what_demands_nothing(fields)
        stream = fields.optional("stream", flag) or False
        asked_effort = fields.optional("reasoning_effort", effort)
        return ApiRequest(
            model=fields.required("model", _name),
            messages=_messages(fields),
            response_options=_response_options(fields),
            stream=stream,
            store=fields.optional("store", flag) is not False,
            shows_reasoning=asked_effort not in (None, "none"),
            shows_usage=_shows_usage(fields, stream),
            wished=fields.optional("podium", wished) or PodiumParams(),
            body=body,
        )

    def whole(self, asked: ApiRequest, answer: Answer) -> dict[str, Any]:
        """A `chat.completion`."""
        return completion(asked, answer)

    def writer(self, asked: ApiRequest, opening: Answer) -> Writer:
        """A stream of `chat.completion.chunk`."""
        return ChatWriter(asked, opening)

    def refused(self, refusal: ApiError) -> dict[str, Any]:
        """The body of an error."""
        return {"error": error(refusal)}


CHAT: Final[Dialect] = Chat()


def _check_what_demands_nothing(fields: Fields) -> None:
    for name in fields.values:
        if not fields.given(name):
            continue
        if name in _NOT_SERVED:
            raise invalid(name, f"{name} is not served: {_NOT_SERVED[name]}")
        if default := _ONLY_DEFAULT.get(name):
            value = fields.values[name]
            if not any(_same(value, harmless) for harmless in default.values):
                only = " or ".join(json.dumps(harmless) for harmless in default.values)
                raise invalid(
                    name, f"{name}: only {only} is served ({default.why}), got {shown(value)}"
                )
    fields.optional("user", _hint)
    fields.optional("safety_identifier", _hint)
    fields.optional("prompt_cache_options", _cache_options)
    fields.optional("prompt_cache_retention", choice(("in_memory", "24h")))
    fields.optional("metadata", metadata)


def _same(value: object, harmless: object) -> bool:
    """Equal, and `true` is not 1."""
    return isinstance(value, bool) == isinstance(harmless, bool) and value == harmless


def _messages(fields: Fields) -> tuple[Message, ...]:
    messages = fields.required("messages", conversation)
    return with_instructions(messages, fields.optional("verbosity", verbosity))


def _shows_usage(fields: Fields, stream: bool) -> bool:
    options = stream_options(fields, "include_usage", stream=stream)
    if options is None:
        return not stream
    return options.optional("include_usage", flag) or False


def _response_options(fields: Fields) -> ResponseOptions:
    tools = fields.optional("tools", listed(_tool, most=MOST_TOOLS)) or ()
    tools, tool_choice = _choice_among(distinct(tools, "tools"), fields)
    parallel = fields.optional("parallel_tool_calls", flag)
    return ResponseOptions(
        max_tokens=_max_tokens(fields),
        temperature=fields.optional("temperature", _warmth),
        top_p=fields.optional("top_p", _share),
        seed=fields.optional("seed", _seed),
        stop=fields.optional("stop", _stops) or (),
        tools=tools,
        tool_choice=tool_choice,
        schema=fields.optional("response_format", _format),
        effort=fields.optional("reasoning_effort", effort),
        parallel_tools=not tools or parallel is not False,
        cache_key=fields.optional("prompt_cache_key", _hint) or "",
    )


def _max_tokens(fields: Fields) -> int | None:
    new = fields.optional("max_completion_tokens", _count)
    old = fields.optional("max_tokens", _count)
    if new is not None and old is not None and new != old:
        raise invalid(
            "max_tokens",
            f"max_tokens is {old} and max_completion_tokens is {new}; send only the latter",
        )
    return old if new is None else new


def _stops(value: object, path: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_stop(value, path),)
    return listed(_stop, most=MOST_STOPS)(value, path)


def _tool(value: object, path: str) -> Tool:
    fields = opened(value, path)
    if fields.values.get("type") == "custom":
        raise invalid(fields.at("type"), f"{fields.at('type')}: only functions are served")
    fields.only(("type", "function")).required("type", choice(("function",)))
    return fields.required("function", _function)


def _function(value: object, path: str) -> Tool:
    fields = opened(value, path).only(("name", "description", "parameters", "strict"))
    fields.optional("strict", flag)
    name = fields.required("name", text)
    return tool(name, fields.optional("description", text), fields.values.get("parameters"), path)


def _choice_among(tools: tuple[Tool, ...], fields: Fields) -> tuple[tuple[Tool, ...], str]:
    """The tools that may be called, and which of them must be."""
    value = fields.values.get("tool_choice")
    path = "tool_choice"
    if value is None:
        return tools, ""
    if isinstance(value, str):
        chosen = choice(("auto", "none", "required"))(value, path)
        if chosen == "required" and not tools:
            raise invalid(path, "tool_choice is 'required', but there are no tools")
        return tools, chosen if tools else ""
    named = opened(value, path)
    kind = named.required("type", choice(("function", "allowed_tools")))
    named.only(("type", kind))
    if kind == "function":
        name = named.required(kind, _reference)
        return tools, demanded(tools, name, named.at("function.name")).name
    allowed = named.required(kind, opened).only(("mode", "tools"))
    at = allowed.at("tools")
    names = {
        demanded(tools, name, at).name
        for name in allowed.required("tools", listed(_allowed, most=MOST_TOOLS, least=1))
    }
    mode = allowed.required("mode", choice(("auto", "required")))
    return tuple(tool for tool in tools if tool.name in names), mode


def _allowed(value: object, path: str) -> str:
    fields = opened(value, path).only(("type", "function"))
    fields.required("type", choice(("function",)))
    return fields.required("function", _reference)


def _reference(value: object, path: str) -> str:
    return opened(value, path).only(("name",)).required("name", text)
