"""An upstream that answers nobody before it is told to, so that many runs are in flight at once and
what each of them takes of memory can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.capacity.figures import Memory
from benchmarks.capacity.processes import allow_many_connections
from benchmarks.capacity.stations import Load, Station, running
from benchmarks.server_client import Call, connected
from benchmarks.server_upstream import WHOLE
from podium.core.errors import ConfigError

LONGEST_WAIT_SECONDS: Final = 60.0
FIRST: Final = 32
"""So many requests beforehand, so that what is made once is there already."""


class HoldingUpstream:
    """Holds what it is asked until it is let go; `asked` counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()
        self._changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, whose requests come one after another."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next(line for line in lines if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                async with self._changed:
                    self.asked += 1
                    self._changed.notify_all()
                await self.may_answer.wait()
                writer.write(WHOLE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # whoever asked is gone
        finally:
            writer.close()

    async def until_asked(self, count: int) -> None:
        """Wait until it has been asked so often."""
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self.asked >= count)
        except TimeoutError as error:
            raise ConfigError(
                f"{self.asked} of {count} requests reached the worker within "
                f"{LONGEST_WAIT_SECONDS:g} s; let a process open more files (ulimit -n)"
            ) from error


@asynccontextmanager
async def _listening(upstream: HoldingUpstream) -> AsyncIterator[int]:
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=4096)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        upstream.may_answer.set()
        server.close()


async def memory_in_flight(load: Load, count: int, directory: Path) -> Memory:
    """What a process holds before, and while so many requests of that load are in flight."""
    allow_many_connections()
    upstream = HoldingUpstream()
    upstream.may_answer.set()
    async with (
        _listening(upstream) as port,
        running(Station("one process"), port, directory) as servers,
    ):
        call = Call(servers.ports[0], load.model)
        await asyncio.gather(*(_ask(call) for _ in range(FIRST)))
        before, asked = servers.memory_bytes, upstream.asked
        upstream.may_answer.clear()
        asking = [asyncio.create_task(_ask(call)) for _ in range(count)]
        try:
            await upstream.until_asked(asked + count)
            held = servers.memory_bytes
            upstream.may_answer.set()
            await asyncio.gather(*asking)
        finally:
            for task in asking:
                task.cancel()
    return Memory(idle_bytes=before, in_flight=count, held_bytes=held)


async def _ask(call: Call) -> None:
    async with connected(call.port) as connection:
        await connection.whole(call.request(stream=False))
