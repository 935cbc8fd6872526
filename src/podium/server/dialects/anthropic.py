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

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.request import CacheTime, Effort, Message, ResponseOptions, Tool
from podium.server.api_error import ApiError, invalid
from podium.server.dialects import anthropic_response as told
from podium.server.dialects.anthropic_messages import (
    cache_control,
    conversation,
    strip_old_thinking,
)
from podium.server.dialects.anthropic_response import (
    SHOWN,
    AnthropicWriter,
    thinking_block,
    thinking_effort,
)
from podium.server.dialects.content import check_unique_names, find_tool, make_tool, output_schema
from podium.server.dialects.fields import (
    EFFORTS,
    Fields,
    Json,
    array,
    bounded_text,
    choice,
    flag,
    integer,
    json_object,
    number,
    read_object,
    text,
)
from podium.server.dialects.request import (
    ApiRequest,
    ApiResponse,
    PodiumParams,
    read_podium_params,
)

KNOWN: Final = frozenset(
    {
        "model",
        "messages",
        "system",
        "max_tokens",
        "stop_sequences",
        "stream",
        "temperature",
        "top_p",
        "thinking",
        "tools",
        "tool_choice",
        "output_config",
        "output_format",
        "context_management",
        "metadata",
        "service_tier",
        "speed",
        "cache_control",
        "podium",
    }
)

LEAST_THINKING_TOKENS: Final = 1024
MOST_TOOLS: Final = 1000
MOST_STOPS: Final = 64

IN_CLAUDE_CODE: Final = "in Claude Code, set CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS=1"

UNSERVED: Final[Mapping[str, str]] = {
    "top_k": "not every worker knows it; leave it out, or use top_p",
    "container": "Podium runs no containers and loads no skills; leave it out",
    "mcp_servers": "Podium reaches only MCP servers that its operator names in podium.toml; "
    "leave it out",
    "inference_geo": "Podium cannot promise where a worker runs; leave it out, and keep workers "
    "or providers away by podium.exclude",
    "diagnostics": f"Podium does not follow providers' caches; leave it out ({IN_CLAUDE_CODE})",
    "compaction": "Podium does not compact conversations; send the messages, or a summary of them",
    "thread": "Podium keeps no threads; send the whole conversation in messages, as the SDK's tool "
    "runner then does by itself",
    "fallbacks": "a worker's fallback is named in podium.toml; leave it out",
    "fallback_credit_token": "Podium knows no such credit; leave it out",
    "betas": "betas belong into the header anthropic-beta, and Podium needs none; leave it out",
}
"""Fields of Anthropic's API, and of its betas, that Podium does not serve."""

SERVER_TOOLS: Final[Mapping[str, str]] = {
    "web_search": "Podium has no web search of Anthropic's; let the operator name a search server "
    "under MCP in podium.toml (in Claude Code, deny the tool WebSearch)",
    "web_fetch": "Podium has no web fetch of Anthropic's; offer a custom tool that fetches",
    "code_execution": "Podium runs no code of the model's; offer a custom tool that does",
    "tool_search": "Podium has no tool search; send every tool "
    "(in Claude Code, set ENABLE_TOOL_SEARCH=false)",
    "mcp_toolset": "Podium reaches only MCP servers that its operator names in podium.toml",
}
"""By how the type begins."""


@dataclass(frozen=True, slots=True)
class ThinkingParams:
    """What `thinking` comes to: whether it is shown, how much of it there may be, and the effort
    that it asks for by itself."""

    shown: bool = False
    tokens: int | None = None
    effort: Effort | None = None


def refuse_unserved(body: Fields) -> None:
    """Nothing that a client sends is ignored; an empty list or object asks for nothing."""
    for name, instead in UNSERVED.items():
        if body.values.get(name) not in (None, [], {}):
            raise invalid(name, f"{name} is not served: {instead}")
    body.only(KNOWN | UNSERVED.keys())


def read_hints(body: Fields) -> None:
    """Fields that change nothing here are still read: what is malformed is refused."""
    body.optional("cache_control", cache_control)
    body.optional("metadata", _metadata)
    body.optional("service_tier", choice(("auto", "standard_only")))
    body.optional("speed", _speed)


def read_terms(body: Fields, *, counting: bool) -> ResponseOptions:
    """What the answer must be like. Only where tokens are counted, there need be no limit."""
    length = integer(1)
    tools = check_unique_names(body.optional("tools", array(_tool, most=MOST_TOOLS)) or (), "tools")
    effort, form = body.optional("output_config", _output_config) or (None, None)
    older_form = body.optional("output_format", _format)
    if form is not None and older_form is not None:
        raise invalid(
            "output_format",
            "output_format and output_config.format are both there; send the latter",
        )
    return ResponseOptions(
        max_tokens=(body.optional if counting else body.required)("max_tokens", length),
        temperature=body.optional("temperature", number(0, 1)),
        top_p=body.optional("top_p", number(0, 1)),
        stop=body.optional("stop_sequences", array(bounded_text(1, 1000), most=MOST_STOPS)) or (),
        tools=tools,
        tool_choice=_tool_choice(body, tools),
        parallel_tools=not tools or not _one_at_a_time(body),
        schema=older_form if form is None else form,
        effort=effort,
    )


def read_thinking(
    body: Fields, response_options: ResponseOptions
) -> tuple[ResponseOptions, ThinkingParams]:
    """The terms with the effort and the tokens that thinking asks for, and what is to be shown of
    it. An effort in `output_config` counts for more."""
    wish = body.optional("thinking", _thinking) or ThinkingParams()
    if (
        wish.tokens is not None
        and response_options.max_tokens is not None
        and wish.tokens >= response_options.max_tokens
    ):
        path = "thinking.budget_tokens"
        raise invalid(
            path,
            f"{path}: expected less than max_tokens, which is {response_options.max_tokens}, "
            f"got {wish.tokens}",
        )
    effort = response_options.effort or wish.effort or thinking_effort(wish.tokens)
    return replace(response_options, effort=effort, thinking_tokens=wish.tokens), wish


def turns_of_thinking(body: Fields) -> int | None:
    """How many turns keep their thinking, by `context_management`; None for all of them."""
    edits = body.optional("context_management", _edits) or ()
    return min((turns for turns in edits if turns is not None), default=None)


def _speed(value: object, path: str) -> None:
    if choice(("standard", "fast"))(value, path) == "fast":
        raise invalid(
            path,
            f"{path}: Podium has no fast mode; leave it out (in Claude Code, turn /fast off)",
        )


def _metadata(value: object, path: str) -> None:
    read_object(value, path).only(("user_id",)).optional("user_id", bounded_text(0, 4096))


def _thinking(value: object, path: str) -> ThinkingParams:
    fields = read_object(value, path).only(("type", "budget_tokens", "display", "block_binding"))
    kind = fields.required("type", choice(("enabled", "adaptive", "disabled", "between_tools")))
    display = fields.optional("display", choice(("summarized", "omitted", "updates")))
    if fields.values.get("block_binding"):
        path = fields.at("block_binding")
        raise invalid(path, f"{path} is not served; leave it out ({IN_CLAUDE_CODE})")
    if kind != "enabled" and fields.given("budget_tokens"):
        path = fields.at("budget_tokens")
        raise invalid(
            path, f"{path}: only thinking of the type 'enabled' has a budget, not {kind!r}"
        )
    match kind:
        case "disabled":
            return ThinkingParams(effort="none")
        case "between_tools":
            return ThinkingParams(shown=True, effort="none")
        case _:
            tokens = fields.optional("budget_tokens", integer(LEAST_THINKING_TOKENS))
            return ThinkingParams(shown=display != "omitted", tokens=tokens)


def _output_config(value: object, path: str) -> tuple[Effort | None, dict[str, Any] | None]:
    fields = read_object(value, path).only(("effort", "format", "task_budget"))
    if fields.given("task_budget"):
        path = fields.at("task_budget")
        raise invalid(
            path, f"{path} is not served; cap a request by podium.budget ({IN_CLAUDE_CODE})"
        )
    effort = fields.optional("effort", choice(("low", "medium", "high", "xhigh", "max")))
    return EFFORTS[effort] if effort else None, fields.optional("format", _format)


def _format(value: object, path: str) -> dict[str, Any]:
    fields = read_object(value, path).only(("type", "schema"))
    fields.required("type", choice(("json_schema",)))
    return fields.required("schema", output_schema)


def _tool(value: object, path: str) -> Tool:
    fields = read_object(value, path)
    kind = fields.optional("type", text) or "custom"
    if kind != "custom":
        raise _unserved_tool(kind, fields.at("type"))
    fields.only(
        (
            "type",
            "name",
            "description",
            "input_schema",
            "cache_control",
            "eager_input_streaming",
            "strict",
            "defer_loading",
            "allowed_callers",
            "input_examples",
        )
    )
    fields.optional("cache_control", cache_control)
    fields.optional("eager_input_streaming", flag)
    fields.optional("strict", flag)
    fields.optional("allowed_callers", array(choice(("direct",)), most=1, least=1))
    if fields.optional("defer_loading", flag):
        raise invalid(fields.at("defer_loading"), f"{path}: {SERVER_TOOLS['tool_search']}")
    parameters = fields.required("input_schema", read_object)
    if parameters.values.get("type", "object") != "object":
        path = parameters.at("type")
        raise invalid(path, f"{path}: expected 'object': a tool's input is always an object")
    name, description = fields.required("name", text), _description(fields)
    return make_tool(name, description, parameters.values, path, called="input_schema")


def _description(fields: Fields) -> str:
    """What the tool does; examples of its input are told in words, which every model reads."""
    words = fields.optional("description", text) or ""
    examples = fields.optional("input_examples", array(json_object, most=100)) or ()
    return "\n".join([words, *(f"Example input: {json.dumps(example)}" for example in examples)])


def _unserved_tool(kind: str, path: str) -> ApiError:
    for beginning, instead in SERVER_TOOLS.items():
        if kind.startswith(beginning):
            return invalid(path, f"{path}: the tool {kind[:60]!r} is not served: {instead}")
    return invalid(
        path,
        f"{path}: expected 'custom', got {kind[:60]!r}; Anthropic's own tools are not served: "
        f"declare one of your own with a name, a description and an input_schema",
    )


def _tool_choice(body: Fields, tools: tuple[Tool, ...]) -> str:
    """In our words: a tool's name, or one of `TOOL_CHOICES`."""
    chosen = body.optional("tool_choice", read_object)
    if chosen is None:
        return ""
    kind = chosen.required("type", choice(("auto", "any", "tool", "none")))
    named = ("name",) if kind == "tool" else ()
    parallel = ("disable_parallel_tool_use",) if kind != "none" else ()
    chosen.only(("type", *named, *parallel))
    chosen.optional("disable_parallel_tool_use", flag)
    if kind in ("any", "tool") and not tools:
        raise invalid("tool_choice", f"tool_choice: {kind!r} needs tools, and there are none")
    if kind == "tool":
        return find_tool(tools, chosen.required("name", text), chosen.at("name")).name
    return "required" if kind == "any" else kind


def _one_at_a_time(body: Fields) -> bool:
    """Whether a worker is to call one tool at a time; steps that run at once may call one each."""
    chosen = body.optional("tool_choice", read_object) or Fields({})
    return chosen.optional("disable_parallel_tool_use", flag) or False


def _edits(value: object, path: str) -> tuple[int | None, ...]:
    fields = read_object(value, path).only(("edits",))
    return fields.optional("edits", array(_edit, most=16)) or ()


def _edit(value: object, path: str) -> int | None:
    """How many turns keep their thinking, by this edit."""
    fields = read_object(value, path)
    kind = fields.required("type", text)
    if kind != "clear_thinking_20251015":
        path = fields.at("type")
        raise invalid(
            path,
            f"{path}: of context_management, only clear_thinking_20251015 is served, "
            f"got {kind[:60]!r}; leave it out ({IN_CLAUDE_CODE})",
        )
    fields.only(("type", "keep"))
    return fields.optional("keep", _kept_turns) if fields.given("keep") else 1


def _kept_turns(value: object, path: str) -> int | None:
    if value == "all":
        return None
    fields = read_object(value, path).only(("type", "value"))
    if fields.required("type", choice(("thinking_turns", "all"))) == "all":
        return None
    return fields.required("value", integer(1))


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


class AnthropicDialect:
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

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        content: list[dict[str, Any]] = []
        if answer.thinking and told.keeps_thinking(request):
            block = thinking_block(answer.thinking, in_words=request.shows_reasoning)
            if block["thinking"] or block["signature"] != SHOWN:
                content.append(block)
        if answer.text or not answer.tool_calls:
            content.append({"type": "text", "text": answer.text})
        content.extend(told.tool_use(call) for call in answer.tool_calls)
        return told.message_start(request, answer) | {"content": content} | told.stop_fields(answer)

    def writer(self, request: ApiRequest, opening: ApiResponse) -> AnthropicWriter:
        """A stream."""
        return AnthropicWriter(request, opening)

    def refused(self, error: ApiError) -> dict[str, Any]:
        """The body of an error."""
        return told.anthropic_error(error)


MESSAGES: Final = AnthropicDialect()


def _read(value: object, *, counting: bool) -> ApiRequest:
    body = read_object(value)
    refuse_unserved(body)
    read_hints(body)
    find_tool, thinking = read_thinking(body, read_terms(body, counting=counting))
    messages = conversation(body)
    if not counting:
        _check_last(messages)
    turns = turns_of_thinking(body)
    return ApiRequest(
        model=body.required("model", bounded_text(1, 256)),
        messages=messages if turns is None else strip_old_thinking(messages, turns),
        response_options=replace(find_tool, cache_time=cache_time(body.values)),
        stream=body.optional("stream", flag) or False,
        shows_reasoning=thinking.shown,
        params=body.optional("podium", read_podium_params) or PodiumParams(),
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
