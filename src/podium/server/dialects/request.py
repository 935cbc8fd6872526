"""The seam between the dialects and the server: what a body comes to, and what is told in the end.

Asked     a body, read
Answer    what the client gets to know
Dialect   reads bodies; writes answers, streams and refusals
Writer    one stream being written, event by event
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final, Protocol

from podium.core.errors import ConfigError
from podium.core.pool import check_excluded
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Finish,
    Message,
    ResponseOptions,
    Thinking,
    ToolCall,
    ToolResult,
)
from podium.core.usage import NO_USAGE, Usage
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import (
    Json,
    Reader,
    array,
    bounded_text,
    integer,
    json_object,
    number,
    read_object,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodiumParams:
    """The `podium` object of a body.

    `budget` holds caps named as in `podium.core.budget.Budget`; `workflow` is the client's own plan
    as JSON; `quality_bias` weighs quality over cost where a router chooses, from 0 to 1.
    """

    budget: Mapping[str, float] = field(default_factory=dict)
    exclude: frozenset[str] = frozenset()
    max_steps: int | None = None
    rounds: int | None = None
    workflow: Json | None = None
    quality_bias: float | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """What a client calls its request, so that it can be sent again; `digest` tells its body from
    others."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A body, read.

    `messages` is the whole conversation as the client tells it; the last one is the user's, or
    holds the results of tools. `previous` is the response to go on from, where the server keeps
    the conversation. `shows_reasoning` says that the client wants to see progress and thinking;
    `shows_usage` that a stream is to end with usage, where that is the client's choice. A request
    that is `named` begins one run, however often it is sent.
    """

    model: str
    messages: tuple[Message, ...]
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    stream: bool = False
    store: bool = True
    previous: str | None = None
    shows_reasoning: bool = False
    shows_usage: bool = True
    params: PodiumParams = PodiumParams()
    named: IdempotencyKey | None = None
    body: Json = field(default_factory=dict)
    """The body itself, for what is only echoed in the response (metadata, instructions, …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """What the client gets to know. `id` is the run's, `model` the name that was asked for,
    `created` in seconds since 1970. `stop_sequence` is the client's own one that ended the text,
    where the worker said so. `usage` sums every call; `orchestration` is the conductor's part of
    it. An unknown count is None."""

    id: str
    model: str
    created: int
    text: str = ""
    thinking: tuple[Thinking, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    stop_sequence: str = ""
    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE


class StreamWriter(Protocol):
    """One stream. Every method returns the bytes to send now, in the order of the calls: `begin`
    first, then any of the others, and `end` or `fail` last."""

    def begin(self) -> bytes:
        """The stream opens."""
        ...

    def progress(self, text: str) -> bytes:
        """A line on what is being done; asked for only where `shows_reasoning`."""
        ...

    def thinking(self, text: str) -> bytes:
        """A piece of the final worker's thinking; asked for only where `shows_reasoning`."""
        ...

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        ...

    def keep_alive(self) -> bytes:
        """Nothing new, but the connection lives."""
        ...

    def end(self, answer: ApiResponse, rest: str = "") -> bytes:
        """The rest of the words, tool calls, why it ended, usage. `answer.text` is what the pieces
        and that rest come to; a dialect may tell a refusal, of which nothing was told, in a way of
        its own."""
        ...

    def fail(self, refusal: ApiError) -> bytes:
        """The dialect's own error event."""
        ...


class Dialect(Protocol):
    """One wire format."""

    def read(self, body: Json) -> ApiRequest:
        """Read a body; raises `ApiError` for what is wrong, unknown or contradictory in it.
        Nothing that a client sends is ignored silently."""
        ...

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        ...

    def writer(self, request: ApiRequest, opening: ApiResponse) -> StreamWriter:
        """A stream; of `opening`, id, model and created are known."""
        ...

    def refused(self, refusal: ApiError) -> dict[str, Any]:
        """The body of an error."""
        ...


_RUN: Final = "run_"


def id_stem(request: ApiRequest, answer_id: str) -> str:
    """What the ids of an answer, and of what is in it, begin with: the run, and the results of
    tools that it answers."""
    stem = answer_id.removeprefix(_RUN)
    turn = takewhile(lambda message: message.role != "assistant", reversed(request.messages))
    results = [
        part.call_id for message in turn for part in message.parts if isinstance(part, ToolResult)
    ]
    if not results:
        return stem
    told = hashlib.blake2s(json.dumps(results).encode(), digest_size=4).hexdigest()
    return f"{stem}_{told}"


FIELD: Final = "podium"

BUDGET_CAPS: Final = ("calls", "tokens", "usd", "seconds", "depth")
PARAM_NAMES: Final = frozenset(
    {"budget", "exclude", "max_steps", "rounds", "workflow", "quality_bias"}
)


class Headers(Protocol):
    """The headers of a request."""

    def get(self, name: str, /) -> str | None:
        """One of them; `name` in lower case."""
        ...


def read_podium_params(value: object, path: str) -> PodiumParams:
    """The `podium` object, read."""
    fields = read_object(value, path).only(PARAM_NAMES)
    exclude = fields.optional("exclude", array(bounded_text(1, 200), most=1000))
    return PodiumParams(
        budget=fields.optional("budget", _budget) or {},
        exclude=frozenset(exclude or ()),
        max_steps=fields.optional("max_steps", integer(1, 100)),
        rounds=fields.optional("rounds", integer(1, 100)),
        workflow=fields.optional("workflow", json_object),
        quality_bias=fields.optional("quality_bias", number(0, 1)),
    )


def _budget(value: object, path: str) -> dict[str, float]:
    fields = read_object(value, path).only(BUDGET_CAPS)
    caps: dict[str, float] = {}
    for name in BUDGET_CAPS:
        read: Reader[float] = number(0, 1e12) if name in ("usd", "seconds") else integer(0)
        if (cap := fields.optional(name, read)) is not None:
            caps[name] = cap
    return caps


def merge_podium_headers(body: dict[str, Any], headers: Headers) -> dict[str, Any]:
    """The body with what the headers wish for in its `podium` object."""
    said: dict[str, Any] = {}
    for name, read in _READERS.items():
        value = headers.get(f"x-podium-{name.replace('_', '-')}")
        if value is not None:
            said[name] = read(value, name)
    if not said:
        return body
    own = body.get(FIELD) or {}
    if not isinstance(own, dict):
        return body  # the dialect says what is wrong with it
    for name in said:
        if own.get(name) is not None:
            raise invalid(
                f"{FIELD}.{name}", f"{FIELD}.{name} is in the body and in a header; send one"
            )
    return {**body, FIELD: {**own, **said}}


def check_exclude(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """The names that a client excludes; refused where nobody has one."""
    try:
        return check_excluded(names, known)
    except ConfigError as error:
        raise invalid("podium.exclude", str(error)) from error


def _caps(value: str, name: str) -> dict[str, float]:
    caps: dict[str, float] = {}
    for part in value.split(","):
        cap, _, amount = part.partition("=")
        caps[cap.strip()] = _number(amount, name)
    return caps


def _names(value: str, name: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _number(value: str, name: str) -> float:
    try:
        return float(value) if "." in value or "e" in value.lower() else int(value)
    except ValueError:
        header = f"X-Podium-{name.replace('_', '-').title()}"
        raise invalid(
            f"{FIELD}.{name}", f"{header}: expected a number, got {value[:40]!r}"
        ) from None


def _json(value: str, name: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise invalid(f"{FIELD}.{name}", f"X-Podium-Workflow is not JSON: {error}") from None


_READERS: Final = MappingProxyType[str, Callable[[str, str], Any]](
    {
        "budget": _caps,
        "exclude": _names,
        "max_steps": _number,
        "rounds": _number,
        "workflow": _json,
        "quality_bias": _number,
    }
)
