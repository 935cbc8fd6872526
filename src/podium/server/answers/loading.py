"""Loading the models that run on this machine as the server starts, so that the first question need
not wait for it. Until then the server says that it is not ready; what is asked nevertheless waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from podium.core.errors import WorkerError
from podium.core.pool import WorkerProfile
from podium.server.logs import LOGGER


@runtime_checkable
class Loads(Protocol):
    """A worker, or who reads for a conductor, that has to load something before it can answer."""

    profile: WorkerProfile

    async def load(self) -> None:
        """Load it, unless it is loaded; raises `WorkerError`."""
        ...


class Loading:
    """What is loaded once, in the background."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_going_on(self) -> bool:
        """Whether something is being loaded."""
        return self._task is not None and not self._task.done()

    def begin(self, workers: Iterable[object]) -> None:
        """Begin to load what these workers need."""
        loading = [worker for worker in workers if isinstance(worker, Loads)]
        if loading:
            self._task = asyncio.create_task(_load(loading))

    async def stop(self) -> None:
        """Wait for it no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


async def _load(workers: list[Loads]) -> None:
    """One after another: most of them share what is loaded."""
    models = ", ".join(dict.fromkeys(worker.profile.model for worker in workers))
    LOGGER.info("loading %s; ready when that is done", models)
    began, problems = time.perf_counter(), 0
    for worker in workers:
        try:
            await worker.load()
        except WorkerError as error:
            problems += 1
            LOGGER.warning("%s will be loaded when it is asked: %s", worker.profile.name, error)
    if not problems:
        LOGGER.info("loaded %s in %.1f s; ready", models, time.perf_counter() - began)
