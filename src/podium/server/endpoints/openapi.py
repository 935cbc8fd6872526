"""OpenAPI schemas of bodies that the dialects check: the fields that clients send most."""

from __future__ import annotations

from typing import Any, Final

from podium.server.access.keys import MAX_TOKEN
from podium.store.base import MAX_ANSWER, MAX_COMMENT

_TEXT: Final = {"type": "string"}
_NON_EMPTY: Final = {"type": "string", "minLength": 1}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FUNCTION: Final = {"const": "function"}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 1}
_EFFORT: Final = {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]}

_PODIUM: Final = {
    "type": "object",
    "description": "Podium's own options; the headers X-Podium-… are equivalent.",
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
        "rerun": {
            "type": "object",
            "required": ["run"],
            "additionalProperties": False,
            "properties": {
                "run": _TEXT,
                "round": {"type": "integer", "minimum": 0},
                "step": {"type": "integer", "minimum": 0},
            },
        },
    },
}

_MODEL: Final = {
    "type": "string",
    "description": "A tier, a pinned alias of one, or a worker; GET /v1/models lists them.",
    "examples": ["podium", "podium-mini", "podium-ultra"],
}


_WORKER: Final = {
    "type": "string",
    "description": "A worker with an OpenAI-compatible API, to which the body is passed on.",
}


def _content(kind: str) -> dict[str, Any]:
    """Return the schema of text content; images and others are in the vendors' references."""
    part = {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"const": kind}, "text": _NON_EMPTY},
    }
    return {"anyOf": [_NON_EMPTY, {"type": "array", "minItems": 1, "items": part}]}


def _message(kind: str, *roles: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": list(roles)}, "content": _content(kind)},
    }


def _tool(*location: str) -> dict[str, Any]:
    """Return the schema of a tool, nested as the vendor does."""
    function: dict[str, Any] = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _NAME, "description": _TEXT, location[-1]: {"type": "object"}},
    }
    if location[0] == "function":
        return _object(["type", "function"], {"type": _FUNCTION, "function": function})
    if location[0] == "type":
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
        "podium": _PODIUM,
    },
)

RESPONSES: Final = _object(
    ["model", "input"],
    {
        "model": _MODEL,
        "input": {
            "anyOf": [
                _NON_EMPTY,
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
        "podium": _PODIUM,
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
        "podium": _PODIUM,
    },
)

COUNT: Final = _object(
    ["model", "messages"],
    {name: MESSAGES["properties"][name] for name in ("model", "messages", "system", "tools")},
)

PLAN: Final = _object(
    ["question"],
    {"question": {"type": "string", "minLength": 1}, "model": _MODEL, "podium": _PODIUM},
)

CHAT_DOCUMENT: Final = _object(
    ["title", "turns"],
    {
        "title": {"type": "string", "maxLength": 200},
        "turns": {"type": "array", "maxItems": 500, "items": {"type": "object"}},
        "settings": {"type": "object"},
    },
)

WORKER_SWITCH: Final = _object(["is_enabled"], {"is_enabled": {"type": "boolean"}})

FEEDBACK: Final = _object(
    ["score"],
    {
        "score": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "from 0 (useless) to 1 (right)",
        },
        "comment": {"type": "string", "maxLength": MAX_COMMENT},
        "answer": {
            "type": "string",
            "maxLength": MAX_ANSWER,
            "description": "the right answer, in short",
        },
    },
)

SIGN_IN: Final = _object(["key"], {"key": {**_NON_EMPTY, "maxLength": MAX_TOKEN}})

ENDPOINTS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "/v1/chat/completions": (CHAT, "OpenAI's Chat Completions."),
    "/v1/responses": (RESPONSES, "OpenAI's Responses."),
    "/v1/messages": (MESSAGES, "Anthropic's Messages."),
    "/v1/embeddings": (_object(["model", "input"], {"model": _WORKER}), "OpenAI's Embeddings."),
    "/v1/completions": (
        _object(["model", "prompt"], {"model": _WORKER, "stream": _FLAG}),
        "OpenAI's older Completions.",
    ),
    "/v1/moderations": (_object(["model", "input"], {"model": _WORKER}), "OpenAI's Moderations."),
    "/v1/plan": (PLAN, "The workflow that would be executed, and an estimate of its cost."),
}
"""Schemas and summaries by path."""


_ERROR: Final = {
    "description": "An error, in the format of the vendor whose API this is, else OpenAI's.",
    "content": {"application/json": {}},
}


def request_body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI fragment of an endpoint with such a body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def add_dialect_paths(schema: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """Add the dialects' endpoints, errors and authentication to the schema."""
    for path in paths:
        body, summary = ENDPOINTS[path]
        schema["paths"].setdefault(path, {})["post"] = {
            "tags": [path.split("/")[2]],
            "summary": summary,
            "operationId": f"post{path.replace('/', '_')}",
            **request_body(body),
            "responses": {
                "200": {
                    "description": "The response or the plan; with `stream`, server-sent events.",
                    "content": {"application/json": {}, "text/event-stream": {}},
                },
            },
        }
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # these are 400 here
            operation["responses"]["default"] = _ERROR
    components = schema.setdefault("components", {})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"key": []}, {}]
    return schema
