"""The seam between the dialects and the server: what a body comes to, and what is told in the end.

Asked     a body, read
Answer    what the client gets to know
Dialect   reads bodies; writes answers, streams and refusals
Writer    one stream being written, event by event
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Protocol

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
from podium.server.api_error import ApiError

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodiumParams:
    """The `podium` object of a body: what only Podium understands. `budget` holds caps by their
    names in `podium.budget.Budget`; `workflow` is a plan of the client's own, as JSON;
    `quality_bias` is how much quality counts over cost where a router chooses, from 0 to 1."""

    budget: Mapping[str, float] = field(default_factory=dict)
    exclude: frozenset[str] = frozenset()
    max_steps: int | None = None
    rounds: int | None = None
    workflow: Json | None = None
    quality_bias: float | None = None


@dataclass(frozen=True, slots=True)
class Named:
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
    wished: PodiumParams = PodiumParams()
    named: Named | None = None
    body: Json = field(default_factory=dict)
    """The body itself, for what is only echoed in the response (metadata, instructions, …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
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


class Writer(Protocol):
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

    def end(self, answer: Answer, rest: str = "") -> bytes:
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

    def whole(self, asked: ApiRequest, answer: Answer) -> dict[str, Any]:
        """The body of a response that is not streamed."""
        ...

    def writer(self, asked: ApiRequest, opening: Answer) -> Writer:
        """A stream; of `opening`, id, model and created are known."""
        ...

    def refused(self, refusal: ApiError) -> dict[str, Any]:
        """The body of an error."""
        ...


_RUN: Final = "run_"


def stem_of(asked: ApiRequest, answer_id: str) -> str:
    """What the ids of an answer, and of what is in it, begin with: the run, and the results of
    tools that it answers."""
    stem = answer_id.removeprefix(_RUN)
    turn = takewhile(lambda message: message.role != "assistant", reversed(asked.messages))
    results = [
        part.call_id for message in turn for part in message.parts if isinstance(part, ToolResult)
    ]
    if not results:
        return stem
    told = hashlib.blake2s(json.dumps(results).encode(), digest_size=4).hexdigest()
    return f"{stem}_{told}"
