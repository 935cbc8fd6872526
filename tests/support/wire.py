"""A connection to a server that can be cut: clients see the server go away and come back, while
the server keeps running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Wire:
    """`address` is the near end. Cut, it drops its connections and refuses new ones."""

    def __init__(self, far: str) -> None:
        parts = urlsplit(far)
        self._far = (parts.hostname or "", parts.port or 0)
        self._is_cut = False
        self._ends: set[asyncio.StreamWriter] = set()
        self.address = ""

    def cut(self) -> None:
        """Cut the connection, as if the server were gone."""
        self._is_cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        """It is back."""
        self._is_cut = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        if self._is_cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._far)
        self._ends |= {writer, far_writer}
        with suppress(ConnectionError):
            await asyncio.gather(_pass(reader, far_writer), _pass(far_reader, writer))
        self._ends -= {writer, far_writer}

    async def settle(self) -> None:
        """Drop what is left."""
        for end in list(self._ends):
            end.transport.abort()
        while self._ends:
            await asyncio.sleep(0.001)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def wire_to(address: str) -> AsyncIterator[Wire]:
    """A wire to that server, until the block is left."""
    wire = Wire(address)
    server = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    wire.address = f"http://127.0.0.1:{port}"
    async with server:
        yield wire
        await wire.settle()
