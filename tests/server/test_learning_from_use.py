"""From questions that clients ask with their keys, through the whole server, to what may be learned
from them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from podium.core.pool import Pool
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.train.run_data import TRAINING_DISABLED, RunDataset, judged_runs
from podium.workers import ScriptedWorker
from support.serving import application, serving


async def test_training_data_contains_only_permitted_runs(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    worker = ScriptedWorker("solo", "42")
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)))
    keys = {"giving": make_key("giving", Rules()), "not": make_key("not", Rules(training=False))}
    for made in keys.values():
        await store.keys.add(made.key)
    async with serving(application([worker], store=store, access=access)) as served:
        for name, made in keys.items():
            served.client.headers["Authorization"] = f"Bearer {made.token}"
            asked = await served.ask(f"By {name}?")
            path = f"/v1/runs/{asked.headers['x-podium-run']}/feedback"
            assert (await served.client.post(path, json={"score": 1})).status_code == 200
            assert "x-podium-run" not in (await served.ask("In private?", store=False)).headers
        dataset, left_out = RunDataset(), Counter[str]()
        async for judged in judged_runs(store, left_out):
            dataset.take(judged)
        await access.close()
    assert [(item.question, item.reward) for item in dataset.outcomes] == [("By giving?", 1.0)]
    assert [item.question for item in dataset.tasks] == ["By giving?"]
    assert left_out == {TRAINING_DISABLED: 1}
