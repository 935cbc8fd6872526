from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.chaos import wire
from benchmarks.chaos.client import Response, post
from benchmarks.chaos.report import ChaosFigures, ChaosRow
from benchmarks.chaos.upstream import (
    ANSWER,
    WIRE_FAULTS,
    UpstreamOptions,
    chaos_upstream,
    read_counts,
    tokens_of,
)
from benchmarks.chaos.wire import ClientCounts, judge, litellm_document, measure_wire

MARK = "chaos-000007"


def told(text: str = ANSWER, usage: Mapping[str, int] | None = None, **more: object) -> Response:
    fields: dict[str, object] = {"status": 200, "is_whole": True, "error": "", **more}
    return Response(text=text, usage=usage, **fields)  # type: ignore[arg-type]


async def test_podium_answers_every_request_although_a_fifth_of_its_calls_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_peer(*_: object) -> None:
        return None

    monkeypatch.setattr(wire, "prepare", no_peer)
    monkeypatch.setattr(wire, "SHARE", 0.3)
    ours, proxy = await measure_wire(24, seed=2, on_progress=pytest.fail)
    assert ours.holds, ours
    assert ours.figures["faults_upstream"] != 0
    assert (proxy.name, proxy.runs) == ("LiteLLM", 0)
    assert proxy.not_tried


async def test_a_quick_look_says_that_the_proxy_was_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def no_requests(name: str, *_: object) -> ChaosRow:
        return ChaosRow(name=name, runs=1)

    monkeypatch.setattr(wire, "_through", no_requests)
    ours, proxy = await measure_wire(1, seed=1, on_progress=pytest.fail, is_quick=True)
    text = ChaosFigures(parts=[ours], peers=[proxy]).as_text()
    assert "not tried: not with --quick" in text


def test_an_answer_is_right_only_to_the_letter_and_the_token() -> None:
    counts = ClientCounts()
    read, written = tokens_of(MARK)
    judge(told(usage={"prompt_tokens": read, "completion_tokens": written}), MARK, counts)
    judge(told(usage={"prompt_tokens": read, "completion_tokens": 0}), MARK, counts)
    judge(told(), MARK, counts)
    judge(told(ANSWER[:-1]), MARK, counts)
    judge(told(is_whole=False), MARK, counts)
    judge(told(error="overloaded"), MARK, counts)
    judge(told(status=502, error="no worker"), MARK, counts)
    assert (counts.right, counts.wrong) == (3, 1)
    assert (counts.usage_right, counts.usage_wrong, counts.usage_missing) == (1, 1, 1)
    assert counts.errors == {"200, broken off": 1, "overloaded": 1, "no worker": 1}


def test_both_contestants_try_as_often_and_have_the_same_second() -> None:
    settings = litellm_document(1)["router_settings"]
    assert settings == {"num_retries": 3, "fallbacks": [{"first": ["second"]}]}


def test_faults_depend_on_the_question_and_the_try_alone() -> None:
    options = UpstreamOptions(fault_share=0.2, seed=4)
    drawn = [options.fault_of(f"chaos-{n:06d}", 0) for n in range(2000)]
    assert drawn == [options.fault_of(f"chaos-{n:06d}", 0) for n in range(2000)]
    assert {*WIRE_FAULTS, ""} == set(drawn)
    assert 0.17 < sum(map(bool, drawn)) / len(drawn) < 0.23
    assert drawn != [options.fault_of(f"chaos-{n:06d}", 1) for n in range(2000)]


@pytest.mark.parametrize("stream", [False, True])
async def test_every_fault_of_the_upstream_is_seen_as_one_by_a_plain_client(stream: bool) -> None:
    seen = set()
    async with chaos_upstream(UpstreamOptions(fault_share=0.9, seed=1)) as port:
        for number in range(30):
            document = {
                "model": "first",
                "messages": [{"role": "user", "content": f"chaos-{number:06d}"}],
                "stream": stream,
            }
            fault = UpstreamOptions(fault_share=0.9, seed=1).fault_of(f"chaos-{number:06d}", 0)
            if fault == "latency":
                continue
            try:
                response = await post(port, document, {}, 10)
            except (OSError, EOFError):
                seen.add(fault)
                continue
            assert response.is_answer is not bool(fault), fault
            seen.add(fault)
        counts = (await read_counts(port)).faults
    assert seen >= set(counts)
    assert {"reset", "truncated", "malformed_json", "server_error"} <= seen


async def test_a_request_with_a_partial_answer_gets_the_rest() -> None:
    async with chaos_upstream(UpstreamOptions()) as port:
        begun = ANSWER[:9]
        messages = [
            {"role": "user", "content": MARK},
            {"role": "assistant", "content": begun},
            {"role": "user", "content": "go on"},
        ]
        for stream in (False, True):
            document = {"model": "first", "messages": messages, "stream": stream}
            assert begun + (await post(port, document, {}, 10)).text == ANSWER
