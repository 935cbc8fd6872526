from __future__ import annotations

import asyncio
import logging

import pytest

from podium.core.errors import Unavailable
from podium.server.service import ModelLoader
from podium.workers import ScriptedWorker
from support.serving import application, serving


class Heavy(ScriptedWorker):
    """A worker that is loaded when it may be."""

    def __init__(self, name: str, fault: Exception | None = None) -> None:
        super().__init__(name, "yes")
        self.may_load = asyncio.Event()
        self.loads = 0
        self._fault = fault

    async def load(self) -> None:
        self.loads += 1
        await self.may_load.wait()
        if self._fault is not None:
            raise self._fault


async def test_a_server_is_not_ready_while_models_are_loaded_and_answers_nevertheless() -> None:
    heavy = Heavy("heavy")
    async with serving(application([heavy])) as served:
        loading = served.service.loader
        loading.begin([ScriptedWorker("light", "yes"), heavy, None])
        refused = await served.client.get("/readyz")
        assert (refused.status_code, refused.json()) == (503, {"status": "loading"})
        assert (await served.client.get("/healthz")).status_code == 200
        assert (await served.ask(model="heavy")).json()["text"] == "yes"
        heavy.may_load.set()
        while loading.is_loading:
            await asyncio.sleep(0)
        assert (await served.client.get("/readyz")).json() == {"status": "ready"}
    assert heavy.loads == 1


async def test_loaded_and_failed_models_are_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("podium"), "propagate", True)
    caplog.set_level(logging.INFO, "podium")
    good, bad = Heavy("good"), Heavy("bad", Unavailable("no memory"))
    for workers in ([good], [bad, good]):
        loading = ModelLoader()
        loading.begin(workers)
        for heavy in workers:
            heavy.may_load.set()
        while loading.is_loading:
            await asyncio.sleep(0)
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "loading good"
    assert said[1].startswith("loaded good in ")
    assert said[2:] == [
        "loading bad, good",
        "cannot load bad now, retrying on first use: no memory",
    ]


async def test_a_server_that_stops_does_not_wait_for_models() -> None:
    heavy, loading = Heavy("heavy"), ModelLoader()
    await loading.stop()
    loading.begin([heavy])
    await asyncio.sleep(0)
    await loading.stop()
    assert not loading.is_loading


async def test_startup_without_models_waits_for_nothing() -> None:
    loading = ModelLoader()
    loading.begin([ScriptedWorker("light", "yes")])
    assert not loading.is_loading
