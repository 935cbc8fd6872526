"""Runs that are not to be kept for ever: those that are old, where the settings say for how many
days, and those that nobody wanted kept and that were only held while they waited for tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Final

from podium.core.errors import PodiumError
from podium.core.run import timestamp
from podium.server.logs import LOGGER
from podium.store import RunStore

EVERY_SECONDS: Final = 600.0


async def forget_runs(store: RunStore, days: float | None) -> None:
    """Delete what was held for long enough, and what is older than so many days, now and every
    ten minutes, until cancelled."""
    while True:
        await _told(store.delete_held(), "runs that were only held")
        if days is not None:
            await forget_runs_of(store, datetime.now(UTC) - timedelta(days=days))
        await asyncio.sleep(EVERY_SECONDS)


async def forget_runs_of(store: RunStore, oldest: datetime) -> None:
    """Delete the runs that were begun before that moment."""
    await _told(store.delete_before(timestamp(oldest)), "old runs")


async def _told(deleting: Awaitable[int], what: str) -> None:
    """Say how many were deleted. A store that fails is tried again the next time; that must not
    stop the server."""
    try:
        count = await deleting
    except PodiumError as error:
        LOGGER.warning("%s were not deleted: %s", what, error)
        return
    if count:
        LOGGER.info("deleted %s", what, extra={"runs": count})
