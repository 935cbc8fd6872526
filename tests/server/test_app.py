from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from podium.config import ServerSettings
from podium.core.errors import ConfigError, Unavailable
from podium.core.request import Price
from podium.server.dialects.request import ApiRequest, ApiResponse
from podium.server.logs import JsonLogFormatter, TextLogFormatter
from podium.store.base import MAX_ANSWER, MAX_COMMENT
from podium.workers import ScriptedWorker
from support.plain_dialect import PlainDialect, lines
from support.serving import PLAIN, application, serving


async def test_a_tier_answers_with_a_run() -> None:
    worker = ScriptedWorker("solo", "forty two")
    async with serving(application([worker])) as served:
        response = await served.ask("What is it?", model="podium-ultra")
    assert response.status_code == 200
    assert response.json()["text"] == "forty two"
    assert response.json()["model"] == "podium-ultra"
    assert response.headers["x-podium-run"] == response.json()["id"]


async def test_a_worker_answers_by_its_own_name_without_a_run() -> None:
    workers = [ScriptedWorker("one", "first"), ScriptedWorker("two", "second")]
    async with serving(application(workers)) as served:
        response = await served.ask(model="two")
    assert response.json()["text"] == "second"
    assert response.json()["output"] == 1
    assert "x-podium-run" not in response.headers


async def test_an_embedders_middleware_sees_questions_too() -> None:
    seen: list[str] = []
    app = application([ScriptedWorker("solo", "forty two")])

    @app.middleware("http")
    async def watch(request: Request, go_on: RequestResponseEndpoint) -> Response:
        seen.append(request.url.path)
        return await go_on(request)

    async with serving(app) as served:
        response = await served.ask(model="solo")
    assert response.json()["text"] == "forty two"
    assert seen == [PLAIN]


async def test_before_the_server_is_ready_a_question_is_refused_in_its_dialect() -> None:
    app = application([ScriptedWorker("solo", "forty two")])
    async with serving(app) as served:
        service, app.state.holder.service = app.state.holder.service, None
        response = await served.ask(model="solo")
        app.state.holder.service = service
    assert response.status_code == 503
    assert "the server is starting" in response.text


async def test_a_stream_sends_text_as_it_comes_and_ends_with_usage() -> None:
    async with serving(application([ScriptedWorker("solo", "forty two")])) as served:
        response = await served.ask(model="podium-ultra", stream=True)
        plain = await served.ask(model="solo", stream=True)
    events = lines(response.content)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[0] == ["begin", response.headers["x-podium-run"]]
    assert events[1:] == [["text", "forty"], ["text", " two"], ["end", "stop", 2]]
    assert lines(plain.content)[1:] == events[1:]


async def test_progress_is_reported_only_where_reasoning_is_shown() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        silent = lines((await served.ask(model="podium-ultra", stream=True)).content)
        talkative = lines(
            (await served.ask(model="podium-ultra", stream=True, reasoning=True)).content
        )
    assert not [item for item in silent if item[0] == "progress"]
    progress = [item[1] for item in talkative if item[0] == "progress"]
    assert progress[0] == "Planned one step for solo."


async def test_a_worker_that_never_answers_is_an_error_with_a_status_of_its_own() -> None:
    worker = ScriptedWorker("solo", Unavailable("no connection"))
    async with serving(application([worker])) as served:
        for model in ("podium-ultra", "solo"):
            for stream in (False, True):
                response = await served.ask(model=model, stream=stream)
                assert response.status_code == 502
                assert response.json()["refused"] == "upstream"
                assert "no connection" in response.json()["message"]


async def test_body_errors_are_reported_in_the_dialect() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        unknown = await served.ask(model="podium-ultar")
        assert unknown.status_code == 404
        assert unknown.json()["field"] == "model"
        assert "podium-ultra" in unknown.json()["message"]
        not_json = await served.client.post(PLAIN, content=b"{nope")
        assert (not_json.status_code, not_json.json()["refused"]) == (400, "invalid")
        a_list = await served.client.post(PLAIN, json=[1])
        assert a_list.status_code == 400
        missing = await served.client.post(PLAIN, json={"model": "podium"})
        assert missing.json()["field"] == "ask"


async def test_addresses_and_methods_that_there_are_not_are_reported_in_the_dialect_too() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        nowhere = await served.client.get("/v1/nowhere", headers={"Accept": "*/*"})
        assert (nowhere.status_code, nowhere.json()["refused"]) == (404, "not_found")
        browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        opened = await served.client.get("/nothing", headers=browser)
        assert (opened.status_code, opened.headers["content-type"]) == (
            404,
            "text/html; charset=utf-8",
        )
        again = await served.client.get(
            "/nothing", headers={**browser, "If-None-Match": opened.headers["etag"]}
        )
        assert again.status_code == 404, "what there is not has not stayed the same"
        assert opened.text == (await served.client.get("/", headers=browser)).text
        posted = await served.client.post("/nothing", headers=browser)
        assert (posted.status_code, posted.json()["refused"]) == (404, "not_found")
        method = await served.client.put(PLAIN)
        assert (method.status_code, method.json()["refused"]) == (405, "invalid")


async def test_a_websocket_request_gets_an_error_that_names_plain_http() -> None:
    wanted = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        answer = await served.client.get(PLAIN, headers=wanted)
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "HTTP/1.1")
    assert answer.json()["refused"] == "invalid"


async def test_the_server_says_that_it_lives_and_is_ready() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        assert (await served.client.get("/healthz")).json()["status"] == "alive"
        assert (await served.client.get("/readyz")).json() == {"status": "ready"}


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/solo", "/health", "/healthz", "/readyz"]
)
async def test_get_endpoints_answer_head_without_a_body(path: str) -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        whole = await served.client.get(path)
        head = await served.client.head(path)
    assert (whole.status_code, head.status_code, head.content) == (200, 200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


async def test_every_origin_may_use_a_server_only_where_keys_are_required() -> None:
    with pytest.raises(ConfigError, match="requires API keys"):
        async with serving(
            application([ScriptedWorker("solo", "yes")], settings=ServerSettings(cors=("*",)))
        ):
            pass


@pytest.mark.parametrize("origin", ["localhost:3000", "http://a.example/", "http://*", "null", ""])
def test_an_origin_has_scheme_and_host_and_no_path(origin: str) -> None:
    with pytest.raises(ValueError, match="cors"):
        ServerSettings(cors=(origin,))


async def test_models_are_listed_in_either_vendors_shape() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        listed = (await served.client.get("/v1/models")).json()
        names = [item["id"] for item in listed["data"]]
        assert names == ["podium-mini", "podium", "podium-ultra", "solo"]
        other = await served.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
        assert [item["id"] for item in other.json()["data"]] == names
        assert other.json()["data"][0]["type"] == "model"
        pinned = served.service.catalog.pins["podium-mini"]
        one = await served.client.get(f"/v1/models/{pinned}")
        assert one.json()["id"] == pinned
        assert (await served.client.get("/v1/models/none")).status_code == 404


async def test_the_openapi_page_has_every_endpoint_with_its_body() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        page = (await served.client.get("/openapi.json")).json()
        assert (await served.client.get("/docs")).status_code == 200
    assert {
        "/healthz",
        "/metrics",
        "/readyz",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/plan",
        "/v1/responses/{id}",
        "/v1/runs",
        "/v1/runs/{run_id}",
        "/v1/runs/{run_id}/events",
        "/v1/runs/{run_id}/feedback",
    } <= set(page["paths"])

    def properties_of(path: str) -> Any:
        content = page["paths"][path]["post"]["requestBody"]["content"]
        reference = content["application/json"]["schema"]["$ref"]
        return page["components"]["schemas"][reference.rpartition("/")[2]]["properties"]

    for path in ("/v1/chat/completions", "/v1/messages", "/v1/plan"):
        assert "model" in properties_of(path)
    properties = properties_of("/v1/runs/{run_id}/feedback")
    assert properties["comment"]["maxLength"] == MAX_COMMENT
    assert properties["answer"]["maxLength"] == MAX_ANSWER


async def test_beyond_the_queue_requests_get_a_retry_after() -> None:
    settings = ServerSettings(in_flight=1, queue=0)
    async with serving(application([ScriptedWorker("solo", "yes")], settings=settings)) as served:
        await served.service.limiter.acquire()
        refused = await served.ask()
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "2"
        served.service.limiter.release()
        assert (await served.ask()).status_code == 200


async def test_a_body_that_is_too_large_is_refused() -> None:
    settings = ServerSettings(body_megabytes=1)
    async with serving(application([ScriptedWorker("solo", "yes")], settings=settings)) as served:
        refused = await served.ask("x" * 2**20)
        assert (refused.status_code, refused.json()["refused"]) == (413, "too_large")
        plan = await served.client.post("/v1/plan", json={"question": "x" * 2**20})
        assert plan.status_code == 413


async def test_internal_errors_are_logged_and_sent_in_the_dialect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(PlainDialect):
        def format_response(self, asked: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
            raise ZeroDivisionError

    dialects = {PLAIN: Broken(), "/v1/messages": PlainDialect()}
    app = application([ScriptedWorker("solo", "yes")], dialects=dialects)
    async with serving(app) as served:
        response = await served.ask()
        assert (response.status_code, response.json()["refused"]) == (500, "failed")
        assert "ZeroDivisionError" in caplog.text
        assert served.service.limiter.in_flight == 0


async def test_metrics_count_requests_tokens_and_cost() -> None:
    worker = ScriptedWorker("solo", "forty two", price=Price(input=0, output=1e6))
    async with serving(application([worker])) as served:
        await served.ask(model="solo")
        await served.ask(model="podium-ultra", stream=True)
        await served.ask(model="none")
        page = (await served.client.get("/metrics")).text
    path = f'endpoint="{PLAIN}"'
    assert f'podium_requests_total{{{path},model="solo",status="200"}} 1' in page
    assert f'podium_requests_total{{{path},model="",status="404"}} 1' in page
    assert 'podium_tokens_total{kind="output",model="podium-ultra"} 2' in page
    assert 'podium_cost_usd_total{model="solo"} 2' in page
    assert 'podium_runs_total{status="answered"} 1' in page
    assert "podium_requests_in_flight 0" in page


async def test_a_wrong_address_is_logged_with_what_was_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "podium.server"):
        async with serving(application([ScriptedWorker("solo", "yes")])) as served:
            refused = await served.client.post("/v1/v1/messages", json={"model": "podium"})
    (record,) = [item for item in caplog.records if item.message == "request"]
    line = json.loads(JsonLogFormatter().format(record))
    assert (line["path"], line["status"]) == ("/v1/v1/messages", 404)
    assert line["request_id"] == refused.headers["x-request-id"]
    assert "did you mean /v1/messages?" in line["error_message"]
    shown = TextLogFormatter().format(record)
    assert "  404  /v1/v1/messages  error: not_found: POST /v1/v1/messages: Not Found" in shown


@pytest.mark.parametrize("shown", [False, True])
async def test_the_log_has_no_content_unless_configured(
    shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServerSettings(log_prompts=shown)
    app = application([ScriptedWorker("solo", "the answer")], settings=settings)
    with caplog.at_level("INFO", "podium.server"):
        async with serving(app) as served:
            await served.ask("the question")
    (record,) = [item for item in caplog.records if item.message == "request"]
    line = JsonLogFormatter().format(record)
    assert ("the question" in line) is shown
    assert ("the answer" in line) is shown
    assert '"status": 200' in line
