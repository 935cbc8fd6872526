"""What the OpenAPI page says of bodies that are not FastAPI's to check: the fields that clients
send most. The dialects know every field, and say what is wrong with one."""

from __future__ import annotations

from typing import Any, Final

from podium.server.access.tokens import MAX_TOKEN
from podium.store.base import MAX_ANSWER, MAX_COMMENT

_TEXT: Final = {"type": "string"}
_WORDS: Final = {"type": "string", "minLength": 1}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FUNCTION: Final = {"const": "function"}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 1}
_EFFORT: Final = {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]}

_WISHES: Final = {
    "type": "object",
    "description": "What only Podium understands; headers X-Podium-… say the same.",
    "additionalProperties": False,
    "properties": {
        "budget": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "calls": {"type": "integer", "minimum": 0},
                "tokens": {"type": "integer", "minimum": 0},
                "usd": {"type": "number", "minimum": 0},
                "seconds": {"type": "number", "minimum": 0},
                "depth": {"type": "integer", "minimum": 0},
            },
        },
        "exclude": {"type": "array", "items": _TEXT},
        "max_steps": {"type": "integer", "minimum": 1, "maximum": 100},
        "rounds": {"type": "integer", "minimum": 1, "maximum": 100},
        "workflow": {"type": "object"},
        "quality_bias": {"type": "number", "minimum": 0, "maximum": 1},
    },
}

_MODEL: Final = {
    "type": "string",
    "description": "A tier, a pinned alias of one, or a worker; GET /v1/models lists them.",
    "examples": ["podium", "podium-mini", "podium-ultra"],
}


def _content(kind: str) -> dict[str, Any]:
    """Words, or parts of them; pictures and the rest are in the vendors' own references."""
    part = {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"const": kind}, "text": _WORDS},
    }
    return {"anyOf": [_WORDS, {"type": "array", "minItems": 1, "items": part}]}


def _message(kind: str, *roles: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": list(roles)}, "content": _content(kind)},
    }


def _tool(*place: str) -> dict[str, Any]:
    """A function, described where the vendor has it."""
    function: dict[str, Any] = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _NAME, "description": _TEXT, place[-1]: {"type": "object"}},
    }
    if place[0] == "function":
        return _object(["type", "function"], {"type": _FUNCTION, "function": function})
    if place[0] == "type":
        function["required"] = ["type", "name"]
        function["properties"]["type"] = _FUNCTION
    return function


def _object(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


CHAT: Final = _object(
    ["model", "messages"],
    {
        "model": _MODEL,
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": _message("text", "system", "developer", "user", "assistant"),
        },
        "stream": _FLAG,
        "max_completion_tokens": _COUNT,
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "seed": {"type": "integer"},
        "stop": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "maxItems": 4}]},
        "tools": {"type": "array", "items": _tool("function", "parameters")},
        "response_format": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
        },
        "reasoning_effort": _EFFORT,
        "store": _FLAG,
        "podium": _WISHES,
    },
)

RESPONSES: Final = _object(
    ["model", "input"],
    {
        "model": _MODEL,
        "input": {
            "anyOf": [
                _WORDS,
                {
                    "type": "array",
                    "minItems": 1,
                    "items": _message("input_text", "system", "developer", "user"),
                },
            ]
        },
        "instructions": _TEXT,
        "previous_response_id": {"type": "string", "pattern": "^resp_[0-9a-f]{16}$"},
        "stream": _FLAG,
        "store": _FLAG,
        "max_output_tokens": _COUNT,
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "tools": {"type": "array", "items": _tool("type", "parameters")},
        "text": {"type": "object", "properties": {"format": {"type": "object"}}},
        "reasoning": {
            "type": "object",
            "properties": {"effort": _EFFORT, "summary": {"enum": ["auto", "concise", "detailed"]}},
        },
        "podium": _WISHES,
    },
)

MESSAGES: Final = _object(
    ["model", "messages", "max_tokens"],
    {
        "model": _MODEL,
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": _message("text", "user", "assistant"),
        },
        "max_tokens": _COUNT,
        "system": _content("text"),
        "stream": _FLAG,
        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
        "stop_sequences": {"type": "array", "items": _TEXT},
        "tools": {"type": "array", "items": _tool("input_schema")},
        "thinking": {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"enum": ["enabled", "disabled", "adaptive"]},
                "budget_tokens": {"type": "integer", "minimum": 1024},
            },
        },
        "podium": _WISHES,
    },
)

COUNT: Final = _object(
    ["model", "messages"],
    {name: MESSAGES["properties"][name] for name in ("model", "messages", "system", "tools")},
)

PLAN: Final = _object(
    ["question"],
    {"question": {"type": "string", "minLength": 1}, "model": _MODEL, "podium": _WISHES},
)

FEEDBACK: Final = _object(
    ["score"],
    {
        "score": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "from 0, useless, to 1, just right",
        },
        "comment": {"type": "string", "maxLength": MAX_COMMENT},
        "answer": {
            "type": "string",
            "maxLength": MAX_ANSWER,
            "description": "what would have been right, in short",
        },
    },
)

SIGN_IN: Final = _object(["key"], {"key": {**_WORDS, "maxLength": MAX_TOKEN}})

ENDPOINTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "/v1/chat/completions": (CHAT, "OpenAI's Chat Completions."),
    "/v1/responses": (RESPONSES, "OpenAI's Responses."),
    "/v1/messages": (MESSAGES, "Anthropic's Messages."),
    "/v1/plan": (PLAN, "The workflow that would be carried out, and an estimate of its cost."),
}
"""The bodies of the dialects and of plans, by their addresses, and what they are."""


_ERROR: Final = {
    "description": "An error, in the shape of the vendor whose API this is; else OpenAI's.",
    "content": {"application/json": {}},
}


def request_body(schema: dict[str, Any]) -> dict[str, Any]:
    """What the page says of an endpoint that takes such a body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def add_dialect_paths(page: dict[str, Any], addresses: list[str]) -> dict[str, Any]:
    """The page with the endpoints of the dialects, and with how keys are shown."""
    for address in addresses:
        schema, summary = ENDPOINTS[address]
        page["paths"].setdefault(address, {})["post"] = {
            "tags": [address.split("/")[2]],
            "summary": summary,
            "operationId": f"post{address.replace('/', '_')}",
            **request_body(schema),
            "responses": {
                "200": {
                    "description": "The answer, or the plan; with `stream`, as server-sent events.",
                    "content": {"application/json": {}, "text/event-stream": {}},
                },
            },
        }
    for operations in page["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's word for what is a 400 here
            operation["responses"]["default"] = _ERROR
    components = page.setdefault("components", {})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    page["security"] = [{"key": []}, {}]
    return page
