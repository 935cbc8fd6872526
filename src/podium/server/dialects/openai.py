"""What OpenAI's two dialects, Chat Completions and Responses, have in common: fields of a body that
mean the same in both, the details of usage, and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podium.core.request import Detail
from podium.core.usage import Usage
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
"""How long an answer should be, as OpenAI's clients say it, in words that any worker follows."""

_FORM: Final = ("name", "description", "schema", "strict")


class _Kind(NamedTuple):
    """How OpenAI calls a fault."""

    type: str
    code: str | None


_KINDS: Final[Mapping[Reason, _Kind]] = {
    "invalid": _Kind("invalid_request_error", None),
    "unauthenticated": _Kind("authentication_error", "invalid_api_key"),
    "forbidden": _Kind("permission_error", "permission_denied"),
    "not_found": _Kind("invalid_request_error", "not_found"),
    "conflict": _Kind("invalid_request_error", "conflict"),
    "too_large": _Kind("invalid_request_error", "request_too_large"),
    "too_long": _Kind("invalid_request_error", "context_length_exceeded"),
    "blocked": _Kind("invalid_request_error", "content_filter"),
    "out_of_budget": _Kind("insufficient_quota", "insufficient_quota"),
    "rate_limited": _Kind("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": _Kind("server_error", "server_overloaded"),
    "upstream": _Kind("server_error", "upstream_error"),
    "failed": _Kind("server_error", "internal_error"),
}


def image_detail(value: object, path: str) -> Detail:
    """How closely to look at a picture, in OpenAI's words."""
    return choice(DETAILS)(value, path)


def verbosity(value: object, path: str) -> str:
    """How long the answer should be, in words for the workers; empty where it is as usual."""
    return VERBOSITY[choice(tuple(VERBOSITY))(value, path)]


def metadata(value: object, path: str) -> dict[str, str]:
    """OpenAI's notes of the client's own: at most 16 pairs of texts."""
    pairs = read_object(value, path).values
    if len(pairs) > 16:
        raise invalid(path, f"{path}: expected at most 16 pairs, got {len(pairs)}")
    for key in pairs:
        bounded_text(1, 64)(key, path)
    return {key: bounded_text(0, 512)(pairs[key], join_path(path, key)) for key in pairs}


def response_format(*, nested: bool) -> Reader[dict[str, Any] | None]:
    """The schema that the answer must fit; plain text has none. Its name and description tell
    the workers what it is for, as its title and description do. `nested` says that all of this
    stands in an object of its own, as in Chat Completions."""

    def read(value: object, path: str) -> dict[str, Any] | None:
        fields = read_object(value, path)
        kind = fields.required("type", choice(("text", "json_object", "json_schema")))
        if kind != "json_schema":
            fields.only(("type",))
            return {"type": "object"} if kind == "json_object" else None
        if nested:
            form = fields.only(("type", kind)).required(kind, read_object).only(_FORM)
        else:
            form = fields.only(("type", *_FORM))
        form.optional("strict", flag)
        told = {"title": form.required("name", bounded_text(1, 64))}
        if (description := form.optional("description", text)) is not None:
            told["description"] = description
        return told | form.required("schema", output_schema)

    return read


def cache_options(*lifetimes: str) -> Reader[None]:
    """Hints at what a provider's cache should keep, and for how long: the lifetimes differ between
    the two APIs. No answer changes by them."""

    def read(value: object, path: str) -> None:
        fields = read_object(value, path).only(("mode", "ttl"))
        fields.optional("mode", choice(("implicit", "explicit")))
        fields.optional("ttl", choice(lifetimes))

    return read


def stream_options(fields: Fields, own: str, *, stream: bool) -> Fields | None:
    """What is said of the stream; `own` is what only one of the dialects can say of it."""
    options = fields.optional("stream_options", read_object)
    if options is None:
        return None
    if not stream:
        raise invalid(options.path, "stream_options goes with stream: true; leave one out")
    if options.only((own, "include_obfuscation")).optional("include_obfuscation", flag):
        at = options.at("include_obfuscation")
        raise invalid(at, f"{at}: streams are not padded here; send false, or leave it out")
    return options


class UsageDetails(NamedTuple):
    """Of the tokens that were read and written, what is known."""

    read: dict[str, int]
    written: dict[str, int]


def usage_details(total: Usage, conducting: Usage) -> UsageDetails:
    """What is known beyond the totals. What planning took of them stands there under the names
    that Fugu gave it, and is left out where there was none."""
    read = _known(
        cached_tokens=total.cached_input_tokens, cache_write_tokens=total.cache_write_tokens
    )
    written = _known(reasoning_tokens=total.reasoning_tokens)
    if conducting.total_tokens:
        read |= _known(
            orchestration_input_tokens=conducting.input_tokens,
            orchestration_input_cached_tokens=conducting.cached_input_tokens,
        )
        written |= _known(orchestration_output_tokens=conducting.output_tokens)
    return UsageDetails(read, written)


def _known(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def openai_error(error: ApiError) -> dict[str, Any]:
    """The `openai_error` object of a body, or of a stream's last event."""
    kind = _KINDS[error.reason]
    unknown_model = error.reason == "not_found" and error.field == "model"
    return {
        "message": str(error),
        "type": kind.type,
        "param": error.field or None,
        "code": "model_not_found" if unknown_model else kind.code,
    }
