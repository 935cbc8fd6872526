"""Workers that an administrator switched off for new runs, on all servers of one store."""

from __future__ import annotations

import asyncio
from typing import Final

from podium.core.errors import ConfigError, StoreError
from podium.server.records.buffered_store import BufferedRunStore

REFRESH_SECONDS: Final = 5.0


class DisabledWorkers:
    """The names of disabled workers, read again every few seconds."""

    def __init__(self, store: BufferedRunStore) -> None:
        self._store = store
        self.names: frozenset[str] = frozenset()

    async def switch(self, worker: str, *, on: bool) -> None:
        """Enable or disable a worker; raises `ConfigError` without a database."""
        stored = (await self._store.flush()).disabled_workers
        await (stored.enable(worker) if on else stored.disable(worker))
        self.names = await stored.names()

    async def watch(self) -> None:
        """Follow what other servers of the store do, until cancelled."""
        while True:
            try:
                self.names = await (await self._store.flush()).disabled_workers.names()
            except ConfigError:  # no database
                return
            except StoreError:
                pass  # keep the names until the store is back
            await asyncio.sleep(REFRESH_SECONDS)
