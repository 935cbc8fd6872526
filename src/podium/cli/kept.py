"""Doing something with the store that the configuration names, without looking at its workers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from podium.cli.settings import configuration_file
from podium.config.files import read
from podium.config.schema import ConfigFile
from podium.store import RunStore, open_store

Result = TypeVar("Result")


def with_store(
    config: Path | None,
    work: Callable[[RunStore], Awaitable[Result]],
    pool: Path | None = None,
    *,
    to_read: bool = False,
) -> Result:
    """Do the work with the store; a pool file's tables take the place of the configuration's."""
    tables = ConfigFile()
    for file in (configuration_file(os.environ, config), pool):
        if file is not None:
            tables = tables.overlaid(read(file))

    async def opened() -> Result:
        store = await open_store(
            tables.store.url or tables.store.path,
            to_read=to_read,
            lease_seconds=tables.store.lease_seconds,
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())
