from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from podium.core.pool import Limits, Pool, WorkerProfile
from podium.core.request import Price
from podium.core.run import timestamp
from podium.core.workflow import Step
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.store.keys import Rules, Scope
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.runs_on_record import attempt, run_with_calls
from support.serving import Served, application, serving

ADA = WorkerProfile(
    name="ada",
    provider="openai",
    model="ada-1",
    description="solves",
    price=Price(input=1.0, output=2.0),
    limits=Limits(context_window=8000),
    capabilities=frozenset({"tools", "json"}),
)
BOB = WorkerProfile(name="bob", provider="deepseek")
SOLVE, CHECK = Step("ada", "Solve it.", ()), Step("bob", "Check the answer.", "all")


@asynccontextmanager
async def open_pool(
    directory: Path, *rules: Rules
) -> AsyncIterator[tuple[Served, SqlRunStore, list[str]]]:
    """A server over ada and bob; with rules, one that asks for keys, and their tokens."""
    store = await SqlRunStore.open(directory / "podium.db")
    made = [make_key(f"key {number}", item) for number, item in enumerate(rules)]
    for item in made:
        await store.keys.add(item.key)
    access = KeyAuthenticator(store.keys, Pool((ADA, BOB))) if rules else None
    workers = [ScriptedWorker(profile, "yes") for profile in (ADA, BOB)]
    async with serving(application(workers, store=store, access=access)) as served:
        yield served, store, [item.token for item in made]


async def pool_of(served: Served, token: str = "", **query: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    response = await served.client.get("/v1/pool", params=query or None, headers=headers)
    assert response.status_code == 200, response.text
    page: dict[str, Any] = response.json()
    return page


async def test_a_worker_without_a_call_is_described_and_its_figures_are_unknown(
    tmp_path: Path,
) -> None:
    async with open_pool(tmp_path) as (served, _, _):
        page = await pool_of(served)
    ada = page["workers"][0]
    assert (ada["model"], ada["capabilities"]) == ("ada-1", ["json", "tools"])
    assert ada["price"]["output"] == 2.0
    assert ada["limits"]["context_window"] == 8000
    assert page["workers"][1]["price"] is None
    assert (ada["health"]["state"], ada["share"], ada["error_rate"]) == ("unknown", None, None)
    assert ada["seconds"] == {"p50": None, "p95": None}
    assert page["window"] | {"from": "", "to": ""} == {
        "from": "", "to": "", "days": 7, "runs": 0, "is_complete": True, "unreadable_runs": 0
    }  # fmt: skip


async def test_figures_are_those_of_the_stored_runs_with_steps_to_look_at(tmp_path: Path) -> None:
    run = run_with_calls(
        "run_0000000000000001",
        (SOLVE, (attempt("ada", 2.0),)),
        (CHECK, (attempt("bob", 1.0, error="HTTP 500"),)),
        created_at=timestamp(),
    )
    old = run_with_calls("run_0000000000000002", (SOLVE, (attempt("ada", 60.0),)))
    async with open_pool(tmp_path) as (served, store, _):
        await store.finish(run, old)
        page = await pool_of(served)
    ada, bob = page["workers"]
    assert (ada["calls"], ada["share"], ada["seconds"]["p50"]) == (1, 0.5, 2.0)
    assert (bob["error_rate"], bob["health"]["state"]) == (1.0, "failing")
    assert bob["health"]["last_error"] == "HTTP 500"
    assert bob["roles"] == [
        {
            "role": "verify",
            "steps": 1,
            "examples": [{"run_id": run.id, "round": 0, "step": 1, "subtask": "Check the answer."}],
        }
    ]


async def test_workers_that_left_the_pool_are_listed_separately(tmp_path: Path) -> None:
    run = run_with_calls(
        "run_0000000000000001",
        (Step("eve", "Solve it.", ()), (attempt("eve"),)),
        created_at=timestamp(),
        providers={"eve": "mistral"},
    )
    async with open_pool(tmp_path) as (served, store, _):
        await store.finish(run)
        page = await pool_of(served)
    assert [(item["name"], item["provider"]) for item in page["removed_workers"]] == [
        ("eve", "mistral")
    ]
    assert [item["name"] for item in page["workers"]] == ["ada", "bob"]


async def test_requests_for_a_worker_by_its_name_are_counted_since_the_server_started(
    tmp_path: Path,
) -> None:
    async with open_pool(tmp_path) as (served, _, _):
        await served.ask(model="ada")
        page = await pool_of(served)
    requests = [item["gateway_requests"]["requests"] for item in page["workers"]]
    assert requests == [1, 0]


@pytest.mark.parametrize("excluded", ["bob", "deepseek"])
async def test_a_key_does_not_see_excluded_workers(excluded: str, tmp_path: Path) -> None:
    rules = Rules(exclude=frozenset({excluded}))
    run = run_with_calls(
        "run_0000000000000001",
        (Step("eve", "Solve it.", ()), (attempt("eve"),)),
        created_at=timestamp(),
        providers={"eve": "deepseek"},
    )
    async with open_pool(tmp_path, rules) as (served, store, (token,)):
        await store.finish(run)
        page = await pool_of(served, token)
    assert [item["name"] for item in page["workers"]] == ["ada"]
    assert page["removed_workers"] == []


async def test_a_key_sees_figures_of_its_own_runs_and_admin_all(tmp_path: Path) -> None:
    admin = Rules(scopes=frozenset[Scope]({"admin"}))
    async with open_pool(tmp_path, Rules(), admin) as (served, store, (token, master)):
        run = run_with_calls(
            "run_0000000000000001", (SOLVE, (attempt("ada"),)), created_at=timestamp()
        )
        await store.finish(run)
        own, every = await pool_of(served, token), await pool_of(served, master)
    assert (own["key"], own["window"]["runs"], own["workers"][0]["calls"]) == ("key 0", 0, 0)
    assert own["workers"][0]["gateway_requests"] is None
    assert (every["key"], every["window"]["runs"]) == (None, 1)


async def test_the_pool_takes_a_key_that_may_read_runs(tmp_path: Path) -> None:
    rules = Rules(scopes=frozenset[Scope]({"ask"}))
    async with open_pool(tmp_path, rules) as (served, _, (token,)):
        headers = {"Authorization": f"Bearer {token}"}
        assert (await served.client.get("/v1/pool")).status_code == 401
        assert (await served.client.get("/v1/pool", headers=headers)).status_code == 403


@pytest.mark.parametrize("days", ["0", "91", "x"])
async def test_a_window_that_cannot_be_is_refused(days: str, tmp_path: Path) -> None:
    async with open_pool(tmp_path) as (served, _, _):
        assert (await served.client.get(f"/v1/pool?days={days}")).status_code == 400


async def test_the_best_worker_is_the_most_expensive_that_the_key_allows(tmp_path: Path) -> None:
    rules = (
        Rules(scopes=frozenset({"admin"})),
        Rules(exclude=frozenset({"openai"})),
        Rules(exclude=frozenset({"openai", "deepseek"})),
    )
    async with open_pool(tmp_path, *rules) as (served, _, tokens):
        assert [(await pool_of(served, token))["best"] for token in tokens] == ["ada", "bob", None]
