"""Runs are kept for so many days and no longer, where the settings say so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from podium.errors import PodiumError
from podium.server.logs import LOGGER
from podium.store import RunStore

HOUR: Final = 3600.0


async def forget_old_runs(store: RunStore, days: float) -> None:
    """Delete what is older, now and every hour, until cancelled."""
    while True:
        await forget_runs_of(store, datetime.now(UTC) - timedelta(days=days))
        await asyncio.sleep(HOUR)


async def forget_runs_of(store: RunStore, oldest: datetime) -> None:
    """Delete the runs that were begun before that moment. A store that fails is tried again the
    next time; that must not stop the server."""
    try:
        count = await store.delete_before(oldest.isoformat(timespec="milliseconds"))
    except PodiumError as error:
        LOGGER.warning("old runs were not deleted: %s", error)
        return
    if count:
        LOGGER.info("deleted old runs", extra={"runs": count})
