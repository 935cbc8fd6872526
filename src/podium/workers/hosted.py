"""A worker behind HTTP. A vendor's module inherits from `HostedWorker` and only translates."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

from podium._util.addresses import redact_url
from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import UNKNOWN_USAGE, Delta, Reply, Request, Thinking, Usage
from podium.workers.endpoints import Endpoint
from podium.workers.errors import error_from_stream, truncated_stream
from podium.workers.fields import Document
from podium.workers.http import Http, HttpCall, translate_errors

REDIRECTING: Final = frozenset({"api_base", "base_url", "api_key", "api_version", "extra_headers"})
"""Fields by which some gateways behind a worker let a client choose an address or a key."""

OUTPUT_CAPS: Final = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "maxTokens",
        "max_new_tokens",
        "n_predict",
        "num_predict",
    }
)
"""The vendors' names for the output limit, which the budget sets."""


Wire = Literal["chat", "responses", "messages"]


@runtime_checkable
class PassThrough(Protocol):
    """A worker that passes `Request.extra` on, where it is written in the format `wire`."""

    @property
    def wire(self) -> Wire | None:
        """The format, or None."""

    def takes_extra(self, name: str) -> bool:
        """True if that field is passed on."""


class ReplyParser(ABC):
    """Parses one reply: the events of a stream, or a whole reply.

    `is_complete`: an event has completed the reply. `label` names the worker in errors.
    """

    is_complete = False

    def __init__(self, profile: WorkerProfile, label: str) -> None:
        self.asked_model = self.model = profile.model
        self.label = label
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.usage = UNKNOWN_USAGE

    @abstractmethod
    def feed(self, document: Document) -> Iterable[Delta]:
        """Take the next event, or the whole reply, and yield its deltas."""

    @abstractmethod
    def to_reply(self) -> Reply:
        """Return what has arrived as a reply."""

    @property
    def known_usage(self) -> Usage:
        return self.usage

    def finish(self) -> Reply:
        """Return the reply after the stream; raise `WorkerError` if it was cut off."""
        if not self.is_complete:
            raise truncated_stream(self.label)
        return self.to_reply()

    def parse(self, document: Document) -> Reply:
        for _ in self.feed(document):
            pass
        return self.to_reply()

    def one_thinking(self, opaque: str) -> tuple[Thinking, ...]:
        """Return the thinking as one part, with the provider's state; none if both are empty."""
        text = "".join(self.thinking)
        return (Thinking(text, opaque, self.asked_model),) if text or opaque else ()


class HostedWorker(ABC):
    """The base of all vendors' workers.

    `option_choices` are options that steer the translation and are not sent: names, and allowed
    values with the default first. `reserved_fields` are body fields that no option may change.
    `reserved_in_merged_fields` are body objects that an option adds to instead of replacing, and
    what is reserved in each. `wire` is the format of `Request.extra` that goes into the body.
    """

    wire: ClassVar[Wire | None] = None

    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    reserved_fields: ClassVar[frozenset[str]] = frozenset()
    reserved_in_merged_fields: ClassVar[Mapping[str, frozenset[str]]] = {}

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        if not re.match(r"https?://[^/\s]+(/|$)", endpoint.base_url):
            raise ConfigError(
                f"worker {profile.name!r} needs a base_url such as https://host/v1, "
                f"got {redact_url(endpoint.base_url)!r}"
            )
        if not endpoint.api_key.isascii() or not endpoint.api_key.isprintable():
            raise ConfigError(
                f"the key of worker {profile.name!r} contains a line break or an invalid "
                f"character; copy it again"
            )
        for name, values in self.option_choices.items():
            if endpoint.options.get(name, values[0]) not in values:
                raise ConfigError(
                    f"worker {profile.name!r} has {name} = {endpoint.options[name]!r}; "
                    f"use one of {', '.join(values)}"
                )
        refuse_reserved(profile, endpoint.options, self.reserved_fields)
        for name, reserved in self.reserved_in_merged_fields.items():
            inner = endpoint.options.get(name, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(
                    f"worker {profile.name!r} has {name} = {inner!r} in its options; give a table"
                )
            refuse_reserved(profile, inner, reserved)
        self.profile = profile
        self.endpoint = endpoint
        self.label = f"worker {profile.name!r} ({profile.provider or 'no provider'})"
        self._http = http

    async def reply(self, request: Request) -> Reply:
        call = self.build_call(request, stream=False)
        with translate_errors(self.label, self.endpoint.api_key):
            call = await self._authorize(call)
            return self.parse_reply(await self._http.post(call), request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        call = self.build_call(request, stream=True)
        parser = self.reply_parser(request)
        with translate_errors(self.label, self.endpoint.api_key):
            call = await self._authorize(call)
            has_started = False
            async with aclosing(self._http.events(call, lambda: parser.is_complete)) as events:
                async for document in events:
                    for delta in parser.feed(document):
                        has_started = True
                        yield delta
                    if not has_started:  # the first content may take long
                        has_started = True
                        yield Delta("", "start", usage=parser.known_usage)
            yield parser.finish()

    @property
    def supports_forwarding(self) -> bool:
        """True if the endpoint may have OpenAI's other paths, such as `/embeddings`."""
        return self.wire in ("chat", "responses")

    async def forward(self, path: str, body: Mapping[str, Any]) -> Document:
        """Send a body as it is to another path of the endpoint, and return what comes back."""
        with translate_errors(self.label, self.endpoint.api_key):
            return await self._http.post(await self._authorize(self._build_forward(path, body)))

    async def forward_events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Document]:
        """Send a body as it is to another path of the endpoint, and yield the events."""
        with translate_errors(self.label, self.endpoint.api_key):
            call = await self._authorize(self._build_forward(path, body))
            async with aclosing(self._http.events(call, lambda: False)) as events:
                async for document in events:
                    if document.get("error"):
                        raise error_from_stream(self.label, document["error"])
                    yield document

    def _build_forward(self, path: str, body: Mapping[str, Any]) -> HttpCall:
        headers = {**self.key_headers(), **self.endpoint.headers}
        return HttpCall(self.label, self.endpoint.base_url.rstrip("/") + path, body, headers)

    @abstractmethod
    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        """Translate a request."""

    @abstractmethod
    def reply_parser(self, request: Request) -> ReplyParser:
        """Return a parser for the reply to that request."""

    def parse_reply(self, document: Document, request: Request) -> Reply:
        return self.reply_parser(request).parse(document)

    async def _authorize(self, call: HttpCall) -> HttpCall:
        if self.endpoint.authorizer is None:
            return call
        signed = await self.endpoint.authorizer.headers(call)
        return replace(call, headers={**call.headers, **signed})

    def key_headers(self, usual: str = "Authorization") -> dict[str, str]:
        key, name = self.endpoint.api_key, self.endpoint.key_header or usual
        if not key:
            return {}
        return {name: f"Bearer {key}" if name == "Authorization" else key}

    def setting(self, name: str) -> str:
        return str(self.endpoint.options.get(name, self.option_choices[name][0]))

    def add_extra(self, body: Mapping[str, Any], request: Request) -> Mapping[str, Any]:
        """Return the body with the request's extra fields, none of which replaces another."""
        if not request.extra:
            return body
        passed = {name: value for name, value in request.extra.items() if self.takes_extra(name)}
        return {**passed, **body}

    def takes_extra(self, name: str) -> bool:
        if name == "n":
            return self.wire == "chat"
        return name not in self.reserved_fields | OUTPUT_CAPS | REDIRECTING

    def post_call(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> HttpCall:
        extras = {
            name: {**body.get(name, {}), **value}
            if name in self.reserved_in_merged_fields
            else value
            for name, value in self.endpoint.options.items()
            if name not in self.option_choices
        }
        return HttpCall(
            worker=self.label,
            url=self.endpoint.base_url.rstrip("/") + path,
            body={**body, **extras},
            headers={**headers, **self.endpoint.headers},
        )


def refuse_reserved(
    profile: WorkerProfile, options: Mapping[str, Any], reserved: frozenset[str]
) -> None:
    """Raise `ConfigError` for options that Podium decides itself, such as the output limit."""
    for name in sorted(reserved & options.keys()):
        remedy = (
            "; set limits.max_output_tokens instead"
            if name in OUTPUT_CAPS
            else ", which Podium writes itself; leave it out"
        )
        raise ConfigError(f"worker {profile.name!r} sets {name} in its options{remedy}")
