"""JSON-RPC as the Model Context Protocol uses it: the messages, and what a connection can do.

`McpFault` is whatever goes wrong with a server. It stays in this room: it ends as the result of a
tool, or as a line in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from podium.workers.errors import without_key
from podium.workers.wire import Document, Malformed, as_object, count, text

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions of the protocol that are spoken, the newest first."""

EXCLUDED: Final = "podium/exclude"
"""Where the `_meta` of a call says which workers and providers must see nothing of it."""

LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of one message; whoever sends a larger one is not listened to any more."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

CANCELLED: Final = "notifications/cancelled"

_LONGEST_SAID: Final = 500
"""Characters of what a server says about an error."""


class McpFault(Exception):
    """A server cannot be reached, or does not do what the protocol says; `str` is one line."""


class SessionGone(McpFault):
    """The server does not know the session any more; what was asked was not carried out."""


class Connection(Protocol):
    """A way to one server. What it raises is `McpFault`; who waits, waits as long as it likes."""

    version: str
    """The revision that was agreed upon; empty until then."""

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked any more."""
        ...

    async def request(self, method: str, params: Mapping[str, Any]) -> Document:
        """The result of a request. Whoever stops waiting for it cancels it."""
        ...

    async def notify(self, method: str) -> None:
        """Tell the server something that it does not answer."""
        ...

    async def close(self) -> None:
        """Stop the server, or leave it, and all that waits for it."""
        ...


def request(number: int, method: str, params: Mapping[str, Any]) -> Document:
    """A request, as it is sent."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def notification(method: str, params: Mapping[str, Any] | None = None) -> Document:
    """A notification, as it is sent."""
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def answer(number: Any, result: Mapping[str, Any]) -> Document:
    """The answer to a request, as it is sent."""
    return {"jsonrpc": "2.0", "id": number, "result": result}


def error(number: Any, code: int, message: str) -> Document:
    """The answer to a request that cannot be carried out, as it is sent."""
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def answer_to(message: Document) -> Document | None:
    """What is answered to a message of a server that is a request; None where it is none."""
    method, number = message.get("method"), message.get("id")
    if not isinstance(method, str) or number is None:
        return None
    if method == "ping":
        return answer(number, {})
    return error(number, METHOD_NOT_FOUND, f"Podium does not offer {method[:100]}")


def number_of(message: Document) -> int | None:
    """The number of the request that a message answers; None where it answers none."""
    if "method" in message:
        return None
    try:
        return count(message, "id")
    except Malformed:
        return None


def result_of(message: Document, server: str, secrets: Sequence[str] = ()) -> Document:
    """The result in an answer; raises `McpFault` with what it says instead, less the secrets."""
    with understood(server, secrets):
        if "error" in message:
            problem = as_object(message["error"], "error")
            said = one_line(text(problem, "message") or "no reason", secrets)
            raise McpFault(f"{server} says: {said}")
        return as_object(message.get("result"), "result")


@contextmanager
def understood(server: str, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Turn what is not in the protocol into a fault of that server."""
    try:
        yield
    except (Malformed, UnicodeDecodeError) as error:
        raise McpFault(
            f"{server} sent what cannot be understood: {one_line(str(error), secrets)}"
        ) from error


def one_line(said: str, secrets: Sequence[str] = ()) -> str:
    """What a server says, in a line that is not too long and holds none of the secrets that it was
    given."""
    for secret in secrets:
        said = without_key(said, secret)
    line = " ".join(said.split())
    return line if len(line) <= _LONGEST_SAID else f"{line[:_LONGEST_SAID]}…"
