from __future__ import annotations

from collections.abc import Callable

import pytest

from podium.core.errors import NotFound
from podium.core.run import Run
from podium.store.base import RunFilter, RunStore


async def test_the_null_store_takes_a_run_and_keeps_nothing(make_run: Callable[..., Run]) -> None:
    store, run = RunStore(), make_run()
    await store.begin(run)
    await store.save(run.id, run.rounds[0])
    await store.save(run.id, run.steps[0])
    await store.finish(run)
    assert await store.list(RunFilter(owner="key_1")) == []
    assert await store.delete_before("2030-01-01") == 0
    await store.save_until(run, "2030-01-01")
    assert await store.delete_expired() == 0
    await store.heartbeat([run.id])
    assert not await store.is_claimed(run.id)
    with pytest.raises(NotFound, match="not being stored"):
        await store.claim(run.id, "here:1")
    with pytest.raises(NotFound, match="not being stored"):
        await store.load(run.id)
    with pytest.raises(NotFound, match="not being stored"):
        await store.delete(run.id)
    await store.close()
