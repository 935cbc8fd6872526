from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price, Usage
from podium.core.run import timestamp
from podium.core.workflow import Step
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.store.keys import KeyUsage, Rules, Scope
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.runs_on_record import attempt, run_with_calls
from support.serving import Served, application, serving

ADMIN = Rules(scopes=frozenset[Scope]({"admin"}))
DAY = "2026-03-04"
RANGE = {"from": "2026-03-01", "to": "2026-03-31"}
SOLVE = Step("ada", "Solve it.", ())


@dataclass
class Books:
    """A server, its store, and its keys: ids and tokens."""

    served: Served
    store: SqlRunStore
    ids: list[str]
    tokens: list[str]
    access: KeyAuthenticator | None

    async def spend(self, token: str = "", **query: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        response = await self.served.client.get("/v1/spend", params=query, headers=headers)
        assert response.status_code == 200, response.text
        page: dict[str, Any] = response.json()
        return page


@asynccontextmanager
async def books(directory: Path, *rules: Rules) -> AsyncIterator[Books]:
    store = await SqlRunStore.open(directory / "podium.db")
    made = [make_key(f"key {number}", item) for number, item in enumerate(rules)]
    for item in made:
        await store.keys.add(item.key)
    profile = WorkerProfile(name="ada", price=Price(input=1000.0, output=1000.0))
    access = KeyAuthenticator(store.keys, Pool((profile,))) if rules else None
    worker = ScriptedWorker(profile, "yes", usage=Usage(100, 25, 0, 0, 0))
    async with serving(application([worker], store=store, access=access)) as served:
        ids = [item.key.id for item in made]
        yield Books(served, store, ids, [item.token for item in made], access)
        if access is not None:
            await access.close()


def by_name(page: dict[str, Any]) -> dict[str, float]:
    return {group["name"]: group["total"]["cost_usd"] for group in page["groups"]}


async def test_without_keys_what_was_spent_is_what_runs_cost(tmp_path: Path) -> None:
    async with books(tmp_path) as at:
        await at.served.ask()
        await at.served.ask()
        page = await at.spend(by="tier")
        today = datetime.now(UTC).date().isoformat()
        assert (page["to"], page["key"]) == (today, None)
        assert page["total"]["requests"] == 2
        assert page["total"]["cost_usd"] == pytest.approx(0.25)
        assert by_name(page) == pytest.approx({"podium": 0.25})
        by_key = await at.spend(by="key")
        assert [(group["name"], group["key_name"]) for group in by_key["groups"]] == [("", None)]
        workers = await at.spend(by="worker")
        assert by_name(workers) == pytest.approx({"ada": 0.25})
        assert workers["unattributed_usd"] == pytest.approx(0.0)


async def test_sums_are_those_of_the_keys_books_whatever_became_of_the_runs(
    tmp_path: Path,
) -> None:
    async with books(tmp_path, Rules(), ADMIN) as at:
        headers = {"Authorization": f"Bearer {at.tokens[0]}"}
        client = at.served.client
        for body in ({}, {"store": False}, {"model": "ada"}):
            answer = await client.post("/v1/chat/completions", json={"ask": "Why?", **body},
                                       headers=headers)  # fmt: skip
            assert answer.status_code == 200
        assert at.access is not None
        await at.access._usage.write()
        used = await at.store.keys.usage(key_id=at.ids[0])
        own = await at.spend(at.tokens[0], by="key")
        assert own["total"]["requests"] == sum(usage.requests for usage in used) == 3
        assert own["total"]["cost_usd"] == pytest.approx(sum(usage.cost_usd for usage in used))
        assert own["groups"][0]["key_name"] == "key 0"
        every = await at.spend(at.tokens[1], by="tier")
        assert by_name(every) == pytest.approx({"podium": 0.25, "gateway": 0.125})
        workers = await at.spend(at.tokens[1], by="worker")
        assert by_name(workers) == pytest.approx({"ada": 0.25})
        assert workers["unattributed_usd"] == pytest.approx(0.125)  # of the run that was not kept


async def test_a_key_sees_nothing_of_what_others_spent(tmp_path: Path) -> None:
    async with books(tmp_path, Rules(), ADMIN) as at:
        used = KeyUsage(key_id=at.ids[1], day=DAY, model="podium", requests=1, cost_usd=5.0)
        run = run_with_calls("run_0000000000000001", (SOLVE, (attempt("ada"),)))
        await at.store.keys.quotas.record([used])
        await at.store.finish(run)
        for by in ("key", "tier", "worker", "day"):
            page = await at.spend(at.tokens[0], by=by, **RANGE)
            assert (page["total"]["requests"], page["groups"]) == (0, [])
        page = await at.spend(at.tokens[1], by="key", **RANGE)
        assert by_name(page) == {at.ids[1]: 5.0, "": 0.25}


async def test_unknown_costs_are_counted(tmp_path: Path) -> None:
    async with books(tmp_path) as at:
        await at.store.finish(
            run_with_calls("run_0000000000000001", (SOLVE, (attempt("ada"),))),
            run_with_calls("run_0000000000000002", (SOLVE, (attempt("ada", cost=None),))),
        )
        page = await at.spend(by="worker", **RANGE)
        assert (page["total"]["cost_usd"], page["total"]["unknown_cost_count"]) == (0.25, 1)
        assert page["groups"][0]["total"]["unknown_cost_count"] == 1
        assert page["groups"][0]["days"][0]["day"] == DAY


async def test_days_outside_the_range_do_not_count(tmp_path: Path) -> None:
    async with books(tmp_path) as at:
        await at.store.finish(
            run_with_calls("run_0000000000000001", (SOLVE, (attempt("ada"),))),
            run_with_calls("run_0000000000000002", (SOLVE, ()), created_at=timestamp()),
        )
        page = await at.spend(**{"from": DAY, "to": DAY, "by": "day"})
        assert by_name(page) == {DAY: 0.25}


async def test_the_rest_is_never_less_than_nothing(tmp_path: Path) -> None:
    async with books(tmp_path, ADMIN) as at:
        steps = (SOLVE, (attempt("ada"),))
        of_a_key = replace(run_with_calls("run_0000000000000001", steps), owner=at.ids[0])
        await at.store.finish(of_a_key)  # and nothing in the key's book
        page = await at.spend(at.tokens[0], by="worker", **RANGE)
        assert (page["total"]["cost_usd"], by_name(page)) == (0.0, {"ada": 0.25})
        assert page["unattributed_usd"] == 0.0


async def test_one_damaged_run_is_left_out_of_what_workers_cost(tmp_path: Path) -> None:
    async with books(tmp_path) as at:
        whole, damaged = "run_0000000000000001", "run_0000000000000002"
        steps = (SOLVE, (attempt("ada"),))
        await at.store.finish(run_with_calls(whole, steps), run_with_calls(damaged, steps))
        with sqlite3.connect(tmp_path / "podium.db") as database:  # which leaves the steps
            database.execute("DELETE FROM rounds WHERE run_id = ?", [damaged])
        database.close()
        page = await at.spend(by="worker", **RANGE)
        assert page["runs"] == {"counted": 1, "is_complete": True, "unreadable_runs": 1}
        own = await at.served.client.get(f"/v1/runs/{damaged}")
        assert "cannot read this run" in own.text


async def test_the_worker_header_needs_a_key_that_may_read_runs(tmp_path: Path) -> None:
    rules = Rules(scopes=frozenset[Scope]({"ask"}))
    async with books(tmp_path, rules) as at:
        assert (await at.spend(at.tokens[0]))["key"] == "key 0"
        headers = {"Authorization": f"Bearer {at.tokens[0]}"}
        refused = await at.served.client.get("/v1/spend?by=worker", headers=headers)
        assert refused.status_code == 403


@pytest.mark.parametrize(
    "query",
    [
        "from=2026-03-02&to=2026-03-01",
        "from=2020-01-01&to=2026-01-01",
        "from=soon",
        "by=colour",
        "from=9999-12-30&to=9999-12-31",
        "to=9999-12-31&by=worker",
        "to=0001-01-05",
    ],
)
async def test_a_range_that_cannot_be_is_refused(query: str, tmp_path: Path) -> None:
    async with books(tmp_path) as at:
        assert (await at.served.client.get(f"/v1/spend?{query}")).status_code == 400


async def test_cost_of_the_best_worker_alone_is_estimated(tmp_path: Path) -> None:
    checked = Step("ada", "Check it.", (0,))
    first, last = attempt("ada", cost=0.5), attempt("ada", cost=0.25)
    first = replace(first, usage=Usage(100, 10, 0, 0, 0))
    last = replace(last, usage=Usage(300, 40, 0, 0, 0))
    at = f"{DAY}T12:00:00.000+00:00"
    steps = (SOLVE, (first,)), (checked, (last,))
    known = run_with_calls("run_1", *steps, created_at=at)
    known = replace(known, answer=known.steps[-1].reply)
    unpriced = run_with_calls("run_2", (SOLVE, (attempt("ada", cost=None),)), created_at=at)
    async with books(tmp_path) as kept:
        await kept.store.finish(known, unpriced)
        page = (await kept.served.client.get("/v1/spend/single-worker", params=RANGE)).json()
    assert page["worker"] == "ada"
    assert (page["runs"], page["skipped_runs"], page["is_complete"]) == (1, 1, True)
    assert page["cost_usd"] == pytest.approx(0.75)
    assert page["single_worker_usd"] == pytest.approx((100 + 40) * 1000 / 1e6)
