"""The fuzzers find what they look for, and find none of it here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from benchmarks.asgi import HttpResponse, InvalidResponse
from benchmarks.fuzz import (
    Finding,
    FuzzRow,
    combine,
    fuzz_bodies,
    fuzz_histories,
    fuzz_plans,
    histories,
    plans,
)
from benchmarks.fuzz.plans import LONGEST, SEEDS, mutated
from benchmarks.fuzz.requests import BODIES, MAX_BYTES, Sent, damaged, sent
from benchmarks.fuzz.server import CHAT, MESSAGES, campaign, judge
from podium.conductors.plan import ParsedPlan, parse
from podium.core.errors import MalformedPlan
from podium.core.workflow import Step, Workflow
from podium.server.answers import tiers
from podium.server.answers.conversation import Fingerprint
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest
from podium.server.dialects.responses_input import conversation
from podium.server.logs import LOGGER
from podium.server.startup import DIALECTS

ENOUGH_SECONDS = 60.0


def test_thousands_of_odd_plans_are_survived_in_linear_time() -> None:
    row = fuzz_plans(2500, ENOUGH_SECONDS, seed=7)
    assert row.findings == ()
    assert row.inputs == 2500
    assert row.corpus > len(SEEDS)
    assert row.slowest_growth is not None
    assert row.slowest_growth <= plans.GROWTH_ALLOWED


def test_a_campaign_ends_when_its_time_is_up() -> None:
    began = time.perf_counter()
    row = fuzz_plans(10**9, 0.3, seed=1)
    assert 0 < row.inputs < 10**9
    assert time.perf_counter() - began < 10


def test_processes_share_a_campaign() -> None:
    row = fuzz_plans(300, 2.0, 3, processes=2)
    assert 0 < row.inputs <= 300
    assert row.findings == ()


def broken(trouble: Callable[[str], None]) -> Callable[..., ParsedPlan]:
    """The parser with something wrong in it."""

    def reading(text: str, *arguments: object, **options: bool) -> ParsedPlan:
        trouble(text)
        return parse(text, *arguments, **options)  # type: ignore[arg-type]

    return reading


def raises_on_closed_thoughts(text: str) -> None:
    if "</thinking>" in text:
        raise IndexError("string index out of range")


def dawdles_on_braces(text: str) -> None:
    until = time.thread_time() + 1e-10 * text.count("{") ** 2
    while time.thread_time() < until:
        pass


def test_what_a_parser_must_not_raise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "parse", broken(raises_on_closed_thoughts))
    row = fuzz_plans(3000, ENOUGH_SECONDS, seed=1)
    assert "IndexError" in row.findings[0].broken
    assert "</thinking>" in row.findings[0].input


def test_time_that_grows_faster_than_the_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "parse", broken(dawdles_on_braces))
    one = plans.PlanCampaign(Random(1))
    assert one.slowest_growth(0, time.perf_counter() + ENOUGH_SECONDS) > plans.GROWTH_ALLOWED
    assert "times as long" in one.findings[0].broken


def test_a_text_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleepy(text: str) -> None:
        until = time.thread_time() + (0.02 if text.startswith("I would") else 0)
        while time.thread_time() < until:
            pass

    monkeypatch.setattr(plans, "parse", broken(sleepy))
    one = plans.PlanCampaign(Random(1))
    one.run(2, time.perf_counter() + ENOUGH_SECONDS)
    assert "took" in one.findings[0].broken


@pytest.mark.parametrize(
    "wrong",
    [
        ParsedPlan(Workflow((Step("nobody", "a"),))),
        ParsedPlan(Workflow((Step("gpt-5", "a"),) * 6)),
        ParsedPlan(Workflow((Step("gpt-5", "\ud800"),))),
        ParsedPlan(None),
    ],
    ids=["a worker outside the pool", "too long", "not to be sent", "an answer that is not there"],
)
def test_a_workflow_that_is_not_valid_is_found(
    monkeypatch: pytest.MonkeyPatch, wrong: ParsedPlan
) -> None:
    monkeypatch.setattr(plans, "parse", lambda *_, **__: wrong)
    one = plans.PlanCampaign(Random(1))
    one.run(1, time.perf_counter() + ENOUGH_SECONDS)
    assert one.findings


@pytest.mark.parametrize("problem", [("plan", "\ud800"), ("plan", "x" * 500), ("nowhere", "x")])
def test_an_error_that_says_too_much_or_cannot_be_written_is_found(
    monkeypatch: pytest.MonkeyPatch, problem: tuple[str, str]
) -> None:
    def refuse(*_: object, **__: object) -> ParsedPlan:
        raise MalformedPlan(*problem)

    monkeypatch.setattr(plans, "parse", refuse)
    one = plans.PlanCampaign(Random(1))
    one.run(1, time.perf_counter() + ENOUGH_SECONDS)
    assert one.findings


def test_mutations_are_repeatable_and_bounded() -> None:
    def some(seed: int) -> list[str]:
        chance = Random(seed)
        return [mutated(chance.choice(SEEDS), chance.choice(SEEDS), chance) for _ in range(500)]

    assert some(1) == some(1)
    assert some(1) != some(2)
    assert max(map(len, some(1))) <= LONGEST


def test_rows_of_processes_come_together() -> None:
    rows = [
        FuzzRow(inputs=10, seconds=1.0, corpus=5, slowest_growth=2.0),
        FuzzRow(inputs=20, seconds=2.0, findings=(Finding("x", "y"),), corpus=3),
    ]
    row = combine(rows, 2.0)
    assert (row.inputs, row.corpus, row.slowest_growth) == (30, 5, 2.0)
    assert row.per_second == 15
    assert len(row.findings) == 1
    assert str(row.findings[0]) == "x: y"


def test_hundreds_of_odd_requests_in_each_dialect_are_answered() -> None:
    row = fuzz_bodies(400, seed=7)
    assert row.findings == ()
    assert row.inputs == 1200
    assert row.corpus > 10


ERROR = HttpResponse(
    400,
    "application/json",
    b'{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}',
)
STREAM = HttpResponse(
    200, "text/event-stream; charset=utf-8", b'data: {"a":1}\n\n: ping\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize("said", [ERROR, STREAM])
def test_an_answer_of_its_dialect_is_fit(said: HttpResponse) -> None:
    judge(said, CHAT)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (replace(ERROR, status=500), CHAT),
        (replace(ERROR, status=502), CHAT),
        (replace(ERROR, status=302), CHAT),
        (replace(ERROR, status=200), CHAT),
        (replace(ERROR, media_type="text/plain"), CHAT),
        (replace(ERROR, body=b"no"), CHAT),
        (replace(ERROR, body=b"[]"), CHAT),
        (replace(ERROR, body=b'{"error":{"message":NaN}}'), CHAT),
        (replace(ERROR, body=b'{"error":{"message":"","type":"x"}}'), MESSAGES),
        (replace(ERROR, body=ERROR.body.replace(b'"no"', b'"' + b"x" * 5000 + b'"')), CHAT),
        (replace(ERROR, body=ERROR.body.replace(b"no", b"internal server error: KeyError")), CHAT),
        (ERROR, MESSAGES),
        (replace(STREAM, body=b'data: {"a":1}\n\n'), CHAT),
        (replace(STREAM, body=STREAM.body[:-1]), CHAT),
        (replace(STREAM, body=b"data: {\n\n" + STREAM.body), CHAT),
        (replace(STREAM, body=b"lines\n\n" + STREAM.body), CHAT),
        (replace(STREAM, body=b'data: {"type":"ping"}\n\n'), MESSAGES),
    ],
)
def test_an_unreadable_response_is_found(said: HttpResponse, path: str) -> None:
    with pytest.raises(InvalidResponse):
        judge(said, path)


async def test_a_fault_of_the_servers_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: object, body: object) -> ApiRequest:
        raise KeyError("messages")

    monkeypatch.setattr(type(DIALECTS[CHAT]), "read", raises)
    row = await campaign(3, 1, (CHAT,))
    assert "answered 500" in row.findings[0].broken


async def test_an_error_that_only_the_log_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = type(DIALECTS[CHAT]).read

    def tells(self: Any, body: Any) -> ApiRequest:
        LOGGER.error("it went wrong")
        return read(self, body)

    monkeypatch.setattr(type(DIALECTS[CHAT]), "read", tells)
    row = await campaign(5, 1, (CHAT,))
    assert "it went wrong" in row.findings[0].broken


def test_requests_are_repeatable_and_bounded() -> None:
    def some(seed: int) -> list[Sent]:
        chance = Random(seed)
        bodies = BODIES[CHAT]
        return [
            sent(damaged(chance.choice(bodies), bodies, chance), "pk", chance) for _ in range(300)
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


def test_a_memory_makes_no_difference_to_what_a_worker_is_sent() -> None:
    row = fuzz_histories(300, seed=1)
    assert row.findings == ()
    assert row.inputs >= 300
    assert row.corpus > 30, "some requests resume a run that waits"


@pytest.mark.parametrize(
    ("owner", "name"), [(Fingerprint, "of"), (tiers, "continues")], ids=["settings", "calls"]
)
async def test_a_run_that_is_resumed_with_another_conversation_is_found(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always: Any = Fingerprint("any", "thing") if name == "of" else True
    monkeypatch.setattr(owner, name, lambda *_: always)
    assert (await histories.campaign(300, seed=1)).findings
