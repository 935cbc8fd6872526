"""What dialects and server exchange: `ApiRequest`, `ApiResponse` and the `podium` object.

The `podium` object may also come in headers, for clients that cannot change the body:

    X-Podium-Budget: usd=0.50, calls=12
    X-Podium-Exclude: deepseek, gpt-5
    X-Podium-Max-Steps: 3
    X-Podium-Rounds: 2
    X-Podium-Quality-Bias: 0.2
    X-Podium-Workflow: {"steps": [...]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

from podium.core.errors import ConfigError
from podium.core.pool import check_excluded
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    NO_USAGE,
    Delta,
    Finish,
    Message,
    ResponseOptions,
    Thinking,
    ToolCall,
    Usage,
)
from podium.core.worker import Worker
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import (
    Json,
    Reader,
    UnknownKey,
    array,
    bounded_text,
    describe,
    integer,
    json_object,
    number,
    read_object,
)
from podium.workers.hosted import PassThrough, Wire


@dataclass(frozen=True, slots=True)
class Rerun:
    """A stored run to run again: without what was not done or, with a step, from there on."""

    run: str
    round: int | None = None
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodiumParams:
    """The `podium` object of a body.

    `budget` holds caps named as in `podium.core.budget.Budget`; `workflow` is the client's own plan
    as JSON; `quality_bias` weighs quality over cost where a router chooses, from 0 to 1; `rerun` is
    a stored run to run again.
    """

    budget: Mapping[str, float] = field(default_factory=dict)
    exclude: frozenset[str] = frozenset()
    max_steps: int | None = None
    rounds: int | None = None
    workflow: Json | None = None
    quality_bias: float | None = None
    rerun: Rerun | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The client's name of a request that it may send again, and a digest of the body."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A body, read.

    `messages` is what the client sent. `previous_response` is the id of the stored response that
    comes before it. `shows_reasoning`: the client wants progress and thinking. `shows_usage`: a
    stream ends with usage. `raw_body` has the fields that the response echoes or that are
    forwarded, `extra` those that mean something to a single worker at most, and `stored_fields`
    those that a stored response keeps: None if the dialect has no stored responses. `background`:
    the client does not wait for the answer.
    """

    model: str
    messages: tuple[Message, ...]
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    stream: bool = False
    store: bool = True
    previous_response: str | None = None
    shows_reasoning: bool = False
    shows_usage: bool = True
    params: PodiumParams = PodiumParams()
    idempotency_key: IdempotencyKey | None = None
    raw_body: Json = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    stored_fields: Json | None = None
    background: bool = False

    @property
    def prefill(self) -> str:
        """The start of the answer, which the response does not repeat."""
        return self.messages[-1].text.rstrip() if self.response_options.is_prefilled else ""


OPERATOR_FIELDS: Final = frozenset(
    {"models", "route", "fallbacks", "plugins", "service_tier", "speed", "background", "store"}
)
"""Fields by which a provider would charge another price, answer by another model, or keep the
conversation: the operator decides on these, in a worker's options."""

MAX_CHOICES: Final = 128


@dataclass(frozen=True, slots=True)
class BodyFields:
    """The fields of a dialect's bodies.

    `supported` have an effect, or are hints to caches. `without_effect` are values that change
    nothing. `unsupported` are fields that a tier must not ignore, with the reason; a single worker
    of the same format, `wire`, still gets those in `passed_through`.
    """

    supported: frozenset[str]
    without_effect: Mapping[str, tuple[object, ...]]
    unsupported: Mapping[str, str]
    wire: Wire | None = None
    passed_through: frozenset[str] = frozenset()

    def select_extra(self, body: Json) -> dict[str, Any]:
        """Return the fields that are not supported."""
        extra: dict[str, Any] = {}
        if not self.supported.issuperset(body):
            for name, value in body.items():
                if value is not None and name not in self.supported:
                    extra |= json_object({name: value}, name)
        return extra

    def pass_on(self, extra: Json, worker: Worker) -> dict[str, Any]:
        if not isinstance(worker, PassThrough) or worker.wire != self.wire or self.wire is None:
            return {}
        unsupported = self.unsupported.keys() - self.passed_through
        taken = {
            name: value
            for name, value in extra.items()
            if name not in OPERATOR_FIELDS
            and (name not in unsupported or value in self.without_effect.get(name, ()))
            and worker.takes_extra(name)
        }
        if "n" in taken:
            taken["n"] = integer(1, MAX_CHOICES)(taken["n"], "n")
        return taken

    def find_unknown(self, extra: Json) -> list[UnknownKey]:
        """Return the extra fields that a tier ignores; raises `ApiError` where it must not."""
        known = self.supported | self.without_effect.keys()
        found = []
        for name, value in extra.items():
            if value in self.without_effect.get(name, ()):
                continue
            if why := self.unsupported.get(name):
                raise invalid(name, f"{name}: {describe(value)} is not supported: {why}")
            if name in self.supported:
                continue
            found.append(UnknownKey("", name, known))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """The response, before a dialect formats it.

    `id` is the run's, `model` the requested name, `created` in seconds since 1970. `stop_sequence`
    ended the text, if the worker said so. `usage` sums every call, `orchestration` the conductor's.
    An unknown count is None. `choices` are several answers as a worker of the same format wrote
    them, with the first one's text and calls in the other fields.
    """

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
    choices: tuple[Json, ...] = ()


class StreamWriter(Protocol):
    """Writes one stream. Each method returns bytes to send: `begin` first, `end` or `fail` last.

    `progress` and `thinking` are called only if the request `shows_reasoning`.
    """

    def begin(self) -> bytes:
        """Write the opening event."""
        ...

    def progress(self, text: str) -> bytes:
        """Write a line of progress."""
        ...

    def thinking(self, text: str) -> bytes:
        """Write a piece of the final worker's thinking."""
        ...

    def text(self, text: str) -> bytes:
        """Write a piece of the answer."""
        ...

    def streams_call(self, name: str) -> bool:
        """True if calls of that tool can be written in pieces."""
        ...

    def tool_call(self, delta: Delta) -> bytes:
        """Write a piece of a tool call: of a new one, or of the last."""
        ...

    def keep_alive(self) -> bytes:
        """Write an event without content."""
        ...

    def end(self, response: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        """Write the rest of the text and of tool calls, the reason for ending and usage.

        `calls` are the arguments of the first calls that were already written.
        """
        ...

    def fail(self, error: ApiError) -> bytes:
        """Write the error event."""
        ...


@runtime_checkable
class ChoicesWriter(Protocol):
    """A writer that can pass on pieces of several answers as a worker wrote them."""

    def choices(self, choices: Sequence[Json]) -> bytes:
        """Write such pieces; then `end` writes no more of the answer."""
        ...


class Dialect(Protocol):
    """One wire format: a pure translation without I/O."""

    @property
    def fields(self) -> BodyFields:
        """The fields of its bodies."""
        ...

    def read(self, body: Json) -> ApiRequest:
        """Read a body; raises `ApiError` for every wrong or contradictory field."""
        ...

    def format_response(self, request: ApiRequest, response: ApiResponse) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        ...

    def stream_writer(self, request: ApiRequest, start: ApiResponse) -> StreamWriter:
        """Return a writer; only id, model and created of `start` are known."""
        ...

    def format_error(self, error: ApiError) -> dict[str, Any]:
        """Return the body of an error."""
        ...


def unsent_calls(calls: Sequence[ToolCall], sent: Sequence[str]) -> Iterator[Delta]:
    """Yield what is to be written of tool calls, where `sent` is written of the first ones."""
    for index, call in enumerate(calls):
        rest = call.arguments[len(sent[index]) :] if index < len(sent) else call.arguments
        if rest or index >= len(sent):
            yield Delta(rest, "tool_call", index, call.id, call.name)


FIELD: Final = "podium"

BUDGET_CAPS: Final = ("calls", "tokens", "usd", "seconds", "depth")
PARAM_NAMES: Final = frozenset(
    {"budget", "exclude", "max_steps", "rounds", "workflow", "quality_bias", "rerun"}
)


def read_podium_params(value: object, path: str) -> PodiumParams:
    fields = read_object(value, path).reject_unknown(PARAM_NAMES)
    exclude = fields.optional("exclude", array(bounded_text(1, 200), most=1000))
    return PodiumParams(
        budget=fields.optional("budget", _budget) or {},
        exclude=frozenset(exclude or ()),
        max_steps=fields.optional("max_steps", integer(1, 100)),
        rounds=fields.optional("rounds", integer(1, 100)),
        workflow=fields.optional("workflow", json_object),
        quality_bias=fields.optional("quality_bias", number(0, 1)),
        rerun=fields.optional("rerun", _rerun),
    )


def _rerun(value: object, path: str) -> Rerun:
    fields = read_object(value, path).reject_unknown(("run", "round", "step"))
    step = fields.optional("step", integer(0))
    round_ = fields.optional("round", integer(0))
    return Rerun(
        fields.required("run", bounded_text(1, 100)),
        0 if round_ is None and step is not None else round_,
        step or 0,
    )


def _budget(value: object, path: str) -> dict[str, float]:
    fields = read_object(value, path).reject_unknown(BUDGET_CAPS)
    caps: dict[str, float] = {}
    for name in BUDGET_CAPS:
        read: Reader[float] = number(0, 1e12) if name in ("usd", "seconds") else integer(0)
        if (cap := fields.optional(name, read)) is not None:
            caps[name] = cap
    return caps


def merge_podium_headers(body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """Add the `X-Podium-` headers to the `podium` object of the body."""
    given: dict[str, Any] = {}
    for name, read in _READERS.items():
        value = headers.get(f"x-podium-{name.replace('_', '-')}")
        if value is not None:
            given[name] = read(value, name)
    if not given:
        return body
    own = body.get(FIELD) or {}
    if not isinstance(own, dict):
        return body  # the dialect reports the error
    for name in given:
        if own.get(name) is not None:
            raise invalid(
                f"{FIELD}.{name}",
                f"{FIELD}.{name} is set in the body and in a header; send one of them",
            )
    return {**body, FIELD: {**own, **given}}


def check_exclude(names: frozenset[str], known: frozenset[str]) -> frozenset[str]:
    """Return the excluded names; raises `ApiError` for an unknown one."""
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
