"""A worker that is down, as clients and operators of a server see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import Unavailable
from podium.core.pool import WorkerProfile
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.serving import PLAIN, application, serving

DOWN = WorkerProfile(name="down", provider="scripted", fallback="spare")


async def test_a_worker_that_is_down_is_refused_with_a_time_and_shown_as_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = ScriptedWorker(DOWN, Unavailable("gone"))
    spare = ScriptedWorker("spare", "here")
    store = await SqlRunStore.open(tmp_path / "podium.db")
    async with serving(application([down, spare], store=store)) as served:
        answers = [
            await served.client.post(PLAIN, json={"model": "down", "ask": "hi"}) for _ in range(6)
        ]
        assert {answer.status_code for answer in answers} == {502}
        assert down.calls == 8, "two attempts each, and none after the eighth failure"
        assert "is tried again in" in answers[-1].text
        assert answers[-1].headers["Retry-After"] == "5"
        workers = (await served.client.get("/v1/pool")).json()["workers"]
        states = {worker["name"]: worker["breaker"] for worker in workers}
        assert states == {"down": "open", "spare": "closed"}
        page = (await served.client.get("/metrics")).text
        assert 'podium_breaker_openings_total{worker="down"} 1' in page
        assert "circuit breaker of down opened after repeated failures: gone" in caplog.text
