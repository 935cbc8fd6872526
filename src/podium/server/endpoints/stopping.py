"""A server that stops before it has answered: what clients are told then, and how a response that
is on its way ends. When it stops, and how long it waits before, is `operation.listener`."""

from __future__ import annotations

from starlette.types import Message, Receive, Scope, Send

from podium.server.access.places import COME_BACK
from podium.server.dialects.base import Dialect
from podium.server.endpoints.errors import headers_of
from podium.server.endpoints.exchange import Exchange
from podium.server.refusal import Refusal


def stopped(run: str | None = None) -> Refusal:
    """What a client is told whose answer was cut off; `run` is on record with what was done."""
    record = f"; what was done is kept as {run}" if run else ""
    return Refusal(
        "overloaded",
        f"the server stopped before the answer was complete{record}; ask again",
        retry_after=COME_BACK,
    )


class Answering:
    """Sends a response, and knows how much of it is out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._is_over = False

    async def send(self, message: Message) -> None:
        """Send the next part."""
        if message["type"] == "http.response.start":
            self._started = True
        elif message["type"] == "http.response.body":
            self._is_over = not message.get("more_body", False)
        await self._send(message)

    async def cut_off(self, scope: Scope, receive: Receive, dialect: Dialect) -> None:
        """End the response: a stream as it stands, what has not begun with the refusal."""
        if self._is_over:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b""})
            return
        refusal = stopped()
        exchange = Exchange(scope, receive, self._send)
        await exchange.respond_json(refusal.status, dialect.refused(refusal), headers_of(refusal))
