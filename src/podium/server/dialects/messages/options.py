"""What a Messages body demands of the answer: length, sampling, tools, format, thinking.

Every field of Anthropic's API is honoured, taken as a hint that changes no answer (`cache_control`,
which `cache` reads, `metadata`, `service_tier`, `eager_input_streaming`), or refused
with what to do instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.request import Effort, ResponseOptions, Tool
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import (
    EFFORTS,
    Fields,
    choice,
    document,
    flag,
    listed,
    number,
    opened,
    text,
    text_of,
    whole,
)
from podium.server.dialects.messages.response import effort_of_thinking
from podium.server.dialects.messages.turns import hint
from podium.server.dialects.tools import demanded, distinct, schema, tool

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
class ThinkingWish:
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
    body.optional("cache_control", hint)
    body.optional("metadata", _metadata)
    body.optional("service_tier", choice(("auto", "standard_only")))
    body.optional("speed", _speed)


def read_terms(body: Fields, *, counting: bool) -> ResponseOptions:
    """What the answer must be like. Only where tokens are counted, there need be no limit."""
    length = whole(1)
    tools = distinct(body.optional("tools", listed(_tool, most=MOST_TOOLS)) or (), "tools")
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
        stop=body.optional("stop_sequences", listed(text_of(1, 1000), most=MOST_STOPS)) or (),
        tools=tools,
        tool_choice=_tool_choice(body, tools),
        parallel_tools=not tools or not _one_at_a_time(body),
        schema=older_form if form is None else form,
        effort=effort,
    )


def read_thinking(
    body: Fields, response_options: ResponseOptions
) -> tuple[ResponseOptions, ThinkingWish]:
    """The terms with the effort and the tokens that thinking asks for, and what is to be shown of
    it. An effort in `output_config` counts for more."""
    wish = body.optional("thinking", _thinking) or ThinkingWish()
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
    effort = response_options.effort or wish.effort or effort_of_thinking(wish.tokens)
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
    opened(value, path).only(("user_id",)).optional("user_id", text_of(0, 4096))


def _thinking(value: object, path: str) -> ThinkingWish:
    fields = opened(value, path).only(("type", "budget_tokens", "display", "block_binding"))
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
            return ThinkingWish(effort="none")
        case "between_tools":
            return ThinkingWish(shown=True, effort="none")
        case _:
            tokens = fields.optional("budget_tokens", whole(LEAST_THINKING_TOKENS))
            return ThinkingWish(shown=display != "omitted", tokens=tokens)


def _output_config(value: object, path: str) -> tuple[Effort | None, dict[str, Any] | None]:
    fields = opened(value, path).only(("effort", "format", "task_budget"))
    if fields.given("task_budget"):
        path = fields.at("task_budget")
        raise invalid(
            path, f"{path} is not served; cap a request by podium.budget ({IN_CLAUDE_CODE})"
        )
    effort = fields.optional("effort", choice(("low", "medium", "high", "xhigh", "max")))
    return EFFORTS[effort] if effort else None, fields.optional("format", _format)


def _format(value: object, path: str) -> dict[str, Any]:
    fields = opened(value, path).only(("type", "schema"))
    fields.required("type", choice(("json_schema",)))
    return fields.required("schema", schema)


def _tool(value: object, path: str) -> Tool:
    fields = opened(value, path)
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
    fields.optional("cache_control", hint)
    fields.optional("eager_input_streaming", flag)
    fields.optional("strict", flag)
    fields.optional("allowed_callers", listed(choice(("direct",)), most=1, least=1))
    if fields.optional("defer_loading", flag):
        raise invalid(fields.at("defer_loading"), f"{path}: {SERVER_TOOLS['tool_search']}")
    parameters = fields.required("input_schema", opened)
    if parameters.values.get("type", "object") != "object":
        path = parameters.at("type")
        raise invalid(path, f"{path}: expected 'object': a tool's input is always an object")
    name, description = fields.required("name", text), _description(fields)
    return tool(name, description, parameters.values, path, called="input_schema")


def _description(fields: Fields) -> str:
    """What the tool does; examples of its input are told in words, which every model reads."""
    words = fields.optional("description", text) or ""
    examples = fields.optional("input_examples", listed(document, most=100)) or ()
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
    chosen = body.optional("tool_choice", opened)
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
        return demanded(tools, chosen.required("name", text), chosen.at("name")).name
    return "required" if kind == "any" else kind


def _one_at_a_time(body: Fields) -> bool:
    """Whether a worker is to call one tool at a time; steps that run at once may call one each."""
    chosen = body.optional("tool_choice", opened) or Fields({})
    return chosen.optional("disable_parallel_tool_use", flag) or False


def _edits(value: object, path: str) -> tuple[int | None, ...]:
    fields = opened(value, path).only(("edits",))
    return fields.optional("edits", listed(_edit, most=16)) or ()


def _edit(value: object, path: str) -> int | None:
    """How many turns keep their thinking, by this edit."""
    fields = opened(value, path)
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
    fields = opened(value, path).only(("type", "value"))
    if fields.required("type", choice(("thinking_turns", "all"))) == "all":
        return None
    return fields.required("value", whole(1))
