from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from podium.conductor import ModelConductor
from podium.providers import ScriptedWorker
from podium.request import Reply, Request
from podium.server.dialects.chat import CHAT
from podium.server.dialects.messages import MESSAGES
from podium.usage import Price
from support.serving import application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
PRICE = Price(input=1.0, output=10.0)


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker(name, "yes", price=PRICE) for name in ("one", "two")]


async def test_a_plan_is_shown_with_what_it_would_cost_and_nothing_is_carried_out() -> None:
    pool = workers()
    async with serving(application(pool, dialects=REAL)) as served:
        response = await served.client.post("/v1/plan", json={"question": "Compare them."})
    shown = response.json()
    assert response.status_code == 200
    assert [step["worker"] for step in shown["workflow"]["steps"]] == ["two", "two", "one"]
    assert shown["shape"] == "fan-out/join"
    assert shown["planning"] == {
        "calls": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_usd": 0.0,
    }
    estimate = shown["estimate"]
    assert estimate["calls"] == 3
    assert estimate["output_tokens"] == 3 * estimate["assumed_output_tokens_a_step"]
    known = (estimate["input_tokens"] * 1.0 + estimate["output_tokens"] * 10.0) / 1e6
    assert estimate["cost_usd"] == pytest.approx(known)
    assert not any(worker.calls for worker in pool)


async def test_planning_by_a_model_is_told_and_counted() -> None:
    planner = ScriptedWorker(
        "planner",
        '{"steps": [{"worker": "one", "subtask": "Answer", "access": []}]}',
        price=PRICE,
    )
    app = application(workers(), conductor=ModelConductor(planner), dialects=REAL)
    async with serving(app) as served:
        shown = (await served.client.post("/v1/plan", json={"question": "Why?"})).json()
    assert shown["planning"]["calls"] == 1
    assert shown["planning"]["cost_usd"] > 0


async def test_a_plan_takes_what_a_chat_takes() -> None:
    body = {
        "model": "podium-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }
    async with serving(application(workers(), dialects=REAL)) as served:
        shown = (await served.client.post("/v1/plan", json=body)).json()
    assert (shown["question"], shown["shape"]) == ("Hi", "one-shot")


async def test_an_unknown_price_is_an_unknown_cost() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")], dialects=REAL)) as served:
        shown = (await served.client.post("/v1/plan", json={"question": "Why?"})).json()
    assert shown["estimate"]["cost_usd"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "model"),
        ({"question": 3}, "messages.0.content"),
        ({"question": "Why?", "messages": []}, "question"),
        ({"question": "Why?", "model": "one"}, "model"),
        ({"question": "Why?", "podium": {"workflow": {"steps": []}}}, "podium.workflow"),
        ({"question": "Why?", "podium": {"rounds": 0}}, "podium.rounds"),
    ],
)
async def test_what_cannot_be_planned_is_refused(body: dict[str, Any], field: str) -> None:
    async with serving(application(workers(), dialects=REAL)) as served:
        response = await served.client.post("/v1/plan", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


async def test_tokens_are_counted_as_podium_estimates_them() -> None:
    body = {"model": "podium", "messages": [{"role": "user", "content": "x" * 300}]}
    async with serving(application(workers(), dialects=REAL)) as served:
        path = "/v1/messages/count_tokens"
        counted = await served.client.post(path, json=body)
        assert counted.json() == {"input_tokens": 101}
        wrong = await served.client.post(path, json={**body, "model": "none"})
        assert wrong.status_code == 404
        assert wrong.json()["type"] == "error"


async def test_a_client_that_goes_away_stops_the_planning() -> None:
    stopped = asyncio.Event()
    begun = asyncio.Event()

    class Slow(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            raise AssertionError("it waits for ever")

    app = application(workers(), conductor=ModelConductor(Slow("planner", "")), dialects=REAL)
    async with serving(app) as served:
        sent: list[Message] = [{"type": "http.request", "body": b'{"question": "Why?"}'}]
        gone = asyncio.Event()

        async def receive() -> Message:
            if sent:
                return sent.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            pass

        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/plan"}
        scope |= {"headers": [], "query_string": b"", "root_path": ""}
        asking = asyncio.create_task(served.app(scope, receive, send))
        async with asyncio.timeout(5):
            await begun.wait()
            gone.set()
            await asking
    assert stopped.is_set()
