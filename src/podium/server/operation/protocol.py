"""HTTP as it comes in, within bounds: the web server's own protocol reads heads and trailers of any
length, for as long as a client likes, before anybody knows who it is.

What is bounded are bytes that come to nothing: neither the end of a request's head nor a piece of
its body. A body has a bound of its own (`endpoints.exchange`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD: Final = 64 * 1024
"""Bytes of a request's line and headers, and again of its trailers."""

HEAD_SECONDS: Final = 60.0
"""How long they may take to arrive, from when the connection is open or the first of them came."""

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\n\r\n"
    b"the line and headers of this request are over 64 KiB; send less"
)


class BoundedHttp(HttpToolsProtocol):
    """The web server's protocol, which hangs up on heads without end."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._got_somewhere = False
        self._for_nothing = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and has yet to say anything."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether it got anywhere."""
        self._got_somewhere = False
        super().data_received(data)
        if self._got_somewhere:
            self._for_nothing = 0
            self._stop_waiting()
            return
        self._for_nothing += len(data)
        if self._for_nothing > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._patience is None:
            self._wait()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: whoever asks for a websocket is answered that there is none, and the log need
        not tell the operator to install any."""

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._got_somewhere = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._got_somewhere = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._got_somewhere = True
        super().on_message_complete()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
