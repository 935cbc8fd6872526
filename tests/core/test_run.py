from __future__ import annotations

import json
from dataclasses import replace

import pytest

from podium.core.budget import recorded_spending
from podium.core.errors import StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import (
    UNKNOWN_USAGE,
    Image,
    Message,
    ResponseOptions,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.run import Attempt, Round, Run, StepRecord, dump, load
from podium.core.workflow import Step, Workflow

CALL = Attempt("a", Usage(10, 5, 0, 0, 0), 0.25, 0.0, 8.0)
PLANNING = Attempt("boss", Usage(100, 20, 0, 0, 0), 1.0, 0.0, 4.0)


def step(index: int, *attempts: Attempt, nested: tuple[Run, ...] = ()) -> StepRecord:
    return StepRecord(
        0,
        index,
        "a",
        "do it",
        (),
        "done",
        "reply",
        None,
        0.0,
        9.0,
        attempts,
        "prompt",
        "a",
        nested=nested,
    )


def run(*steps: StepRecord, planning: tuple[Attempt, ...] = ()) -> Run:
    plan = Workflow(tuple(Step("a", "do it") for _ in steps))
    return Run(
        id="run_1",
        question="why?",
        status="answered",
        pool=Pool((WorkerProfile(name="a"),)),
        conductor="test",
        created_at="2026-01-01T00:00:00+00:00",
        rounds=(Round(0, plan, steps, planning),),
        answer="reply",
    )


def test_totals_are_the_sum_over_every_call_nested_ones_and_planning_included() -> None:
    inner = run(step(0, CALL), planning=(PLANNING,))
    outer = run(step(0, CALL, CALL), step(1, nested=(inner,)), planning=(PLANNING,))
    assert outer.usage == Usage(230, 55, 0, 0, 0)
    assert outer.orchestration == Usage(200, 40, 0, 0, 0)
    assert outer.cost_usd == pytest.approx(2.75)
    assert recorded_spending(outer).calls == 5


def test_one_call_of_unknown_usage_makes_the_totals_unknown() -> None:
    unknown = Attempt("a", UNKNOWN_USAGE, None, 0.0, 1.0, "broken off")
    result = run(step(0, unknown, CALL))
    assert result.usage.total_tokens is None
    assert result.cost_usd is None


def test_a_run_survives_json_with_every_kind_of_part() -> None:
    history = (
        Message("user", (Text("look"), Image("image/png", "QUJD"), Image(url="https://x/y"))),
        Message("assistant", (Thinking("hm", "sig", "m"), ToolCall("1", "f", "{}"))),
        Message("tool", (ToolResult("1", "42", True),)),
    )
    original = replace(
        run(step(0, CALL, nested=(run(step(0, CALL)),)), waiting(*history)),
        history=history,
        images=(Image("image/png", "QUJD"),),
        response_options=ResponseOptions(
            stop=("END",), tools=(Tool("f", "does f", {"type": "object"}),), seed=7
        ),
        owner="key_1",
    )
    assert load(json.loads(json.dumps(dump(original)))) == original


def waiting(*turns: Message, nested: tuple[Run, ...] = ()) -> StepRecord:
    return replace(step(0, CALL, nested=nested), status="waiting", turns=turns)


def test_a_waiting_run_names_every_call_that_is_not_answered_also_those_of_nested_runs() -> None:
    first, second, third = (ToolCall(name, "f", "{}") for name in "123")
    inner = replace(run(waiting(Message("assistant", (third,)))), status="waiting")
    outer = run(
        waiting(Message("assistant", (first, second)), Message("tool", (ToolResult("1", "x"),))),
        replace(waiting(nested=(inner,)), index=1),
    )
    assert replace(outer, status="waiting").waiting_for == (second, third)
    assert (outer.waiting_for, outer.pending_tool_calls) == ((), (second, third))


def test_calls_of_earlier_turns_are_not_waited_for() -> None:
    turns = (
        Message("assistant", (ToolCall("1", "f", "{}"),)),
        Message("tool", (ToolResult("1", "42"),)),
    )
    assert run(waiting(*turns)).pending_tool_calls == ()


def test_the_final_finish_is_why_the_answer_ended() -> None:
    answered = run(replace(step(0, CALL), finish="refused"))
    assert answered.final_reply.finish == "refused"
    assert replace(answered, status="waiting").final_reply.finish == "tool"
    assert run(replace(step(0, CALL), status="cancelled")).final_reply.finish == "length"
    assert run(replace(step(0, CALL), status="failed")).final_reply.finish == "length"
    assert replace(answered, rounds=(), answer=None).final_reply.finish == "stop"


def test_an_answer_that_is_not_its_steps_reply_word_for_word_ended_as_the_reply_did() -> None:
    done = replace(step(0, CALL), reply="To [e-mail 1].", stop_sequence="END")
    restored = replace(run(done), answer="To ada@example.com.")
    assert (restored.final_reply.finish, restored.final_reply.stop_sequence) == ("stop", "END")
    cut = replace(restored, rounds=run(replace(done, finish="length")).rounds)
    assert cut.final_reply.finish == "length"


def test_an_answer_that_broke_off_while_streaming_was_cut_off() -> None:
    result = replace(step(1), status="failed", reply="half")
    broken = replace(run(step(0, CALL), result), status="partial", answer="half")
    assert (broken.final_reply.finish, broken.final_reply.stop_sequence) == ("length", "")


@pytest.mark.parametrize("version", [0, 99, "1", None])
def test_a_run_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(StoreError, match=f"version {version!r}, expected 1"):
        load(dump(run(step(0, CALL))) | {"version": version})


def test_a_damaged_run_is_refused_as_such() -> None:
    document = dump(run(step(0, CALL)))
    document["rounds"][0]["workflow"]["steps"][0]["access"] = [7]
    with pytest.raises(StoreError, match="cannot be read: step 0 may not read step 7"):
        load(document)
    with pytest.raises(StoreError, match="cannot be read"):
        load({"version": 1})
