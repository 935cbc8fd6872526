"""Responses on record: fetched as they were, continued, referred to by item, in the background."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.core.pool import Pool
from podium.core.request import Reply, Request, Thinking, ToolCall, Usage
from podium.server.access import KeyAuthenticator
from podium.server.access.keys import make_key
from podium.server.startup import DIALECTS
from podium.store import open_store
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from support.serving import Served, application, serving

PATH = "/v1/responses"
MODELS = ("podium", "podium-ultra", "solo")
LOOK = {"type": "function", "name": "look", "parameters": {}, "strict": False}
CALL = Reply(
    "Looking.",
    Usage(3, 2, 0, 0, 0),
    tool_calls=(ToolCall("c1", "look", "{}"),),
    thinking=(Thinking("hm", "sealed", "solo"),),
    finish="tool",
)


def solo(*replies: str | Reply) -> ScriptedWorker:
    worker = ScriptedWorker("solo", list(replies))
    worker.profile = replace(worker.profile, capabilities=frozenset({"tools"}))
    return worker


@asynccontextmanager
async def server(worker: ScriptedWorker, directory: Path) -> AsyncIterator[Served]:
    store = await open_store(directory / "runs.db")
    async with serving(application([worker], dialects=DIALECTS, store=store)) as served:
        yield served


async def ask(served: Served, **body: Any) -> dict[str, Any]:
    answer = await served.client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def fetch(served: Served, path: str) -> dict[str, Any]:
    answer = await served.client.get(f"{PATH}/{path}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def said(request: Request) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


@pytest.mark.parametrize("model", MODELS)
async def test_a_response_is_fetched_as_it_was(model: str, tmp_path: Path) -> None:
    async with server(solo(CALL, "Red."), tmp_path) as served:
        first = await ask(
            served,
            model=model,
            input="Look!",
            instructions="Be brief.",
            tools=[LOOK],
            metadata={"turn": "1"},
            reasoning={"summary": "auto"},
            include=["reasoning.encrypted_content"],
        )
        result = {"type": "function_call_output", "output": "red"}
        result["call_id"] = first["output"][-1]["call_id"]
        second = await ask(
            served,
            model=model,
            input=[result],
            instructions="Be brief.",
            tools=[LOOK],
            previous_response_id=first["id"],
            metadata={"turn": "2"},
        )
        assert [item["type"] for item in first["output"]] == [
            "reasoning",
            "message",
            "function_call",
        ]
        assert second["output"][0]["content"][0]["text"] == "Red."
        assert first["id"] != second["id"]
        assert second["previous_response_id"] == first["id"]
        for response in (first, second):
            assert await fetch(served, response["id"]) == response


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stream", [False, True])
async def test_stored_items_stand_in_for_themselves(
    model: str, stream: bool, tmp_path: Path
) -> None:
    worker = solo(CALL, "Red.", "Blue.")
    async with server(worker, tmp_path) as served:
        turns: list[Any] = [{"role": "user", "content": "Look!"}]
        for expected in ("Looking.", "Red.", "Blue."):
            asked = {"model": model, "input": turns, "tools": [LOOK], "stream": stream}
            asked["include"] = ["reasoning.encrypted_content"]
            answer = await served.client.post(PATH, json=asked)
            output = (_last(answer.text) if stream else answer.json())["output"]
            (message,) = (item for item in output if item["type"] == "message")
            assert message["content"][0]["text"] == expected
            turns += [{"type": "item_reference", "id": item["id"]} for item in output]
            calls = [item for item in output if item["type"] == "function_call"]
            turns += [
                {"type": "function_call_output", "call_id": call["call_id"], "output": "red"}
                for call in calls
            ] or [{"role": "user", "content": "And?"}]
        assert said(worker.requests[-1])[-5:-1] == [
            ("user", "Look!"),
            ("assistant", "Looking."),
            ("tool", ""),
            ("assistant", "Red."),
        ]
        called = worker.requests[-1].messages[-4]
        assert [part for part in called.parts if isinstance(part, ToolCall | Thinking)] == [
            CALL.thinking[0],
            CALL.tool_calls[0],
        ]


def _last(events: str) -> Any:
    """The response at the end of a stream."""
    return json.loads(events.rpartition("data: ")[2])["response"]


@pytest.mark.parametrize(
    "id_", ["msg_1", "msg_0123456789abcdef", "fc_0123456789abcdef_1-2", "rs_0123456789abcdef"]
)
async def test_an_unknown_item_is_openais_own_error(id_: str, tmp_path: Path) -> None:
    async with server(solo("yes"), tmp_path) as served:
        turns = [{"type": "item_reference", "id": id_}, {"role": "user", "content": "And?"}]
        answer = await served.client.post(PATH, json={"model": "podium", "input": turns})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith(f"Item with id '{id_}' not found.")
    assert answer.json()["error"]["param"] == "input"


@pytest.mark.parametrize("model", MODELS)
async def test_nothing_is_kept_of_a_response_that_is_not_to_be_stored(
    model: str, tmp_path: Path
) -> None:
    async with server(solo("yes"), tmp_path) as served:
        answer = await ask(served, model=model, input="Why?", store=False)
        assert answer["store"] is False
        assert (await served.client.get(f"{PATH}/{answer['id']}")).status_code == 404
        again = await served.client.post(
            PATH,
            json={"model": model, "input": "And?", "previous_response_id": answer["id"]},
        )
    assert again.status_code == 400
    assert again.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("model", MODELS)
async def test_instructions_of_an_earlier_response_are_not_carried_over(
    model: str, tmp_path: Path
) -> None:
    worker = solo("Ada.", "1815.", "London.")
    async with server(worker, tmp_path) as served:
        own = {"role": "system", "content": "Speak English."}
        first = await ask(
            served,
            model=model,
            input=[own, {"role": "user", "content": "Who?"}],
            instructions="Be brief.",
            text={"verbosity": "low"},
        )
        await ask(served, model=model, input="When?", previous_response_id=first["id"])
        sent = said(worker.requests[-1])
    assert sent[:3] == [("system", "Speak English."), ("user", "Who?"), ("assistant", "Ada.")]
    assert len(sent) == 4
    assert "When?" in sent[-1][1]


@pytest.mark.parametrize("model", MODELS)
async def test_the_items_that_a_response_answers_are_listed(model: str, tmp_path: Path) -> None:
    async with server(solo("It is."), tmp_path) as served:
        call = {"type": "function_call", "call_id": "c9", "name": "look", "arguments": "{}"}
        answer = await ask(
            served,
            model=model,
            instructions="Be brief.",
            tools=[LOOK],
            input=[
                {"role": "user", "content": "Look!"},
                call,
                {"type": "function_call_output", "call_id": "c9", "output": "red"},
                {"role": "user", "content": "Is it red?"},
            ],
        )
        whole = await fetch(served, f"{answer['id']}/input_items?order=asc")
        kinds = [item["type"] for item in whole["data"]]
        assert kinds == ["message", "function_call", "function_call_output", "message"]
        assert whole["data"][0]["content"] == [{"type": "input_text", "text": "Look!"}]
        assert whole["data"][2]["output"] == "red"
        ids = [item["id"] for item in whole["data"]]
        assert (whole["first_id"], whole["last_id"]) == (ids[0], ids[-1])
        assert (len({*ids}), whole["has_more"]) == (4, False)
        page = await fetch(served, f"{answer['id']}/input_items?limit=2&after={ids[3]}")
        assert [item["id"] for item in page["data"]] == [ids[2], ids[1]]
        assert page["has_more"]
        missing = await served.client.get(f"{PATH}/{answer['id']}/input_items?after=msg_1")
        assert missing.status_code == 400


@pytest.mark.parametrize("model", MODELS)
async def test_a_deleted_response_is_gone_with_its_items(model: str, tmp_path: Path) -> None:
    async with server(solo("yes"), tmp_path) as served:
        answer = await ask(served, model=model, input="Why?")
        gone = await served.client.delete(f"{PATH}/{answer['id']}")
        assert gone.json() == {"id": answer["id"], "object": "response", "deleted": True}
        for method in ("GET", "DELETE"):
            again = await served.client.request(method, f"{PATH}/{answer['id']}")
            message = again.json()["error"]["message"]
            assert (again.status_code, message) == (
                404,
                f"Response with id '{answer['id']}' not found.",
            )
        turns = [{"type": "item_reference", "id": answer["output"][0]["id"]}]
        turns.append({"role": "user", "content": "And?"})
        refused = await served.client.post(PATH, json={"model": model, "input": turns})
    assert refused.status_code == 404


async def test_items_of_another_key_are_not_found(tmp_path: Path) -> None:
    store = await SqlRunStore.open(tmp_path / "runs.db")
    worker = solo("yes")
    access = KeyAuthenticator(store.keys, Pool((worker.profile,)))
    keys = [make_key(name, Rules()) for name in ("Ada", "Bob")]
    for made in keys:
        await store.keys.add(made.key)
    app = application([worker], dialects=DIALECTS, store=store, access=access)
    async with serving(app) as served:
        ada, bob = ({"Authorization": f"Bearer {made.token}"} for made in keys)
        asked: dict[str, Any] = {"model": "solo", "input": "Why?"}
        answer = (await served.client.post(PATH, json=asked, headers=ada)).json()
        turns = [{"type": "item_reference", "id": answer["output"][0]["id"]}]
        turns.append({"role": "user", "content": "And?"})
        asked = {"model": "solo", "input": turns}
        statuses = [
            (await served.client.post(PATH, json=asked, headers=who)).status_code
            for who in (ada, bob)
        ]
        await access.close()
        used = await store.keys.usage()
    assert statuses == [200, 404]
    assert [(row.model, row.requests) for row in used] == [("solo", 2)], "charged as the worker's"


class Patient(ScriptedWorker):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__("solo", "yes")
        self.let = asyncio.Event()

    async def reply(self, request: Request) -> Reply:
        await self.let.wait()
        return await super().reply(request)


@asynccontextmanager
async def background(served: Served) -> AsyncIterator[dict[str, Any]]:
    """Ask in the background and disconnect; yield the first response."""
    asked = {"model": "podium-ultra", "input": "Why?", "background": True}
    sent: asyncio.Queue[Any] = asyncio.Queue()
    received = iter([{"type": "http.request", "body": json.dumps(asked).encode()}])

    async def receive() -> Any:
        return next(received, {"type": "http.disconnect"})

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": PATH, "headers": []}
    handling = asyncio.create_task(served.app(scope, receive, sent.put))
    assert (await sent.get())["status"] == 200
    yield json.loads((await sent.get())["body"])
    await handling


async def test_a_background_response_is_fetched_when_it_is_there(tmp_path: Path) -> None:
    worker = Patient()
    async with server(worker, tmp_path) as served:
        async with background(served) as begun:
            before = await fetch(served, begun["id"])
            worker.let.set()
        after = await fetch(served, begun["id"])
        late = await served.client.post(f"{PATH}/{begun['id']}/cancel")
    assert (before["status"], before["background"], before["output"]) == ("in_progress", True, [])
    assert begun == {**before, "created_at": begun["created_at"]}
    assert (after["status"], after["output"][0]["content"][0]["text"]) == ("completed", "yes")
    assert late.json() == after


async def test_a_background_response_is_cancelled(tmp_path: Path) -> None:
    worker = Patient()
    async with server(worker, tmp_path) as served, background(served) as begun:
        cancelled = await served.client.post(f"{PATH}/{begun['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert (await fetch(served, begun["id"]))["status"] == "cancelled"
    assert not worker.requests


async def test_a_response_that_was_waited_for_cannot_be_cancelled(tmp_path: Path) -> None:
    async with server(solo("yes"), tmp_path) as served:
        answered = await ask(served, model="podium", input="Why?")
        refused = await served.client.post(f"{PATH}/{answered['id']}/cancel")
        unknown = await served.client.post(f"{PATH}/resp_{'0' * 16}/cancel")
    assert (refused.status_code, unknown.status_code) == (400, 404)


async def test_a_background_response_that_is_refused_is_an_error(tmp_path: Path) -> None:
    async with server(solo("yes"), tmp_path) as served:
        asked = {"input": "Why?", "background": True}
        for model, podium in (("solo", {}), ("podium", {"exclude": ["nobody"]})):
            body = {**asked, "model": model, "podium": podium}
            answer = await served.client.post(PATH, json=body)
            assert answer.status_code == 400
