"""The fuzzers find what they look for, and find none of it here."""

from __future__ import annotations

from random import Random
from typing import Any

import httpx
import pytest

from benchmarks.chaos.fuzz import (
    BODIES,
    CHAT,
    MAX_BYTES,
    MESSAGES,
    EncodedRequest,
    InvalidResponse,
    damage,
    encode_request,
    judge,
    measure_fuzz,
)
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest
from podium.server.dialects.responses_input import conversation
from podium.server.logs import LOGGER
from podium.server.startup import DIALECTS


async def test_hundreds_of_odd_requests_in_each_dialect_are_answered() -> None:
    row = await measure_fuzz(400, seed=7)
    assert row.holds, row.broken
    assert (row.note, row.figures["bodies_findings"]) == ("1,200 bodies", 0)
    corpus = row.figures["bodies_corpus"]
    assert isinstance(corpus, int)
    assert corpus > 10


REFUSED = b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}'


def error(
    status: int = 400, media_type: str = "application/json", body: bytes = REFUSED
) -> httpx.Response:
    return httpx.Response(status, headers={"content-type": media_type}, content=body)


def stream(body: bytes = b'data: {"a":1}\n\n: ping\n\ndata: [DONE]\n\n') -> httpx.Response:
    return error(200, "text/event-stream; charset=utf-8", body)


@pytest.mark.parametrize("said", [error(), stream()])
def test_a_valid_answer_of_the_dialect_passes(said: httpx.Response) -> None:
    judge(said, CHAT)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (error(status=500), CHAT),
        (error(status=502), CHAT),
        (error(status=302), CHAT),
        (error(status=200), CHAT),
        (error(media_type="text/plain"), CHAT),
        (error(body=b"no"), CHAT),
        (error(body=b"[]"), CHAT),
        (error(body=b'{"error":{"message":NaN}}'), CHAT),
        (error(body=b'{"error":{"message":"","type":"x"}}'), MESSAGES),
        (error(body=REFUSED.replace(b'"no"', b'"' + b"x" * 5000 + b'"')), CHAT),
        (error(body=REFUSED.replace(b"no", b"internal server error: KeyError")), CHAT),
        (error(), MESSAGES),
        (stream(body=b'data: {"a":1}\n\n'), CHAT),
        (stream(body=stream().content[:-1]), CHAT),
        (stream(body=b"data: {\n\n" + stream().content), CHAT),
        (stream(body=b"lines\n\n" + stream().content), CHAT),
        (stream(body=b'data: {"type":"ping"}\n\n'), MESSAGES),
    ],
)
def test_an_unreadable_response_is_found(said: httpx.Response, path: str) -> None:
    with pytest.raises(InvalidResponse):
        judge(said, path)


async def test_a_fault_of_the_servers_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: object, body: object) -> ApiRequest:
        raise KeyError("messages")

    monkeypatch.setattr(type(DIALECTS[CHAT]), "read", raises)
    row = await measure_fuzz(3, 1, (CHAT,))
    assert "answered 500" in row.broken[0]
    assert not row.holds


async def test_an_error_that_only_the_log_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = type(DIALECTS[CHAT]).read

    def tells(self: Any, body: Any) -> ApiRequest:
        LOGGER.error("it went wrong")
        return read(self, body)

    monkeypatch.setattr(type(DIALECTS[CHAT]), "read", tells)
    row = await measure_fuzz(5, 1, (CHAT,))
    assert "it went wrong" in row.broken[0]


def test_requests_are_repeatable_and_bounded() -> None:
    def some(seed: int) -> list[EncodedRequest]:
        rng = Random(seed)
        bodies = BODIES[CHAT]
        return [
            encode_request(damage(rng.choice(bodies), bodies, rng), "pk", rng) for _ in range(300)
        ]

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert max(len(b"".join(request.pieces)) for request in some(1)) <= MAX_BYTES


def test_the_server_is_sent_every_kind_of_item_that_it_reads() -> None:
    with pytest.raises(ApiError) as refused:
        conversation([{"type": "another"}], "input", continues=False)
    read = str(refused.value).partition("expected one of ")[2].partition(";")[0].split(", ")
    sent = [item for body in BODIES["/v1/responses"] for item in body["input"]]
    assert {item.get("type", "message") for item in sent} == set(read)
