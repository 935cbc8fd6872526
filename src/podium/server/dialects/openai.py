"""Fields, usage details and errors that OpenAI's two dialects share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podium.core.request import ANY_OBJECT, Detail, Usage
from podium.server.api_error import ApiError, Reason, invalid
from podium.server.dialects.content import output_schema
from podium.server.dialects.fields import (
    Fields,
    Reader,
    bounded_text,
    choice,
    flag,
    join_path,
    read_object,
    text,
)

DETAILS: Final[tuple[Detail, ...]] = ("auto", "low", "high", "original")

VERBOSITY: Final[Mapping[str, str]] = {
    "low": "Keep your answer short.",
    "medium": "",
    "high": "Answer at length and in detail.",
}
"""OpenAI's verbosity as an instruction to workers."""

_SCHEMA_FIELDS: Final = frozenset({"type", "name", "description", "schema", "strict"})


class _ErrorType(NamedTuple):
    type: str
    code: str | None


_ERROR_TYPES: Final[Mapping[Reason, _ErrorType]] = {
    "invalid": _ErrorType("invalid_request_error", None),
    "unauthenticated": _ErrorType("authentication_error", "invalid_api_key"),
    "forbidden": _ErrorType("permission_error", "permission_denied"),
    "not_found": _ErrorType("invalid_request_error", "not_found"),
    "conflict": _ErrorType("invalid_request_error", "conflict"),
    "too_large": _ErrorType("invalid_request_error", "request_too_large"),
    "too_long": _ErrorType("invalid_request_error", "context_length_exceeded"),
    "blocked": _ErrorType("invalid_request_error", "content_filter"),
    "out_of_budget": _ErrorType("insufficient_quota", "insufficient_quota"),
    "timeout": _ErrorType("server_error", "timeout"),
    "unprocessable": _ErrorType("invalid_request_error", "unprocessable_entity"),
    "rate_limited": _ErrorType("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": _ErrorType("server_error", "server_overloaded"),
    "upstream": _ErrorType("server_error", "upstream_error"),
    "upstream_key": _ErrorType("server_error", "upstream_authentication_error"),
    "failed": _ErrorType("server_error", "internal_error"),
}


def image_detail(value: object, path: str) -> Detail:
    """Read an image's level of detail."""
    return choice(DETAILS)(value, path)


def verbosity(value: object, path: str) -> str:
    """Read a verbosity as an instruction; empty for the default."""
    return VERBOSITY[choice(tuple(VERBOSITY))(value, path)]


def metadata(value: object, path: str) -> dict[str, str]:
    """Read metadata: at most 16 pairs of strings."""
    pairs = read_object(value, path).values
    if len(pairs) > 16:
        raise invalid(path, f"{path}: expected at most 16 entries, got {len(pairs)}")
    for key in pairs:
        bounded_text(1, 64)(key, path)
    return {key: bounded_text(0, 512)(pairs[key], join_path(path, key)) for key in pairs}


def response_format(*, nested: bool) -> Reader[dict[str, Any] | None]:
    """Return a reader of the answer's JSON Schema; None for plain text.

    The schema's name and description become its title and description. `nested`: the schema is in
    an object of its own, as in Chat Completions.
    """
    known = frozenset({"type", "json_schema"}) if nested else _SCHEMA_FIELDS

    def read(value: object, path: str) -> dict[str, Any] | None:
        fields = read_object(value, path).expect(known)
        kind = fields.required("type", choice(("text", "json_object", "json_schema")))
        if kind != "json_schema":
            return dict(ANY_OBJECT) if kind == "json_object" else None
        form = fields.required(kind, read_object).expect(_SCHEMA_FIELDS) if nested else fields
        form.optional("strict", flag)
        titled = {"title": form.required("name", bounded_text(1, 64))}
        if (description := form.optional("description", text)) is not None:
            titled["description"] = description
        return titled | form.required("schema", output_schema)

    return read


def stream_options(fields: Fields, own: str, *, stream: bool) -> Fields | None:
    """Read `stream_options`; `own` is the dialect's own option."""
    options = fields.optional("stream_options", read_object)
    if options is None:
        return None
    if not stream:
        raise invalid(options.path, "stream_options requires stream: true")
    pads = options.values.get("include_obfuscation")
    return options.expect(frozenset({own} if pads else {own, "include_obfuscation"}))


class UsageDetails(NamedTuple):
    """Details of input and output tokens, as far as known."""

    input: dict[str, int]
    output: dict[str, int]


def usage_details(total: Usage, orchestration: Usage) -> UsageDetails:
    """Return details of usage; the conductor's share has Fugu's names and is left out if zero."""
    input_details = _known(
        cached_tokens=total.cached_input_tokens, cache_write_tokens=total.cache_write_tokens
    )
    output_details = _known(reasoning_tokens=total.reasoning_tokens)
    if orchestration.total_tokens:
        input_details |= _known(
            orchestration_input_tokens=orchestration.input_tokens,
            orchestration_input_cached_tokens=orchestration.cached_input_tokens,
        )
        output_details |= _known(orchestration_output_tokens=orchestration.output_tokens)
    return UsageDetails(input_details, output_details)


def _known(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def openai_error(error: ApiError) -> dict[str, Any]:
    """Return the `error` object of a body or stream."""
    kind = _ERROR_TYPES[error.reason]
    unknown_model = error.reason == "not_found" and error.field == "model"
    return {
        "message": str(error),
        "type": kind.type,
        "param": error.field or None,
        "code": error.code or ("model_not_found" if unknown_model else kind.code),
    }
