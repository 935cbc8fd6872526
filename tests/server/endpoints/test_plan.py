from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from podium.conductors import ModelConductor
from podium.config import ServerSettings
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import PlanError
from podium.core.request import Price, Reply, Request, Usage, user
from podium.core.worker import Caller
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.workers import ScriptedWorker
from support.serving import Served, application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
PRICE = Price(input=1.0, output=10.0)


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker(name, "yes", price=PRICE) for name in ("one", "two")]


async def test_a_plan_is_shown_with_its_estimated_cost_and_nothing_is_executed() -> None:
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
    assert estimate["output_tokens"] == 3 * estimate["assumed_output_tokens_per_step"]
    known = (estimate["input_tokens"] * 1.0 + estimate["output_tokens"] * 10.0) / 1e6
    assert estimate["cost_usd"] == pytest.approx(known)
    assert not any(worker.calls for worker in pool)


async def test_planning_by_a_model_is_reported_and_counted() -> None:
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
async def test_unplannable_requests_are_refused(body: dict[str, Any], field: str) -> None:
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


class GoesAway:
    """A client that requests a plan, and disconnects on demand."""

    def __init__(self, body: bytes = b'{"question": "Why?"}') -> None:
        self.gone = asyncio.Event()
        self._sent: list[Message] = [{"type": "http.request", "body": body}]

    async def __call__(self, served: Served) -> None:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/plan"}
        scope |= {"headers": [], "query_string": b"", "root_path": ""}
        await served.app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._sent:
            return self._sent.pop()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        pass


async def test_a_client_that_goes_away_stops_the_planning_and_pays_for_what_it_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped, begun = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            if not self.calls:
                return await super().reply(request)
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            raise AssertionError("it waits for ever")

    planner = Slow("planner", "no plan", price=PRICE, usage=Usage(100, 50, 0, 0, 0))
    app = application(workers(), conductor=ModelConductor(planner), dialects=REAL)
    client = GoesAway()
    async with serving(app) as served:
        with caplog.at_level("INFO", "podium.server"):
            asking = asyncio.create_task(client(served))
            async with asyncio.timeout(5):
                await begun.wait()
                client.gone.set()
                await asking
        page = (await served.client.get("/metrics")).text
    assert stopped.is_set()
    (line,) = (item for item in caplog.records if item.message == "request")
    said = vars(line)
    assert (said["path"], said["status"], said["disconnected"]) == ("/v1/plan", 499, True)
    assert said["cost_usd"] is None, "what the call that was stopped took, nobody said"
    assert 'podium_requests_total{endpoint="/v1/plan",model="podium-ultra",status="499"} 1' in page


async def test_failed_planning_is_charged() -> None:
    planner = ScriptedWorker("planner", "no plan", price=PRICE, usage=Usage(100, 50, 0, 0, 0))

    class GivesUp(Conductor):
        name = "gives up"

        async def plan(self, context: PlanningContext, call: Caller) -> Plan:
            await call(planner, Request((user(context.question),)))
            raise PlanError("there is no plan for this")

    app = application(workers(), conductor=GivesUp(), dialects=REAL)
    async with serving(app) as served:
        response = await served.client.post("/v1/plan", json={"question": "Why?"})
        page = (await served.client.get("/metrics")).text
    assert response.status_code == 400
    assert 'podium_tokens_total{kind="input",model="podium-ultra"} 100' in page


async def test_a_plan_waits_for_its_place_and_is_logged_as_everything_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = application(workers(), dialects=REAL, settings=ServerSettings(in_flight=1, queue=0))
    async with serving(app) as served:
        await served.service.limiter.acquire()
        with caplog.at_level("INFO", "podium.server"):
            full = await served.client.post("/v1/plan", json={"question": "Why?"})
        served.service.limiter.release()
        assert (await served.client.post("/v1/plan", json={"question": "Why?"})).status_code == 200
        assert served.service.limiter.in_flight == 0
    assert full.status_code == 503
    (line,) = (item for item in caplog.records if item.message == "request")
    assert vars(line)["error_reason"] == "overloaded"
