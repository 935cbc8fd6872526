"""Runs that ended while the store could not take them. They are held here, and written as soon as
it is back.

One is tried every quarter of a second; with the first that the store takes, all others are written.
A run that it never takes, for something that is wrong with it, comes last from then on and keeps no
other from being written. What is held is bounded: a process that can write nothing for an hour, or
thousands of runs, says what it lets go of.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from podium.core.errors import PodiumError, StoreError
from podium.core.run import Run
from podium.server.logs import LOGGER

AGAIN_SECONDS: Final = 0.25
"""How soon the store is tried again: sooner than anybody else looks for runs to take over."""

OWED_SECONDS: Final = 3600.0
MOST_OWED: Final = 2_000
"""How long, and how many, runs are held."""

LAST_TRIES: Final = 3
"""How often the store is tried as the server ends; a run that it never takes may come first."""


class _Held(NamedTuple):
    until: float
    run: Run
    why: str


class WriteRetryQueue:
    """Holds runs until `write` takes them. It belongs to one event loop."""

    def __init__(self, write: Callable[[Run], Awaitable[None]]) -> None:
        self._write = write
        self._runs: OrderedDict[str, _Held] = OrderedDict()
        self._writing = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> Run | None:
        """The run as it ended, where it is held."""
        return self._runs[run_id].run if run_id in self._runs else None

    def hold(self, run: Run, error: StoreError) -> None:
        """Hold a run that could not be written."""
        LOGGER.warning("%s is not stored yet, and held until it can be: %s", run.id, error)
        self._runs[run.id] = _Held(time.monotonic() + OWED_SECONDS, run, str(error))
        if len(self._runs) > MOST_OWED:
            self._let_go(next(iter(self._runs)), f"more than {MOST_OWED} wait for the store")
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(self._try_again())

    def forget(self, run_id: str) -> None:
        """Hold the run no longer."""
        self._runs.pop(run_id, None)

    async def write(self) -> None:
        """Write what is held, if the store takes it."""
        if not self._runs:
            return
        async with self._writing:
            is_back = False
            for run_id in tuple(self._runs):
                if run_id in self._runs:
                    is_back |= await self._is_written(run_id)
                if not is_back:
                    return

    async def close(self) -> None:
        """Try once more, and say what is lost."""
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait({self._again})
        for _ in range(LAST_TRIES):
            await self.write()
        for run_id, held in tuple(self._runs.items()):
            self._let_go(run_id, held.why)

    async def _try_again(self) -> None:
        while self._runs:
            await asyncio.sleep(AGAIN_SECONDS)
            await self.write()

    async def _is_written(self, run_id: str) -> bool:
        """Whether the store answered, be it that it will not have the run."""
        held = self._runs[run_id]
        try:
            await self._write(held.run)
        except StoreError as error:
            if time.monotonic() > held.until:
                self._let_go(run_id, str(error))
            elif run_id in self._runs:
                self._runs.move_to_end(run_id)
            return False
        except PodiumError as error:
            self._let_go(run_id, str(error))
            return True
        self._runs.pop(run_id, None)
        LOGGER.info("stored a run that had waited for that", extra={"run": run_id})
        return True

    def _let_go(self, run_id: str, why: str) -> None:
        self._runs.pop(run_id, None)
        LOGGER.warning("%s was not stored: %s", run_id, why)
