"""OpenAPI schemas of bodies that the dialects check: the fields that clients send most."""

from __future__ import annotations

from typing import Any, Final

from podium.server.access.keys import MAX_TOKEN
from podium.store.base import MAX_ANSWER, MAX_COMMENT

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_NON_EMPTY: Final[Schema] = {"type": "string", "minLength": 1}
_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
_FLAG: Final[Schema] = {"type": "boolean"}
_ANY_OBJECT: Final[Schema] = {"type": "object"}


def _integer(least: int, most: int | None = None) -> Schema:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def _number(least: float, most: float | None = None) -> Schema:
    return {"type": "number", "minimum": least} | ({} if most is None else {"maximum": most})


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _options(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _without_extras(schema: Schema) -> Schema:
    return schema | {"additionalProperties": False}


def _list(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", **bounds, "items": items}


_COUNT: Final = _integer(1)
_EFFORT: Final = {"enum": ["none", "minimal", "low", "medium", "high", "xhigh"]}
_STREAM: Final = {"stream": _FLAG, "store": _FLAG}

_PODIUM: Final = _without_extras(
    _options(
        budget=_without_extras(
            _options(
                calls=_integer(0),
                tokens=_integer(0),
                usd=_number(0),
                seconds=_number(0),
                depth=_integer(0),
            )
        ),
        exclude=_list(_TEXT),
        max_steps=_integer(1, 100),
        rounds=_integer(1, 100),
        workflow=_ANY_OBJECT,
        quality_bias=_number(0, 1),
        rerun=_without_extras(_object("run", run=_TEXT, round=_integer(0), step=_integer(0))),
    )
) | {"description": "Podium's own options; the headers X-Podium-… are equivalent."}

_MODEL: Final = {
    "type": "string",
    "description": "A tier, a pinned alias of one, or a worker; GET /v1/models lists them.",
    "examples": ["podium", "podium-mini", "podium-ultra"],
}


_WORKER: Final = {
    "type": "string",
    "description": "A worker with an OpenAI-compatible API, to which the body is passed on.",
}


def _content(kind: str) -> Schema:
    """Return the schema of text content; images and others are in the vendors' references."""
    part = _object("type", "text", type={"const": kind}, text=_NON_EMPTY)
    return {"anyOf": [_NON_EMPTY, _list(part, minItems=1)]}


def _messages(kind: str, *roles: str) -> Schema:
    message = _object("role", "content", role={"enum": list(roles)}, content=_content(kind))
    return _list(message, minItems=1)


def _function(parameters: str, *required: str, **more: Schema) -> Schema:
    properties = {"name": _NAME, "description": _TEXT, parameters: _ANY_OBJECT, **more}
    return _object(*required, **properties)


_IS_FUNCTION: Final[Schema] = {"const": "function"}

CHAT: Final = _object(
    "model",
    "messages",
    model=_MODEL,
    messages=_messages("text", "system", "developer", "user", "assistant"),
    max_completion_tokens=_COUNT,
    temperature=_number(0, 2),
    top_p=_number(0, 1),
    seed={"type": "integer"},
    stop={"anyOf": [_TEXT, _list(_TEXT, maxItems=4)]},
    tools=_list(
        _object("type", "function", type=_IS_FUNCTION, function=_function("parameters", "name"))
    ),
    response_format=_object("type", type={"enum": ["text", "json_object", "json_schema"]}),
    reasoning_effort=_EFFORT,
    podium=_PODIUM,
    **_STREAM,
)

RESPONSES: Final = _object(
    "model",
    "input",
    model=_MODEL,
    input={"anyOf": [_NON_EMPTY, _messages("input_text", "system", "developer", "user")]},
    instructions=_TEXT,
    previous_response_id={"type": "string", "pattern": "^resp_[0-9a-f]{16}$"},
    max_output_tokens=_COUNT,
    temperature=_number(0, 2),
    tools=_list(_function("parameters", "type", "name", type=_IS_FUNCTION)),
    text=_options(format=_ANY_OBJECT),
    reasoning=_options(effort=_EFFORT, summary={"enum": ["auto", "concise", "detailed"]}),
    podium=_PODIUM,
    **_STREAM,
)

MESSAGES: Final = _object(
    "model",
    "messages",
    "max_tokens",
    model=_MODEL,
    messages=_messages("text", "user", "assistant"),
    max_tokens=_COUNT,
    system=_content("text"),
    stream=_FLAG,
    temperature=_number(0, 1),
    stop_sequences=_list(_TEXT),
    tools=_list(_function("input_schema", "name")),
    thinking=_object(
        "type",
        type={"enum": ["enabled", "disabled", "adaptive"]},
        budget_tokens=_integer(1024),
    ),
    podium=_PODIUM,
)

COUNT: Final = _object(
    "model",
    "messages",
    **{name: MESSAGES["properties"][name] for name in ("model", "messages", "system", "tools")},
)

PLAN: Final = _object("question", question=_NON_EMPTY, model=_MODEL, podium=_PODIUM)

CHAT_DOCUMENT: Final = _object(
    "title",
    "turns",
    title={"type": "string", "maxLength": 200},
    turns=_list(_ANY_OBJECT, maxItems=500),
    settings=_ANY_OBJECT,
)

WORKER_SWITCH: Final = _object("is_enabled", is_enabled=_FLAG)

FEEDBACK: Final = _object(
    "score",
    score=_number(0, 1) | {"description": "from 0 (useless) to 1 (right)"},
    comment={"type": "string", "maxLength": MAX_COMMENT},
    answer={
        "type": "string",
        "maxLength": MAX_ANSWER,
        "description": "the right answer, in short",
    },
)

SIGN_IN: Final = _object("key", key={**_NON_EMPTY, "maxLength": MAX_TOKEN})

ENDPOINTS: Final[dict[str, tuple[Schema, str]]] = {
    "/v1/chat/completions": (CHAT, "OpenAI's Chat Completions."),
    "/v1/responses": (RESPONSES, "OpenAI's Responses."),
    "/v1/messages": (MESSAGES, "Anthropic's Messages."),
    "/v1/embeddings": (_object("model", "input", model=_WORKER), "OpenAI's Embeddings."),
    "/v1/completions": (
        _object("model", "prompt", model=_WORKER, stream=_FLAG),
        "OpenAI's older Completions.",
    ),
    "/v1/moderations": (_object("model", "input", model=_WORKER), "OpenAI's Moderations."),
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
