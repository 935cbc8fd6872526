"""Anthropic's Messages API, as its SDKs and Claude Code use it.

`metadata`, `service_tier` and `speed` have no effect. Fields that must not be ignored are refused
with what to do instead; all others are ignored and reported. The header `anthropic-beta` is not
read: a beta only allows fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.request import CacheTtl, Effort, Message, ResponseOptions, Tool
from podium.server.api_error import ApiError, invalid
from podium.server.dialects import anthropic_response as writer
from podium.server.dialects.anthropic_messages import conversation, strip_old_thinking
from podium.server.dialects.anthropic_response import (
    NO_SIGNATURE,
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
    BodyFields,
    PodiumParams,
    read_podium_params,
)

MIN_THINKING_TOKENS: Final = 1024
MAX_TOOLS: Final = 1000
MAX_STOPS: Final = 64

FIELDS: Final = BodyFields(
    supported=frozenset(
        {"model", "messages", "system", "max_tokens", "stop_sequences", "stream", "temperature"}
        | {"top_p", "thinking", "tools", "tool_choice", "output_config", "output_format"}
        | {"context_management", "metadata", "cache_control", "podium"}
    ),
    without_effect={
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
        "mcp_servers": ([],),
        "betas": ([],),
    },
    unsupported={
        "container": "Podium has no containers or skills",
        "mcp_servers": "Podium uses only MCP servers configured in podium.toml; leave it out",
        "inference_geo": "Podium cannot guarantee where a worker runs; use podium.exclude "
        "to avoid workers or providers",
        "thread": "Podium does not store threads; send the whole conversation in messages, "
        "as the SDK's tool runner then does",
    },
    wire="messages",
)

_THINKING: Final = frozenset({"type", "budget_tokens", "display"})
_OUTPUT: Final = frozenset({"effort", "format"})
_FORMAT: Final = frozenset({"type", "schema"})
_TOOL: Final = frozenset(
    {"type", "name", "description", "input_schema", "cache_control", "eager_input_streaming"}
    | {"strict", "defer_loading", "allowed_callers", "input_examples"}
)
_CHOICE: Final = frozenset({"type", "name", "disable_parallel_tool_use"})
_EDITS: Final = frozenset({"edits"})
_EDIT: Final = frozenset({"type", "keep"})

SERVER_TOOLS: Final[Mapping[str, str]] = {
    "web_search": "Podium does not have Anthropic's web search; configure an MCP search server "
    "in podium.toml (in Claude Code, deny the tool WebSearch)",
    "web_fetch": "Podium does not have Anthropic's web fetch; pass a custom tool that fetches",
    "code_execution": "Podium does not execute code; pass a custom tool that does",
    "tool_search": "Podium has no tool search; send every tool "
    "(in Claude Code, set ENABLE_TOOL_SEARCH=false)",
    "mcp_toolset": "Podium uses only MCP servers configured in podium.toml",
}
"""Anthropic's own tools by the prefix of their type, and what to do instead."""


@dataclass(frozen=True, slots=True)
class ThinkingParams:
    """The `thinking` field: whether to show it, its token budget, and the effort it implies."""

    shown: bool = False
    tokens: int | None = None
    effort: Effort | None = None


def read_response_options(body: Fields, *, counting: bool) -> ResponseOptions:
    """Read the response options. Only counting tokens needs no `max_tokens`."""
    length = integer(1)
    tools = check_unique_names(body.optional("tools", array(_tool, most=MAX_TOOLS)) or (), "tools")
    effort, form = body.optional("output_config", _output_config) or (None, None)
    older_form = body.optional("output_format", _format)
    if form is not None and older_form is not None:
        raise invalid(
            "output_format",
            "output_format and output_config.format are both set; send the latter",
        )
    return ResponseOptions(
        max_tokens=(body.optional if counting else body.required)("max_tokens", length),
        temperature=body.optional("temperature", number(0, 1)),
        top_p=body.optional("top_p", number(0, 1)),
        stop=body.optional("stop_sequences", array(bounded_text(1, 1000), most=MAX_STOPS)) or (),
        tools=tools,
        tool_choice=_tool_choice(body, tools),
        parallel_tools=not tools or not _one_at_a_time(body),
        schema=older_form if form is None else form,
        effort=effort,
    )


def read_thinking(
    body: Fields, response_options: ResponseOptions
) -> tuple[ResponseOptions, ThinkingParams]:
    """Add effort and tokens of `thinking`; an effort in `output_config` takes precedence."""
    thinking = body.optional("thinking", _read_thinking) or ThinkingParams()
    if (
        thinking.tokens is not None
        and response_options.max_tokens is not None
        and thinking.tokens >= response_options.max_tokens
    ):
        path = "thinking.budget_tokens"
        raise invalid(
            path,
            f"{path}: expected less than max_tokens, which is {response_options.max_tokens}, "
            f"got {thinking.tokens}",
        )
    effort = response_options.effort or thinking.effort or thinking_effort(thinking.tokens)
    return replace(response_options, effort=effort, thinking_tokens=thinking.tokens), thinking


def read_kept_thinking(body: Fields) -> int | None:
    """Return how many turns keep their thinking, by `context_management`; None for all."""
    edits = body.optional("context_management", _edits) or ()
    return min((turns for turns in edits if turns is not None), default=None)


def _read_thinking(value: object, path: str) -> ThinkingParams:
    fields = read_object(value, path).note_unknown(_THINKING)
    kind = fields.required("type", choice(("enabled", "adaptive", "disabled", "between_tools")))
    display = fields.optional("display", choice(("summarized", "omitted", "updates")))
    if kind != "enabled" and fields.has("budget_tokens"):
        path = fields.at("budget_tokens")
        raise invalid(path, f"{path}: only thinking of type 'enabled' has a budget, not {kind!r}")
    match kind:
        case "disabled":
            return ThinkingParams(effort="none")
        case "between_tools":
            return ThinkingParams(shown=True, effort="none")
        case _:
            tokens = fields.optional("budget_tokens", integer(MIN_THINKING_TOKENS))
            return ThinkingParams(shown=display != "omitted", tokens=tokens)


def _output_config(value: object, path: str) -> tuple[Effort | None, dict[str, Any] | None]:
    fields = read_object(value, path).note_unknown(_OUTPUT)
    effort = fields.optional("effort", choice(("low", "medium", "high", "xhigh", "max")))
    return EFFORTS[effort] if effort else None, fields.optional("format", _format)


def _format(value: object, path: str) -> dict[str, Any]:
    fields = read_object(value, path).note_unknown(_FORMAT)
    fields.required("type", choice(("json_schema",)))
    return fields.required("schema", output_schema)


def _tool(value: object, path: str) -> Tool:
    fields = read_object(value, path)
    kind = fields.optional("type", text) or "custom"
    if kind != "custom":
        raise _unsupported_tool(kind, fields.at("type"))
    fields.note_unknown(_TOOL)
    fields.optional("allowed_callers", array(choice(("direct",)), most=1, least=1))
    parameters = fields.required("input_schema", read_object)
    if parameters.values.get("type", "object") != "object":
        path = parameters.at("type")
        raise invalid(path, f"{path}: expected 'object': a tool's input is always an object")
    name, description = fields.required("name", text), _description(fields)
    return make_tool(name, description, parameters.values, path, called="input_schema")


def _description(fields: Fields) -> str:
    """Return the description, with input examples as text that every model reads."""
    words = fields.optional("description", text) or ""
    examples = fields.optional("input_examples", array(json_object, most=100)) or ()
    return "\n".join([words, *(f"Example input: {json.dumps(example)}" for example in examples)])


def _unsupported_tool(kind: str, path: str) -> ApiError:
    for beginning, instead in SERVER_TOOLS.items():
        if kind.startswith(beginning):
            return invalid(path, f"{path}: the tool {kind[:60]!r} is not supported: {instead}")
    return invalid(
        path,
        f"{path}: expected 'custom', got {kind[:60]!r}; Anthropic's own tools are not supported: "
        f"define a custom tool with name, description and input_schema",
    )


def _tool_choice(body: Fields, tools: tuple[Tool, ...]) -> str:
    chosen = body.optional("tool_choice", read_object)
    if chosen is None:
        return ""
    kind = chosen.required("type", choice(("auto", "any", "tool", "none")))
    chosen.note_unknown(_CHOICE)
    if kind in ("any", "tool") and not tools:
        raise invalid("tool_choice", f"tool_choice: {kind!r} needs tools, and there are none")
    if kind == "tool":
        return find_tool(tools, chosen.required("name", text), chosen.at("name")).name
    return "required" if kind == "any" else kind


def _one_at_a_time(body: Fields) -> bool:
    """True if each worker is to call one tool at a time."""
    chosen = body.optional("tool_choice", read_object) or Fields({})
    return chosen.optional("disable_parallel_tool_use", flag) or False


def _edits(value: object, path: str) -> tuple[int | None, ...]:
    fields = read_object(value, path).note_unknown(_EDITS)
    return fields.optional("edits", array(_edit, most=16)) or ()


def _edit(value: object, path: str) -> int | None:
    """Return how many turns keep their thinking, by this edit."""
    fields = read_object(value, path)
    if fields.required("type", text) != "clear_thinking_20251015":
        fields.note_unknown(frozenset())
        return None
    fields.note_unknown(_EDIT)
    return fields.optional("keep", _kept_turns) if fields.has("keep") else 1


def _kept_turns(value: object, path: str) -> int | None:
    if value == "all":
        return None
    fields = read_object(value, path)
    if fields.required("type", choice(("thinking_turns", "all"))) == "all":
        return None
    return fields.required("value", integer(1))


def cache_ttl(body: Json) -> CacheTtl:
    """Return how long the prompt is cached: the shortest of the marks, which never costs more."""
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
    """The dialect of `/v1/messages` and `/v1/messages/count_tokens`."""

    fields = FIELDS

    def read(self, body: Json) -> ApiRequest:
        return _read(body, counting=False)

    def read_count(self, body: Json) -> ApiRequest:
        """Read a body whose tokens are counted; it needs no `max_tokens`."""
        return _read(body, counting=True)

    def format_count(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if answer.thinking and writer.keeps_thinking(request):
            block = thinking_block(answer.thinking, in_words=request.shows_reasoning)
            if block["thinking"] or block["signature"] != NO_SIGNATURE:
                content.append(block)
        if answer.text or not answer.tool_calls:
            content.append({"type": "text", "text": answer.text})
        content.extend(writer.tool_use(call) for call in answer.tool_calls)
        start, stop = writer.message_start(request, answer), writer.stop_fields(answer)
        return start | {"content": content} | stop

    def stream_writer(self, request: ApiRequest, opening: ApiResponse) -> AnthropicWriter:
        return AnthropicWriter(request, opening)

    def format_error(self, error: ApiError) -> dict[str, Any]:
        return writer.anthropic_error(error)


MESSAGES: Final = AnthropicDialect()


def _read(value: object, *, counting: bool) -> ApiRequest:
    body = read_object(value)
    options, thinking = read_thinking(body, read_response_options(body, counting=counting))
    messages = conversation(body)
    if not counting:
        thinks = body.has("thinking") and thinking.effort != "none"
        options = _continue_last(messages, options, thinks=thinks)
    turns = read_kept_thinking(body)
    return ApiRequest(
        model=body.required("model", bounded_text(1, 256)),
        messages=messages if turns is None else strip_old_thinking(messages, turns),
        response_options=replace(options, cache_ttl=cache_ttl(body.values)),
        stream=body.optional("stream", flag) or False,
        shows_reasoning=thinking.shown,
        params=body.optional("podium", read_podium_params) or PodiumParams(),
        raw_body=body.values,
        extra=FIELDS.select_extra(body.values),
    )


def _continue_last(
    messages: tuple[Message, ...], options: ResponseOptions, *, thinks: bool
) -> ResponseOptions:
    """Return the options; the answer continues a last message of the assistant."""
    said = [message for message in messages if message.role != "system"]
    if not said:
        raise invalid("messages", "messages: the last message is empty")
    if said[-1].role != "assistant":
        return options
    if thinks or options.schema is not None or said[-1] is not messages[-1]:
        raise invalid(
            "messages",
            "messages: an answer that the last message begins cannot have thinking or a schema; "
            "end with a message from the user",
        )
    return replace(options, is_prefilled=True)
