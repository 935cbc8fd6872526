"""The numbers of one process, told to the other processes of the same server.

Whoever fetches the numbers meets any one of the processes, and wants those of all. So each writes
its own into a directory that they share, about once a second, and the one that is asked adds them
up. What a process had counted before it ended still counts.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Final

from podium.server.records.metrics import Metrics

WRITE_SECONDS: Final = 1.0


class Tally:
    """Writes the numbers of one process, `name` among all, and reads everybody's."""

    def __init__(self, metrics: Metrics, directory: Path, name: str = str(os.getpid())) -> None:
        self._metrics = metrics
        self._directory = directory
        self._own = directory / f"{name}.json"

        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write what was counted, now and about once a second."""
        self._writing = asyncio.create_task(self._keep_writing())

    async def close(self) -> None:
        """Write a last time."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        self.write()

    async def _keep_writing(self) -> None:
        while True:
            self.write()
            await asyncio.sleep(WRITE_SECONDS)

    def write(self) -> None:
        """Write what was counted so far; readers see all of it, or all that was there before."""
        unfinished = self._own.with_suffix(".new")
        unfinished.write_text(json.dumps(self._metrics.counted()), "utf-8")
        unfinished.replace(self._own)

    def whole(self) -> Metrics:
        """What all processes have counted; the others, when they wrote last."""
        whole = Metrics()
        whole.take(self._metrics.counted())
        for file in self._directory.glob("*.json"):
            if file != self._own:
                whole.take(json.loads(file.read_text("utf-8")))
        return whole
