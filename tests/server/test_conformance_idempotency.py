"""Requests with an Idempotency-Key, sent again over a real socket, by the openai SDK and others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import httpx
import openai
import pytest

from podium.core.request import Delta, Reply, Request
from podium.store.keys import Rules
from support.conformance import ULTRA, WHY, openai_client
from support.loopback import PATIENCE, USED, Runtime

NAMED: Final = {"Idempotency-Key": "the first question"}

BODIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {"messages": WHY},
    "/v1/responses": {"input": "Why?"},
    "/v1/messages": {"messages": WHY, "max_tokens": 100},
}


def posted(runtime: Runtime, path: str, name: str, token: str = "", **more: Any) -> httpx.Response:
    body = {"model": ULTRA, **BODIES[path], **more}
    headers = {"Authorization": f"Bearer {token or runtime.token}", "Idempotency-Key": name}
    return runtime.http.post(path, json=body, headers=headers)


class Counting:
    """Answers each call with its number, when it may."""

    def __init__(self, runtime: Runtime) -> None:
        self.calls = 0
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        runtime.solver.streams(self.stream_reply)

    async def stream_reply(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        self.calls += 1
        number = self.calls
        self.asked.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.005)
        yield Delta(f"answer {number}")
        yield Reply(f"answer {number}", USED)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_request_that_is_sent_again_gets_the_answer_of_the_one_run(
    runtime: Runtime, path: str, stream: bool
) -> None:
    counting = Counting(runtime)
    first, again = (posted(runtime, path, f"{path} {stream}", stream=stream) for _ in range(2))
    assert (first.status_code, again.status_code, counting.calls) == (200, 200, 1)
    for response in (first, again):
        assert "answer" in response.text
        assert "answer 2" not in response.text
    assert again.headers["X-Podium-Run"] == first.headers["X-Podium-Run"]
    if not stream:
        assert again.json() == first.json()
        assert float(first.headers["X-Podium-Cost"]) > float(again.headers["X-Podium-Cost"]) == 0


def test_the_sdk_gets_the_same_completion_again_whole_and_as_a_stream(
    runtime: Runtime, sdk: openai.OpenAI
) -> None:
    counting = Counting(runtime)
    response = [
        sdk.chat.completions.create(model=ULTRA, messages=WHY, extra_headers=NAMED)
        for _ in range(3)
    ]
    assert [item.choices[0].message.content for item in response] == ["answer 1"] * 3
    assert len({item.id for item in response}) == 1
    assert response[0].usage == response[2].usage
    streams = []
    for _ in range(2):
        pieces = sdk.chat.completions.create(
            model=ULTRA, messages=WHY, stream=True, extra_headers={"Idempotency-Key": "a stream"}
        )
        streams.append("".join(item.choices[0].delta.content or "" for item in pieces))
    assert streams == ["answer 2"] * 2
    assert counting.calls == 2


def test_with_another_body_the_name_is_refused(runtime: Runtime, sdk: openai.OpenAI) -> None:
    sdk.chat.completions.create(
        model=ULTRA, messages=WHY, extra_headers={"Idempotency-Key": "bodies"}
    )
    with pytest.raises(openai.ConflictError, match="'bodies' was used with a different body"):
        sdk.chat.completions.create(
            model=ULTRA,
            messages=WHY,
            temperature=0.5,
            extra_headers={"Idempotency-Key": "bodies"},
        )
    other = posted(runtime, "/v1/messages", "bodies")
    assert other.status_code == 409
    assert other.json()["error"]["type"] == "conflict_error"


def test_the_names_of_a_key_are_its_own(runtime: Runtime) -> None:
    counting = Counting(runtime)
    other = runtime.key(Rules())
    posted(runtime, "/v1/responses", "ours")
    assert "answer 2" in posted(runtime, "/v1/responses", "ours", other).text
    assert counting.calls == 2


def test_repeated_requests_wait_for_the_first(runtime: Runtime) -> None:
    counting = Counting(runtime)
    counting.may_answer.clear()
    with ThreadPoolExecutor(3) as threads:
        sent = [threads.submit(posted, runtime, "/v1/messages", "at once") for _ in range(3)]
        assert counting.asked.wait(PATIENCE)
        counting.may_answer.set()
        values = [item.result(PATIENCE) for item in sent]
    assert {item.json()["content"][0]["text"] for item in values} == {"answer 1"}
    assert counting.calls == 1


def test_a_run_whose_client_left_resumes_when_the_request_is_repeated(runtime: Runtime) -> None:
    counting = Counting(runtime)
    counting.may_answer.clear()
    client = openai_client(runtime, runtime.token)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(
            model=ULTRA, messages=WHY, extra_headers={"Idempotency-Key": "gone"}, timeout=0.3
        )
    counting.may_answer.set()
    response = client.chat.completions.create(
        model=ULTRA, messages=WHY, extra_headers={"Idempotency-Key": "gone"}
    )
    client.close()
    run = runtime.run(response.id.replace("chatcmpl-", "run_"))
    assert (run.status, run.answer) == ("answered", response.choices[0].message.content)
    assert len(run.rounds) == 1


def test_a_run_that_failed_fails_the_same_way_again_and_says_which_it_was(runtime: Runtime) -> None:
    counting = Counting(runtime)
    params: dict[str, Any] = {"podium": {"budget": {"calls": 1}}}
    first, again = (posted(runtime, "/v1/responses", "failing", **params) for _ in range(2))
    assert (first.status_code, again.status_code, counting.calls) == (402, 402, 0)
    assert runtime.run(first.headers["X-Podium-Run"]).status == "exhausted"


def test_requests_refused_before_a_run_may_be_repeated(runtime: Runtime) -> None:
    nobody = {"worker": "nobody", "subtask": "answer", "access": []}
    wrong: dict[str, Any] = {"podium": {"workflow": {"steps": [nobody]}}}
    path = "/v1/chat/completions"
    first, again = (posted(runtime, path, "refused", **wrong) for _ in range(2))
    assert first.status_code == again.status_code == 400
    assert posted(runtime, path, "refused").status_code == 200


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("a worker", {"model": "solver"}),
        ("not stored", {"store": False}),
        ("", {}),
        ("x" * 256, {}),
    ],
)
def test_a_name_that_can_stand_for_no_run_is_refused(
    runtime: Runtime, name: str, more: dict[str, Any]
) -> None:
    refused = posted(runtime, "/v1/chat/completions", name, **more)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Idempotency-Key")
