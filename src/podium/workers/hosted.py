"""A worker behind HTTP: sends what its vendor's translation wrote, and reads what comes back.

A vendor's file inherits from `HostedWorker` and only translates: a request into a call, a
document into a reply, and a stream's events into deltas. All input and output is here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Final, Protocol

from podium._util.addresses import shown
from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request
from podium.workers.endpoints import Endpoint
from podium.workers.fields import Document
from podium.workers.http import Call, Http, boundary

OUTPUT_CAPS: Final = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "maxOutputTokens",
        "n_predict",
    }
)
"""What the vendors call the bound on a reply, which the budget sets."""


class Assembly(Protocol):
    """Puts one streamed reply together."""

    def feed(self, event: str, document: Document) -> Iterable[Delta]:
        """Take the next event; the pieces of the answer that it brings."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the reply is complete, where an event says so before the stream ends."""
        ...

    def finish(self) -> Reply:
        """The whole reply, once the stream has ended; raises `WorkerError` if it broke off."""
        ...


class HostedWorker(ABC):
    """What all vendors' workers share.

    `settings` are the endpoint's options that steer the translation and are not sent: their
    names, and the values that each may have, its default first. `owned` names the parts of the
    body that no option may change: what is asked of whom, and how much may come back. `merged`
    names the objects of the body that an option adds to rather than replaces, and what Podium
    owns in each.
    """

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    owned: ClassVar[frozenset[str]] = frozenset()
    merged: ClassVar[Mapping[str, frozenset[str]]] = {}

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        if not re.match(r"https?://[^/\s]+(/|$)", endpoint.base_url):
            raise ConfigError(
                f"worker {profile.name!r} needs a base_url such as https://host/v1, "
                f"got {shown(endpoint.base_url)!r}"
            )
        if not endpoint.api_key.isascii() or not endpoint.api_key.isprintable():
            raise ConfigError(
                f"the key of worker {profile.name!r} has a line break or a character that no key "
                f"has; copy it again"
            )
        for name, values in self.settings.items():
            if endpoint.options.get(name, values[0]) not in values:
                raise ConfigError(
                    f"worker {profile.name!r} has {name} = {endpoint.options[name]!r}; "
                    f"use one of {', '.join(values)}"
                )
        refuse_owned(profile, endpoint.options, self.owned)
        for name, owned in self.merged.items():
            inner = endpoint.options.get(name, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(
                    f"worker {profile.name!r} has {name} = {inner!r} in its options; give a table"
                )
            refuse_owned(profile, inner, owned)
        self.profile = profile
        self.endpoint = endpoint
        self.called = f"worker {profile.name!r} ({profile.provider or 'no provider'})"
        self._http = http

    async def reply(self, request: Request) -> Reply:
        """Answer the request as a whole."""
        call = self.call(request, stream=False)
        with boundary(self.called, self.endpoint.api_key):
            return self.read(await self._http.post(call), request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Answer piece by piece, then hand over the whole reply."""
        call = self.call(request, stream=True)
        assembly = self.assembly(request)
        with boundary(self.called, self.endpoint.api_key):
            async with aclosing(self._http.events(call, lambda: assembly.finished)) as events:
                async for event, document in events:
                    for delta in assembly.feed(event, document):
                        yield delta
            yield assembly.finish()

    @abstractmethod
    def call(self, request: Request, *, stream: bool) -> Call:
        """The request in the vendor's words."""

    @abstractmethod
    def read(self, document: Document, request: Request) -> Reply:
        """The vendor's whole reply to that request."""

    @abstractmethod
    def assembly(self, request: Request) -> Assembly:
        """Where the events of a streamed reply to that request are put together."""

    def setting(self, name: str) -> str:
        """What the endpoint's options say of that setting, or its default."""
        return str(self.endpoint.options.get(name, self.settings[name][0]))

    def sent(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Call:
        """The call to a path of this endpoint, with its own headers and options on top."""
        extras = {
            name: {**body.get(name, {}), **value} if name in self.merged else value
            for name, value in self.endpoint.options.items()
            if name not in self.settings
        }
        return Call(
            worker=self.called,
            url=self.endpoint.base_url.rstrip("/") + path,
            body={**body, **extras},
            headers={**headers, **self.endpoint.headers},
        )


def refuse_owned(profile: WorkerProfile, options: Mapping[str, Any], owned: frozenset[str]) -> None:
    """Refuse options that would override what Podium itself must decide, such as the budget's
    bound on a reply."""
    for name in sorted(owned & options.keys()):
        remedy = (
            "; set limits.max_output_tokens instead"
            if name in OUTPUT_CAPS
            else ", which Podium writes itself; leave it out"
        )
        raise ConfigError(f"worker {profile.name!r} sets {name} in its options{remedy}")
