"""A whole server that asks for keys, and one client of it that has one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from podium.conductors import Conductor
from podium.core.pool import Pool
from podium.core.worker import Worker
from podium.engine.runner import Options
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from support.serving import Served, application, serving


@asynccontextmanager
async def served_to(
    rules: Rules,
    workers: Sequence[Worker],
    conductor: Conductor | None,
    directory: Path,
    rounds: int = 1,
) -> AsyncIterator[tuple[Served, SqlRunStore]]:
    """A server whose only client has a key of those rules."""
    store = await SqlRunStore.open(directory / "podium.db")
    made = make_key("Ada", rules)
    await store.keys.add(made.key)
    pool = Pool(tuple(worker.profile for worker in workers))
    access = KeyAuthenticator(store.keys, pool)
    app = application(
        workers, conductor=conductor, options=Options(rounds=rounds), store=store, access=access
    )
    async with serving(app) as served:
        served.client.headers["Authorization"] = f"Bearer {made.token}"
        yield served, store
        await access.close()
