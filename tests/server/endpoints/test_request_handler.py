"""What is done around an answer: its line in the log, its numbers, and the trace if one is asked
for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from starlette.types import Message

from podium.core.request import Delta, Reply, Request
from podium.workers import ScriptedWorker
from support.serving import PLAIN, Served, application, serving


class Endless(ScriptedWorker):
    """Says something, and never comes to an end."""

    def __init__(self) -> None:
        super().__init__("solo", "")
        self.asked = asyncio.Event()

    async def reply(self, request: Request) -> Reply:
        self.asked.set()
        return await asyncio.Event().wait()  # type: ignore[return-value] # never

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("on and on")
        self.asked.set()
        await asyncio.Event().wait()


async def logged(
    caplog: pytest.LogCaptureFixture, served: Served, **body: Any
) -> tuple[dict[str, Any], httpx.Response]:
    """What the log says of a request, and what was answered."""
    caplog.clear()
    with caplog.at_level("INFO", "podium.server"):
        response = await served.ask(**body)
    (record,) = [item for item in caplog.records if item.message == "request"]
    return vars(record), response


async def test_the_log_names_the_run_where_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        tier, answer = await logged(caplog, served, model="podium")
        gateway, _ = await logged(caplog, served, model="solo")
    assert (tier["run"], tier["run_status"]) == (answer.json()["id"], "answered")
    assert "run" not in gateway, "a worker that is called by its name makes no run"
    assert gateway["output_tokens"] == 1


async def test_the_error_id_sent_to_the_client_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        line, response = await logged(caplog, served, model="nobody")
    assert line["request_id"] == response.headers["x-request-id"] == response.headers["request-id"]
    assert line["request_id"].startswith("req_")
    assert (line["model"], line["error_reason"]) == ("nobody", "not_found")
    assert line["error_message"] in response.text


async def test_a_client_that_goes_away_in_the_middle_of_a_stream_leaves_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard, sent = asyncio.Event(), [b'{"ask": "Why?", "model": "podium-mini", "stream": true}']

    async def receive() -> Message:
        if sent:
            return {"type": "http.request", "body": sent.pop()}
        await heard.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b"on and on" in message.get("body", b""):
            heard.set()

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": PLAIN, "headers": []}
    async with serving(application([Endless()])) as served:
        with caplog.at_level("INFO", "podium.server"):
            await asyncio.wait_for(served.app(scope, receive, send), 5)
        page = (await served.client.get("/metrics")).text
    (record,) = [item for item in caplog.records if item.message == "request"]
    line = vars(record)
    assert (line["status"], line["disconnected"], line["run_status"]) == (499, True, "interrupted")
    assert line["run"].startswith("run_")
    assert 'podium_runs_total{status="interrupted"} 1' in page


async def stopped_while(worker: Endless, **body: Any) -> tuple[httpx.Response, str]:
    """What a client gets whose server stops while it answers, and the page of metrics."""
    async with serving(application([worker])) as served:
        asking = asyncio.create_task(served.ask(**body))
        async with asyncio.timeout(5):
            await worker.asked.wait()
            asking.cancel()
            response = await asking
        return response, (await served.client.get("/metrics")).text


async def test_a_server_that_stops_says_so_in_the_dialect_and_names_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "podium.server"):
        response, page = await stopped_while(Endless(), model="podium")
    run = response.headers["x-podium-run"]
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert "the server stopped" in response.text
    assert run in response.text
    assert [item.exc_info for item in caplog.records if item.exc_info] == []
    assert 'podium_runs_total{status="interrupted"} 1' in page


async def test_a_server_that_stops_ends_a_stream_with_the_dialects_error() -> None:
    response, _ = await stopped_while(Endless(), model="podium-mini", stream=True)
    assert (response.status_code, "x-podium-run" in response.headers) == (200, True)
    assert "on and on" in response.text
    assert response.text.splitlines()[-1] == '["fail", "overloaded"]'


async def test_a_run_that_is_not_kept_is_not_named_when_the_server_stops() -> None:
    response, _ = await stopped_while(Endless(), model="podium", store=False)
    assert response.status_code == 503
    assert "x-podium-run" not in response.headers
    assert "run_" not in response.text


@pytest.mark.parametrize(
    ("value", "body"),
    [("1", {"stream": True}), ("1", {"model": "solo"}), ("yes", {}), ("", {})],
)
async def test_a_trace_that_cannot_come_is_refused(value: str, body: dict[str, Any]) -> None:
    solo = ScriptedWorker("solo", "yes")
    async with serving(application([solo])) as served:
        headers = {"X-Podium-Include-Run": value}
        response = await served.client.post(PLAIN, json={"ask": "Why?", **body}, headers=headers)
    assert (response.status_code, response.json()["field"]) == (400, "X-Podium-Include-Run")
    assert solo.calls == 0
