"""Keys as clients meet them: what is answered, and what is written down of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from podium.conductors import FixedConductor
from podium.core.request import Delta, Price, Reply, Request, Usage
from podium.core.workflow import Step, Workflow
from podium.store.keys import Allowance, Rules
from podium.workers import ScriptedWorker
from server.access.keyed import served_to

PRICE = Price(input=1.0, output=2.0)


def worker() -> ScriptedWorker:
    """A tenth of a dollar a call."""
    return ScriptedWorker("solo", "yes", price=PRICE, usage=Usage(40_000, 30_000, 0, 0, 0))


@pytest.mark.parametrize("token", [None, "Bearer pk_0123_no", "Basic abc", "Bearer "])
async def test_without_a_key_there_is_no_answer(tmp_path: Path, token: str | None) -> None:
    solo = worker()
    async with served_to(Rules(), [solo], None, tmp_path) as (served, _):
        del served.client.headers["Authorization"]
        if token:
            served.client.headers["Authorization"] = token
        response = await served.ask(model="solo")
        listed = await served.client.get("/v1/runs")
        alive = await served.client.get("/healthz")
    assert (response.status_code, response.json()["refused"]) == (401, "unauthenticated")
    assert listed.status_code == 401
    assert alive.status_code == 200
    assert solo.calls == 0


async def test_a_spent_budget_is_402_and_names_the_cap(tmp_path: Path) -> None:
    solo = worker()
    rules = Rules(per_day=Allowance(usd=0.1))
    async with served_to(rules, [solo], None, tmp_path) as (served, _):
        first = await served.ask(model="podium-ultra")
        second = await served.ask(model="podium-ultra")
        gateway = await served.ask(model="solo")
    assert first.status_code == 200
    assert (second.status_code, gateway.status_code) == (402, 402)
    assert (
        "daily budget of key 'Ada' is spent: $0.1 used of $0.1, resets 00:00 UTC"
        in second.json()["message"]
    )
    assert solo.calls == 1


class Chatterbox(ScriptedWorker):
    """Says as much as it may, once all who came at the same time have been asked: 1000 tokens
    are a dollar."""

    def __init__(self) -> None:
        super().__init__("solo", "yes", price=Price(input=0.0, output=1000.0))

    async def reply(self, request: Request) -> Reply:
        for _ in range(50):
            await asyncio.sleep(0)
        assert request.max_tokens is not None, "a cap on money caps what may be said"
        return Reply("yes", Usage(0, min(request.max_tokens, 100), 0, 0, 0))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield await self.reply(request)


TWICE = FixedConductor(Workflow((Step("solo", "First"), Step("solo", "Second", (0,)))))


@pytest.mark.parametrize("model", ["solo", "podium-ultra"])
async def test_a_cap_holds_for_all_that_run_at_once(tmp_path: Path, model: str) -> None:
    rules = Rules(per_day=Allowance(usd=1.0))
    async with served_to(rules, [Chatterbox()], TWICE, tmp_path) as (served, store):
        asked = [served.ask(model=model) for _ in range(30)]
        statuses = [response.status_code for response in await asyncio.gather(*asked)]
        await served.service.access.close()
        (used,) = await store.keys.usage()
    assert 0.9 <= used.cost_usd <= 1.0
    assert set(statuses) == {200, 402}
    assert statuses.count(200) >= 5


async def test_a_run_is_stopped_in_the_middle_when_its_keys_cap_is_reached(tmp_path: Path) -> None:
    rules = Rules(per_day=Allowance(usd=0.15))
    async with served_to(rules, [Chatterbox()], TWICE, tmp_path) as (served, store):
        asked = [served.ask(model="podium-ultra", stream=True) for _ in range(2)]
        answers = [answer.text for answer in await asyncio.gather(*asked)]
        await served.service.access.close()
        (used,) = await store.keys.usage()
        runs = [await store.load(run.id) for run in await served.service.store.list()]
    assert 0.15 - 0.016 < used.cost_usd <= 0.15
    assert sorted(run.status for run in runs) == ["answered", "partial"]
    (stopped,) = (run for run in runs if run.status == "partial")
    assert stopped.error is not None
    assert re.match(
        r"daily budget of key 'Ada' is too small for this call: \$0.1[345]\d* used or reserved of "
        r"\$0.15, resets 00:00 UTC",
        stopped.error,
    )
    assert all('["text", "yes"]' in answer for answer in answers), "the best answer so far"


async def test_too_many_requests_are_429_with_the_time_to_come_back(tmp_path: Path) -> None:
    async with served_to(Rules(requests_per_minute=1), [worker()], None, tmp_path) as (served, _):
        assert (await served.ask(model="solo")).status_code == 200
        response = await served.ask(model="solo")
    assert response.status_code == 429
    assert 50 < float(response.headers["retry-after"]) <= 60


@pytest.mark.parametrize(
    ("rules", "model"),
    [
        (Rules(scopes=frozenset({"ask"})), "solo"),
        (Rules(scopes=frozenset({"gateway"})), "podium"),
        (Rules(tiers=frozenset({"mini"})), "podium-ultra"),
        (Rules(workers=frozenset({"other"})), "solo"),
    ],
)
async def test_forbidden_requests_return_403(tmp_path: Path, rules: Rules, model: str) -> None:
    solo = worker()
    async with served_to(rules, [solo], None, tmp_path) as (served, _):
        response = await served.ask(model=model)
    assert (response.status_code, response.json()["refused"]) == (403, "forbidden")
    assert solo.calls == 0


async def test_usage_is_written_by_model_as_the_worker_reported_it(
    tmp_path: Path,
) -> None:
    async with served_to(Rules(), [worker()], None, tmp_path) as (served, store):
        for model in ("podium-ultra", "podium-ultra", "solo"):
            await served.ask(model=model)
        await served.service.access.close()
        rows = {row.model: row for row in await store.keys.usage()}
    assert set(rows) == {"podium-ultra", "solo"}
    assert (rows["podium-ultra"].requests, rows["solo"].requests) == (2, 1)
    assert (rows["solo"].input_tokens, rows["solo"].output_tokens) == (40_000, 30_000)
    assert rows["podium-ultra"].cost_usd == pytest.approx(0.2)
    assert rows["solo"].unknown_cost_count == 0


async def test_a_failed_request_releases_its_reservation(tmp_path: Path) -> None:
    rules = Rules(per_day=Allowance(tokens=1000))
    async with served_to(rules, [worker()], None, tmp_path) as (served, store):
        for _ in range(5):
            response = await served.ask("word " * 700, model="podium-ultra", podium={"rounds": 0})
            assert response.status_code == 400
        await served.service.access.close()
        assert sum(row.assumed_tokens for row in await store.keys.usage()) == 0


async def test_a_run_belongs_to_the_key_that_asked(tmp_path: Path) -> None:
    async with served_to(Rules(), [worker()], None, tmp_path) as (served, store):
        run_id = (await served.ask(model="podium-ultra")).json()["id"]
        (key,) = await store.keys.keys()
        assert (await served.client.get(f"/v1/runs/{run_id}")).status_code == 200
        run = await store.load(run_id)
    assert run.owner == key.id


ONE_STEP = {"steps": [{"worker": "solo", "subtask": "Answer", "access": []}]}


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (Rules(scopes=frozenset({"ask", "gateway"})), None),
        (Rules(workers=frozenset({"other"})), "podium.workflow"),
        (Rules(exclude=frozenset({"solo"})), "podium.workflow"),
        (Rules(exclude=frozenset({"scripted"})), "podium.workflow"),
        (Rules(scopes=frozenset({"workflow"})), None),
        (Rules(tiers=frozenset({"mini"})), "model"),
    ],
)
async def test_a_workflow_of_ones_own_gets_round_nothing_that_a_key_forbids(
    tmp_path: Path, rules: Rules, field: str | None
) -> None:
    solo, other = worker(), ScriptedWorker("other", "no")
    async with served_to(rules, [solo, other], None, tmp_path) as (served, _):
        response = await served.ask(model="podium-ultra", podium={"workflow": ONE_STEP})
    assert (response.status_code, response.json()["field"]) == (403, field)
    assert solo.calls == 0


async def test_a_callers_workflow_may_use_only_allowed_workers(
    tmp_path: Path,
) -> None:
    rules = Rules(scopes=frozenset({"ask", "workflow"}), workers=frozenset({"solo"}))
    async with served_to(rules, [worker()], None, tmp_path) as (served, _):
        response = await served.ask(model="podium-ultra", podium={"workflow": ONE_STEP})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        (Rules(), 403),
        (Rules(scopes=frozenset({"metrics"})), 200),
        (Rules(scopes=frozenset({"admin"})), 200),
    ],
)
async def test_metrics_are_for_the_operator(tmp_path: Path, rules: Rules, status: int) -> None:
    async with served_to(rules, [worker()], None, tmp_path) as (served, _):
        assert (await served.client.get("/metrics")).status_code == status
