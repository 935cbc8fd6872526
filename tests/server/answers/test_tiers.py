from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor, ModelConductor
from podium.core.budget import Budget
from podium.core.errors import (
    Conflict,
    PromptTooLong,
    RequestRefused,
    RunTakenOver,
    Unavailable,
)
from podium.core.events import RunDone
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Price, Reply, Request, ToolCall, ToolResult, Usage
from podium.core.run import Run
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Options
from podium.server.access import AccessPolicy, Principal
from podium.server.access.policy import RequestQuota
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.responses import RESPONSES
from podium.store import open_store
from podium.workers import ScriptedWorker
from support.conformance import run_of
from support.serving import PLAIN, Served, application, serving

REAL = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def chat(*messages: dict[str, Any], **body: Any) -> dict[str, Any]:
    return {"model": "podium-ultra", "messages": list(messages), **body}


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def looker(name: str = "looker", price: Price | None = None) -> ScriptedWorker:
    """Looks first, and then says what it saw."""
    profile = WorkerProfile(name=name, capabilities=frozenset({"tools"}), price=price)

    def script(request: Request) -> Reply | str:
        results = [p for m in request.messages for p in m.parts if p.kind == "tool_result"]
        if results:
            return f"I saw {results[-1].text}"
        return Reply("", Usage(5, 7, 0, 0, 0), "tool", (ToolCall("c1", "look", "{}"),))

    return ScriptedWorker(profile, script)


class ByToken(AccessPolicy):
    """Accepts any token."""

    def __init__(self) -> None:
        self.settled: list[tuple[str, dict[str, Any]]] = []

    async def authenticate(self, token: str | None, address: str = "") -> Principal:
        return Principal(key_id=f"key_{token}", name=token or "", scopes=frozenset({"ask"}))

    async def settle(self, principal: Principal, **used: Any) -> None:
        self.settled.append((principal.key_id, used))


async def the_call(served: Served, **body: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ask with a tool: the answer, and its one message, which calls it."""
    asked = chat(said("What is there?"), tools=[TOOL], **body)
    response = await served.client.post(PLAIN, json=asked, headers={"authorization": "bearer a"})
    assert response.status_code == 200, response.text
    answer = response.json()
    message = answer["choices"][0]["message"]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    return answer, message


def with_result(message: dict[str, Any], text: str = "a cat", **body: Any) -> dict[str, Any]:
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": text}
    return chat(said("What is there?"), message, result, tools=[TOOL], **body)


@pytest.mark.parametrize("store", [True, False])
async def test_results_of_tools_go_on_with_the_very_run(store: bool, tmp_path: Path) -> None:
    worker, access = looker(), ByToken()
    app = application(
        [worker], access=access, dialects=REAL, store=await open_store(tmp_path / "runs.db")
    )
    async with serving(app) as served:
        first, message = await the_call(served, store=store)
        again = with_result(message, store=store)
        response = await served.client.post(
            PLAIN, json=again, headers={"authorization": "bearer a"}
        )
        answer = response.json()
        kept = (await served.service.store.list())[0:1]
    assert answer["choices"][0]["message"]["content"] == "I saw a cat"
    assert run_of(answer["id"]) == run_of(first["id"])
    assert worker.calls == 2, "nothing was asked twice"
    used = [used["cost"].usage.output_tokens for _, used in access.settled]
    assert used == [7, 4], "each request is billed for what it added"
    assert answer["usage"]["completion_tokens"] == 4
    assert [run.status for run in kept] == (["answered"] if store else [])


async def test_a_run_continues_within_what_its_key_has_left_by_then(tmp_path: Path) -> None:
    class NoCallsLeft(RequestQuota):
        def narrow(self, budget: Budget) -> Budget:
            return replace(budget, calls=0)

    class NearlySpent(ByToken):
        async def reserve(self, principal: Principal, **asked: Any) -> Principal:
            return replace(principal, quota=NoCallsLeft()) if self.settled else principal

    worker = looker()
    app = application(
        [worker], access=NearlySpent(), dialects=REAL, store=await open_store(tmp_path / "runs.db")
    )
    async with serving(app) as served:
        _, message = await the_call(served)
        headers = {"authorization": "bearer a"}
        refused = await served.client.post(PLAIN, json=with_result(message), headers=headers)
    assert refused.status_code == 402
    assert worker.calls == 1


async def test_only_the_key_that_began_a_run_continues_it(tmp_path: Path) -> None:
    app = application(
        [looker()], access=ByToken(), dialects=REAL, store=await open_store(tmp_path / "runs.db")
    )
    async with serving(app) as served:
        first, message = await the_call(served)
        stranger = {"authorization": "bearer b"}
        answer = await served.client.post(PLAIN, json=with_result(message), headers=stranger)
    assert answer.json()["choices"][0]["message"]["content"] == "I saw a cat"
    assert run_of(answer.json()["id"]) != run_of(first["id"])


@pytest.mark.parametrize("is_resumed_again", [False, True])
async def test_a_continuation_that_is_taken_over_is_followed_and_paid_once(
    is_resumed_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, access = looker(price=Price(input=1.0, output=2.0)), ByToken()
    resume, ended = AsyncPodium.resume, list[Run]()

    async def taken_over(podium: AsyncPodium, run: Run, **options: Any) -> Run:
        store = served.service.store
        if ended:
            await store.finish(ended[0])
            raise Conflict("another process was faster")
        emit = options.pop("emit")
        ended.append(await resume(podium, run, **options))
        if is_resumed_again:
            await store.finish(replace(ended[0], status="interrupted", answer=None))
        emit(RunDone(replace(run, status="interrupted")))
        raise RunTakenOver("another process took the run over")

    app = application(
        [worker], access=access, dialects=REAL, store=await open_store(tmp_path / "runs.db")
    )
    async with serving(app) as served:
        first, message = await the_call(served)
        monkeypatch.setattr(AsyncPodium, "resume", taken_over)
        response = await served.client.post(
            PLAIN, json=with_result(message), headers={"authorization": "bearer a"}
        )
    assert response.status_code == 200, response.text
    assert run_of(response.json()["id"]) == run_of(first["id"])
    assert response.json()["choices"][0]["message"]["content"] == "I saw a cat"
    assert worker.calls == 2, "nothing was asked twice"
    assert access.settled[1][1]["cost"].cost_usd == 0.0


async def test_a_waiting_run_is_not_resumed_with_what_its_key_excludes_since(
    tmp_path: Path,
) -> None:
    class Excluding(ByToken):
        async def authenticate(self, token: str | None, address: str = "") -> Principal:
            principal = await super().authenticate(token, address)
            return replace(principal, exclude=frozenset({"other"} if self.settled else ()))

    app = application(
        [looker(), looker("other")],
        conductor=FixedConductor(Workflow((Step("looker", "Look."),))),
        access=Excluding(),
        dialects=REAL,
        store=await open_store(tmp_path / "runs.db"),
    )
    async with serving(app) as served:
        first, message = await the_call(served)
        headers = {"authorization": "bearer a"}
        answer = (
            await served.client.post(PLAIN, json=with_result(message), headers=headers)
        ).json()
        run = await served.service.store.load(run_of(answer["id"]))
    assert run_of(answer["id"]) != run_of(first["id"])
    assert (run.exclude, run.pool.names) == (("other",), ("looker",))


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_request_again_and_changed_results_are_answered_afresh(
    stream: bool, tmp_path: Path
) -> None:
    worker = looker()
    app = application(
        [worker], access=ByToken(), dialects=REAL, store=await open_store(tmp_path / "runs.db")
    )
    async with serving(app) as served:
        headers = {"authorization": "bearer a"}
        _, message = await the_call(served)
        bodies = [with_result(message, text, stream=stream) for text in ("a cat", "a cat", "a dog")]
        answers = [await served.client.post(PLAIN, json=body, headers=headers) for body in bodies]
    assert [result.status_code for result in answers] == [200, 200, 200]
    assert len({result.headers["x-podium-run"] for result in answers}) == 3
    sent = [request.messages[-1].parts for request in list(worker.requests)[1:]]
    results = ["a cat", "a cat", "a dog"]
    assert sent == [(ToolResult("c1", text),) for text in results]


@pytest.mark.parametrize("store", [True, False])
async def test_results_sent_again_go_on_with_a_run_that_failed_upstream(
    store: bool, tmp_path: Path
) -> None:
    worker = looker()
    failures = iter([RequestRefused("the provider will not")])

    class Failing(Worker):
        profile = worker.profile

        async def reply(self, request: Request) -> Reply:
            if worker.calls == 1:
                for failure in failures:
                    raise failure
            return await worker.reply(request)

    app = application([Failing()], dialects=REAL, store=await open_store(tmp_path / "runs.db"))
    async with serving(app) as served:
        first, message = await the_call(served, store=store)
        again = with_result(message, store=store)
        failed = await served.client.post(PLAIN, json=again)
        assert failed.status_code == 400
        answer = (await served.client.post(PLAIN, json=again)).json()
    assert (run_of(answer["id"]), answer["choices"][0]["message"]["content"]) == (
        run_of(first["id"]),
        "I saw a cat",
    )
    assert worker.calls == 2
    assert (b"a cat" in (tmp_path / "runs.db").read_bytes()) is store


@pytest.mark.parametrize("store", [True, False])
async def test_results_sent_again_resume_the_run_of_a_client_that_left(
    store: bool, tmp_path: Path
) -> None:
    worker = looker()
    stuck = asyncio.Event()

    class Slow(Worker):
        profile = worker.profile

        async def reply(self, request: Request) -> Reply:
            if worker.calls == 1 and not stuck.is_set():
                stuck.set()
                await asyncio.Event().wait()
            return await worker.reply(request)

    app = application([Slow()], dialects=REAL, store=await open_store(tmp_path / "runs.db"))
    async with serving(app) as served:
        _, message = await the_call(served, store=store)
        again = with_result(message, store=store)
        leaving = asyncio.create_task(served.client.post(PLAIN, json=again))
        await stuck.wait()
        busy = await served.client.post(PLAIN, json=again)
        assert busy.json()["choices"][0]["message"]["content"] == "I saw a cat"
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        answer = await served.client.post(PLAIN, json=again)
    assert answer.json()["choices"][0]["message"]["content"] == "I saw a cat"


async def test_a_conversation_outlives_a_run_that_is_gone(tmp_path: Path) -> None:
    worker = looker()
    app = application([worker], dialects=REAL, store=await open_store(tmp_path / "runs.db"))
    async with serving(app) as served:
        first, message = await the_call(served)
        await served.client.delete(f"/v1/runs/{first['id'].replace('chatcmpl-', 'run_')}")
        bare = await served.client.post(PLAIN, json=with_result(message))
        assert bare.json()["choices"][0]["message"]["content"] == "I saw a cat"
        asked = with_result(message)
        asked["messages"].append(said("And now?"))
        response = await served.client.post(PLAIN, json=asked)
    assert response.status_code == 200
    assert response.json()["id"] != first["id"]
    assert [m.role for m in worker.requests[-1].messages] == ["user", "assistant", "tool", "user"]


async def test_results_of_calls_of_another_server_are_answered() -> None:
    async with serving(application([looker()], dialects=REAL)) as served:
        message = {
            "role": "assistant",
            "tool_calls": [
                {"id": "mine", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            ],
        }
        answer = await served.client.post(PLAIN, json=with_result(message))
    assert answer.json()["choices"][0]["message"]["content"] == "I saw a cat"


async def test_a_conversation_continues_from_a_response(tmp_path: Path) -> None:
    worker = ScriptedWorker("solo", ["Ada.", "1815."])
    app = application([worker], dialects=REAL, store=await open_store(tmp_path / "runs.db"))
    async with serving(app) as served:

        async def ask(text: str, **body: Any) -> httpx.Response:
            asked = {"model": "podium-mini", "input": text, **body}
            return await served.client.post("/v1/responses", json=asked)

        first = (await ask("Who?", instructions="Be brief.")).json()
        second = await ask("When?", previous_response_id=first["id"], instructions="Be exact.")
        assert second.status_code == 200
        sent = [(m.role, m.text) for m in worker.requests[-1].messages]
        assert sent == [
            ("system", "Be exact."),
            ("user", "Who?"),
            ("assistant", "Ada."),
            ("user", "When?"),
        ]
        gone = await ask("Why?", previous_response_id="resp_ffffffffffffffff")
        assert gone.status_code == 400
        error = gone.json()["error"]
        assert error["message"] == "Previous response with id 'resp_ffffffffffffffff' not found."
        assert error["code"] == "previous_response_not_found"
        assert error["param"] == "previous_response_id"


async def test_the_trace_comes_only_where_it_is_asked_for() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        plain = await served.ask(model="podium-ultra")
        traced = await served.client.post(
            PLAIN, json={"ask": "Why?"}, headers={"X-Podium-Include-Run": "1"}
        )
    assert "podium" not in plain.json()
    assert traced.json()["podium"]["steps"][0]["worker"] == "solo"


async def test_podium_params_shape_the_run() -> None:
    workers = [ScriptedWorker(name, name) for name in ("one", "two")]
    plan = {"steps": [{"worker": "two", "subtask": "Speak.", "access": []}]}
    async with serving(application(workers)) as served:
        own = await served.ask(podium={"workflow": plan})
        assert own.json()["text"] == "two"
        excluding = await served.ask(podium={"exclude": ["one"]})
        assert excluding.json()["text"] == "two"
        misspelt = await served.ask(podium={"exclude": ["won"]})
        assert (misspelt.status_code, misspelt.json()["field"]) == (400, "podium.exclude")
        spent = await served.ask(podium={"budget": {"calls": 0}})
        assert (spent.status_code, spent.json()["refused"]) == (402, "out_of_budget")
        malformed = await served.ask(podium={"workflow": {"steps": []}})
        assert (malformed.status_code, malformed.json()["field"]) == (400, "podium.workflow")


@pytest.mark.parametrize("model", ["podium-mini", "thinker"])
async def test_a_budget_for_thinking_reaches_the_worker_that_answers(model: str) -> None:
    worker = ScriptedWorker(WorkerProfile(name="thinker"), "yes")
    body = {
        "model": model,
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [said("Why?")],
    }
    async with serving(application([worker], dialects=REAL)) as served:
        answer = await served.client.post("/v1/messages", json=body)
    assert answer.status_code == 200
    asked = worker.requests[-1]
    assert (asked.effort, asked.thinking_tokens) == ("low", 2000)


@pytest.mark.parametrize("model", ["podium-ultra", "small"])
async def test_a_prompt_that_fits_into_no_window_is_the_clients_to_shorten(model: str) -> None:
    refusing = ScriptedWorker("small", PromptTooLong("small has room for 8 tokens"))
    async with serving(application([refusing], dialects=REAL)) as served:
        chatted = await served.client.post(PLAIN, json={**chat(said("Why?")), "model": model})
        body = {"model": model, "max_tokens": 9, "messages": [said("Why?")]}
        response = await served.client.post("/v1/messages", json=body)
    assert (chatted.status_code, response.status_code) == (400, 400)
    assert chatted.json()["error"]["code"] == "context_length_exceeded"
    assert response.json()["error"]["type"] == "invalid_request_error"
    for answer in (chatted, response):
        assert "prompt is too long" in answer.json()["error"]["message"]
        assert "room for 8 tokens" in answer.json()["error"]["message"]


async def test_effort_shapes_the_plan() -> None:
    async with serving(application([ScriptedWorker("solo", "yes")])) as served:
        steps = {}
        for effort in ("minimal", "low", "high"):
            response = await served.client.post(
                PLAIN,
                json={"ask": "Compare them.", "effort": effort},
                headers={"X-Podium-Include-Run": "1"},
            )
            steps[effort] = len(response.json()["podium"]["steps"])
    assert steps == {"minimal": 1, "low": 2, "high": 3}


async def test_a_round_is_not_streamed_before_it_is_final() -> None:
    plans = ['{"steps": [{"worker": "solo", "subtask": "Answer", "access": []}]}'] * 2
    planner = ScriptedWorker("planner", plans)
    solo = ScriptedWorker("solo", ["first try", "second try"])
    crew = [solo, ScriptedWorker("other", "")]
    app = application(crew, conductor=ModelConductor(planner), options=Options(rounds=2))
    async with serving(app) as served:
        response = await served.ask(model="podium-ultra", stream=True)
    document = [json.loads(line) for line in response.content.splitlines()]
    words = "".join(item[1] for item in document if item[0] == "text")
    assert words == "second try"


async def test_a_client_may_ask_for_less_than_the_settings_allow_and_never_for_more(
    tmp_path: Path,
) -> None:
    app = application(
        [ScriptedWorker("solo", "yes")],
        options=Options(max_steps=4, rounds=2, budget=Budget(calls=9)),
        store=await open_store(tmp_path / "runs.db"),
    )
    async with serving(app) as served:
        for params in (
            {"max_steps": 9, "rounds": 9, "budget": {"calls": 99, "tokens": 9000}},
            {"max_steps": 1, "rounds": 1, "budget": {"calls": 3}},
        ):
            await served.ask(model="podium-ultra", podium=params)
        buffered = served.service.store
        runs = [await buffered.load(run.id) for run in reversed(await buffered.list())]
    assert [(run.max_steps, run.max_rounds, run.budget) for run in runs] == [
        (4, 2, Budget(calls=9, tokens=9000)),
        (1, 1, Budget(calls=3)),
    ]


async def test_a_workflow_of_the_clients_own_has_no_more_steps_than_are_allowed() -> None:
    step = {"worker": "solo", "subtask": "Answer", "access": []}
    solo = ScriptedWorker("solo", "yes")
    async with serving(application([solo], options=Options(max_steps=2))) as served:
        refused = await served.ask(model="podium-ultra", podium={"workflow": {"steps": [step] * 3}})
    assert (refused.status_code, refused.json()["field"]) == (400, "podium.workflow")
    assert solo.calls == 0


async def test_the_settings_budget_holds_for_every_request() -> None:
    worker = ScriptedWorker("solo", "yes", price=Price(input=1, output=1))
    options = Options(budget=Budget(calls=0))
    async with serving(application([worker], options=options)) as served:
        for model in ("podium-ultra", "solo"):
            response = await served.ask(model=model, podium={"budget": {"calls": 9}})
            assert response.status_code == 402


class Waiting(Worker):
    """Begins to speak, and then waits until it is stopped."""

    def __init__(self) -> None:
        self.profile = WorkerProfile(name="waiting")
        self.asked = asyncio.Event()
        self.stopped = asyncio.Event()

    async def reply(self, request: Request) -> Reply:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()
        raise AssertionError("it waits for ever")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield Delta("Well")
        yield await self.reply(request)


@pytest.mark.parametrize("model", ["podium-ultra", "waiting"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_stops_the_calls(model: str, stream: bool) -> None:
    worker, access = Waiting(), ByToken()
    async with serving(application([worker], access=access)) as served:
        gone = asyncio.Event()
        body = json.dumps({"ask": "Why?", "model": model, "stream": stream}).encode()
        sent = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": PLAIN, "headers": [], "root_path": ""}
        serving_it = asyncio.create_task(served.app(scope, receive, send))
        async with asyncio.timeout(5):
            await worker.asked.wait()
            gone.set()
            await serving_it
        assert worker.stopped.is_set()
        assert len(access.settled) == 1, "what was used is charged all the same"
        assert served.service.limiter.in_flight == 0


async def test_a_client_that_goes_away_stops_steps_that_began_before_their_plan(
    tmp_path: Path,
) -> None:
    worker, access, gone = Waiting(), ByToken(), asyncio.Event()
    store = await open_store(tmp_path / "runs.db")
    plan = '{"steps": [{"worker": "waiting", "subtask": "look", "access": []}, {"worker": "wai'

    class Planner(ScriptedWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield Delta(plan)
            await asyncio.Event().wait()

    conductor = ModelConductor(Planner("planner", plan))
    body = json.dumps({"ask": "Why?", "model": "podium-ultra", "stream": True}).encode()
    sent = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    workers: list[Worker] = [worker, ScriptedWorker("other", "x")]
    app = application(workers, conductor=conductor, access=access, store=store)
    async with serving(app) as served:
        scope = {"type": "http", "method": "POST", "path": PLAIN, "headers": [], "root_path": ""}
        serving_it = asyncio.create_task(served.app(scope, receive, send))
        async with asyncio.timeout(5):
            await worker.asked.wait()
            gone.set()
            await serving_it
        (summary,) = await served.service.store.list()
        run = await served.service.store.load(summary.id)
    assert worker.stopped.is_set()
    assert run.status == "interrupted"
    assert [step.subtask for step in run.cancelled_steps] == ["look"]
    assert len(list(run.calls)) == run.spent.calls == 2
    assert len(access.settled) == 1


async def test_a_stream_that_breaks_off_continues_without_repeating_a_word() -> None:
    class Breaking(Worker):
        profile = WorkerProfile(name="breaking")
        calls = 0

        async def reply(self, request: Request) -> Reply:
            return Reply("one two three", Usage(1, 3, 0, 0, 0))

        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            self.calls += 1
            yield Delta("one")
            yield Delta(" two")
            if self.calls % 2:
                raise Unavailable("broken off")
            yield Delta(" three")
            yield await self.reply(request)

    async with serving(application([Breaking()])) as served:
        for model in ("podium-ultra", "breaking"):
            response = await served.ask(model=model, stream=True)
            document = [json.loads(line) for line in response.content.splitlines()]
            assert "".join(item[1] for item in document if item[0] == "text") == "one two three"
            assert document[-1][0] == "end"


async def test_a_stream_that_breaks_off_for_good_ends_with_an_error() -> None:
    class Broken(Worker):
        profile = WorkerProfile(name="broken")

        async def reply(self, request: Request) -> Reply:
            raise Unavailable("broken off")

        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield Delta("one")
            raise Unavailable("broken off")

    async with serving(application([Broken()])) as served:
        for model in ("podium-ultra", "broken"):
            response = await served.ask(model=model, stream=True)
            document = [json.loads(line) for line in response.content.splitlines()]
            assert [item[0] for item in document] == ["begin", "text", "fail"], model


async def test_a_fixed_workflow_is_streamed_despite_more_rounds() -> None:
    workflow = Workflow((Step("solo", "Answer"),))
    app = application(
        [ScriptedWorker("solo", "yes indeed")],
        conductor=FixedConductor(workflow),
        options=Options(rounds=3),
    )
    async with serving(app) as served:
        response = await served.ask(model="podium-ultra", stream=True)
    document = [json.loads(line) for line in response.content.splitlines()]
    assert [item[0] for item in document] == ["begin", "text", "text", "end"]
