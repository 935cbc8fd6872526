"""Images and PDFs: each tier gives them to workers that can see them, or refuses the request."""

from __future__ import annotations

from typing import Any, Final

import pytest

from podium.conductors import FixedConductor
from podium.core.pool import Capability, WorkerProfile
from podium.core.request import Price, Reply, Request, ToolCall, images_in
from podium.core.workflow import Step, Workflow
from podium.server.startup import DIALECTS
from podium.workers import ScriptedWorker
from support.serving import Served, application, serving

TIERS: Final = ("podium-mini", "podium", "podium-ultra")
PIXEL: Final = "iVBORw0KGgo="
PNG: Final = f"data:image/png;base64,{PIXEL}"
PDF: Final = "data:application/pdf;base64,JVBERi0="

CHAT, RESPONSES, MESSAGES = DIALECTS
PARTS: Final[dict[str, dict[str, Any]]] = {
    CHAT: {
        "image": {"type": "image_url", "image_url": {"url": PNG}},
        "pdf": {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
    },
    RESPONSES: {
        "image": {"type": "input_image", "image_url": PNG},
        "pdf": {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
    },
    MESSAGES: {
        "image": {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
        },
        "pdf": {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        },
    },
}
PATHS: Final = tuple(PARTS)
SEEING: Final = {"seer", "reader"}
TEXT: Final = {CHAT: "text", RESPONSES: "input_text", MESSAGES: "text"}


class Pool:
    """`plain` is the cheapest and cannot see, `seer` sees images, `reader` reads PDFs too."""

    def __init__(self, *names: str) -> None:
        can: dict[str, frozenset[Capability]] = {
            "plain": frozenset({"tools"}),
            "seer": frozenset({"tools", "vision"}),
            "reader": frozenset({"tools", "vision", "pdf"}),
        }
        self.workers = [
            ScriptedWorker(
                WorkerProfile(
                    name=name, capabilities=can[name], price=Price(input=i + 1, output=i + 1)
                ),
                self,
            )
            for i, name in enumerate(names)
        ]
        self.conductor = FixedConductor(Workflow((Step(names[0], "Answer."),)))

    def __call__(self, request: Request) -> Reply:
        """Call the tool `look` where there is one and it was not called yet."""
        if request.tools and request.messages[-1].role != "tool":
            return Reply("", finish="tool", tool_calls=(ToolCall("c1", "look", "{}"),))
        return Reply("A cat.")

    def saw(self) -> dict[str, list[bool]]:
        """Return what each worker that was called last saw: True for a PDF."""
        return {
            worker.profile.name: [image.is_pdf for image in images_in(worker.requests[-1].messages)]
            for worker in self.workers
            if worker.requests
        }

    def serving(self) -> Any:
        return serving(application(self.workers, conductor=self.conductor, dialects=DIALECTS))


async def ask(served: Served, path: str, model: str, *turns: Any, **fields: Any) -> Any:
    name = "input" if path == RESPONSES else "messages"
    limit = {"max_tokens": 9} if path == MESSAGES else {}
    body = {"model": model, name: list(turns), **limit, **fields}
    return await served.client.post(path, json=body)


def asking(path: str, part: str, text: str = "What is this?") -> dict[str, Any]:
    content = [PARTS[path][part], {"type": TEXT[path], "text": text}]
    return {"role": "user", "content": content}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", TIERS)
@pytest.mark.parametrize(("part", "able"), [("image", SEEING), ("pdf", {"reader"})])
async def test_a_worker_that_can_see_answers(
    path: str, model: str, part: str, able: set[str]
) -> None:
    pool = Pool("plain", "seer", "reader")
    async with pool.serving() as served:
        response = await ask(served, path, model, asking(path, part))
    assert response.status_code == 200
    ((worker, seen),) = pool.saw().items()
    assert worker in able
    assert seen == [part == "pdf"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", TIERS)
@pytest.mark.parametrize(("part", "able"), [("image", SEEING), ("pdf", {"reader"})])
async def test_a_question_about_an_earlier_image_is_answered_by_one_too(
    path: str, model: str, part: str, able: set[str]
) -> None:
    pool = Pool("plain", "seer", "reader")
    turns = (
        asking(path, part),
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Which colour has it?"},
    )
    async with pool.serving() as served:
        response = await ask(served, path, model, *turns)
    assert response.status_code == 200
    ((worker, seen),) = pool.saw().items()
    assert worker in able
    assert seen == [part == "pdf"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", [*TIERS, "plain"])
@pytest.mark.parametrize(("part", "missing"), [("image", "see images"), ("pdf", "read PDFs")])
async def test_without_such_a_worker_the_request_is_invalid(
    path: str, model: str, part: str, missing: str
) -> None:
    pool = Pool("plain")
    turns = (asking(path, part), {"role": "assistant", "content": "A cat."})
    async with pool.serving() as served:
        for asked in ((turns[0],), (*turns, {"role": "user", "content": "Why?"})):
            response = await ask(served, path, model, *asked)
            error = response.json()["error"]
            assert (response.status_code, error["type"]) == (400, "invalid_request_error")
            assert missing in error["message"]
    assert pool.saw() == {}


@pytest.mark.parametrize("model", TIERS)
async def test_a_worker_that_sees_but_cannot_call_the_tools_is_no_substitute(model: str) -> None:
    pool = Pool("plain", "seer")
    blind_hand = WorkerProfile(name="plain", capabilities=frozenset({"tools"}))
    eye = WorkerProfile(name="seer", capabilities=frozenset({"vision"}))
    pool.workers = [ScriptedWorker(blind_hand, pool), ScriptedWorker(eye, pool)]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    async with pool.serving() as served:
        response = await ask(served, CHAT, model, asking(CHAT, "image"), tools=tools)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("model", TIERS)
@pytest.mark.parametrize("names", [("plain", "seer"), ("plain",)])
async def test_an_image_that_a_tool_returns_goes_to_a_worker_that_sees_if_there_is_one(
    model: str, names: tuple[str, ...]
) -> None:
    pool = Pool(*names)
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    asked = {"role": "user", "content": "Look."}
    async with pool.serving() as served:
        called = (await ask(served, MESSAGES, model, asked, tools=tools)).json()
        result = {
            "type": "tool_result",
            "tool_use_id": called["content"][0]["id"],
            "content": [PARTS[MESSAGES]["image"]],
        }
        turns = (
            asked,
            {"role": "assistant", "content": called["content"]},
            {"role": "user", "content": [result]},
        )
        response = await ask(served, MESSAGES, model, *turns, tools=tools)
    assert response.json()["content"] == [{"type": "text", "text": "A cat."}]
    if "seer" in names:
        assert pool.saw()["seer"] == [False]
    else:
        (worker,) = pool.workers
        (sent,) = worker.requests[-1].messages[-1].parts
        assert "[an image that you cannot see]" in sent.text  # type: ignore[union-attr]
