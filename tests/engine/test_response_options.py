"""What a client demands of the answer is honoured by the final step, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from podium.conductors import FixedConductor
from podium.core.errors import UsageError
from podium.core.events import Event, StepDelta
from podium.core.request import (
    UNKNOWN_USAGE,
    Delta,
    Image,
    Reply,
    Request,
    ResponseOptions,
    Text,
    Usage,
)
from podium.core.run import dump, load
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import FakeWorker

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
JSON = Options(response_options=ResponseOptions(schema=SCHEMA))
ALONE = Workflow((Step("a", "why?"),))
CHAIN = Workflow((Step("a", "think"), Step("b", "say", (0,))))
PICTURE = Image("image/png", "QUJD")


def runner(plan: Workflow, *workers: Worker) -> Runner:
    async def no_sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    call_policy = CallPolicy(RetryPolicy(), sleep=no_sleep)
    return Runner(FixedConductor(plan), workers, call_policy=call_policy)


def saying(name: str, *replies: str | Reply | Exception, fallback: str | None = None) -> FakeWorker:
    left = list(replies)
    return FakeWorker(
        name,
        lambda _: left.pop(0) if len(left) > 1 else left[0],
        can=("json", "sampling"),
        fallback=fallback,
    )


async def test_terms_go_to_the_final_step_and_effort_and_hints_to_every_one() -> None:
    a, b = saying("a", "thought"), saying("b", "said")
    response_options = ResponseOptions(
        max_tokens=9, temperature=0.5, top_p=0.9, seed=7, stop=("END",), effort="low"
    )
    response_options = replace(response_options, cache_key="mine", cache_ttl="1h")
    run = await runner(CHAIN, a, b).run("why?", options=Options(response_options=response_options))
    assert run.answer == "said"
    (first,), (final,) = a.requests, b.requests
    assert first == Request(first.messages, effort="low", cache_key="mine", cache_ttl="1h")
    assert final == Request(
        final.messages,
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        seed=7,
        stop=("END",),
        effort="low",
        cache_key="mine",
        cache_ttl="1h",
    )


async def test_a_final_worker_that_lacks_what_is_needed_is_replaced_and_the_round_says_so() -> None:
    a, b = FakeWorker("a"), saying("b", '{"n": 1}')
    run = await runner(ALONE, a, b).run("why?", options=JSON)
    assert (run.answer, a.asked) == ('{"n": 1}', [])
    assert run.rounds[0].warnings == ("a cannot write JSON to a schema, so b answers in its place",)


async def test_a_fallback_that_lacks_what_is_needed_is_passed_over() -> None:
    broken = UsageError("no")
    a = saying("a", broken, fallback="b")
    b = FakeWorker("b", fallback="c")
    run = await runner(ALONE, a, b, saying("c", '{"n": 3}')).run("why?", options=JSON)
    assert (run.answer, run.steps[0].answered_by, b.asked) == ('{"n": 3}', "c", [])


async def test_a_request_that_no_worker_supports_is_refused_before_any_call() -> None:
    fake = FakeWorker("a")
    with pytest.raises(UsageError, match="no worker of the pool can write JSON to a schema"):
        await runner(ALONE, fake).run("why?", options=JSON)
    assert fake.asked == []


async def test_a_reply_that_does_not_fit_is_asked_for_once_more_with_the_reason() -> None:
    fake = saying("a", '{"m": 1}', '{"n": 1}')
    run = await runner(ALONE, fake).run("why?", options=JSON)
    assert (run.status, run.answer) == ("answered", '{"n": 1}')
    assert len(list(run.calls)) == len(fake.requests) == 2
    _, wrong, asked = fake.requests[1].messages
    assert (wrong.role, wrong.text) == ("assistant", '{"m": 1}')
    assert "'n' is a required property" in asked.text
    assert fake.requests[1].schema == SCHEMA
    assert run.steps[0].turns == (wrong, asked)


async def test_a_reply_that_fits_no_better_the_second_time_fails_the_run() -> None:
    a, b = saying("a", "an earlier step's reply"), saying("b", "one", "two")
    run = await runner(CHAIN, a, b).run("why?", options=JSON)
    assert (run.status, run.answer, len(b.asked)) == ("failed", None, 2)
    assert "b was asked twice for JSON that fits the schema: it is not JSON" in (run.error or "")


async def test_a_fallback_is_asked_afresh_for_what_another_could_not_write() -> None:
    a, b = saying("a", "one", "two", fallback="b"), saying("b", '{"n": 2}')
    run = await runner(ALONE, a, b).run("why?", options=JSON)
    assert (run.answer, run.steps[0].turns) == ('{"n": 2}', ())
    assert len(b.requests[0].messages) == 1


@pytest.mark.parametrize("finish", ["length", "refused"])
async def test_a_reply_cut_off_or_refused_says_so_itself(finish: Any) -> None:
    fake = saying("a", Reply("I can", Usage(1, 1, 0, 0, 0), finish))
    run = await runner(ALONE, fake).run("why?", options=JSON)
    assert (run.answer, run.final_reply.finish, len(fake.asked)) == ("I can", finish, 1)


async def test_a_streamed_reply_is_sent_once_it_fits_its_schema() -> None:
    class Streaming(FakeWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            reply = await self.reply(request)
            yield Delta("hm", "thinking")
            for letter in reply.text:
                yield Delta(letter)
            yield reply

    left = ["no", '{"n": 1}']
    fake = Streaming("a", lambda _: left.pop(0), can=("json",))
    events: list[Event] = []
    await runner(ALONE, fake).run("why?", options=JSON, emit=events.append, stream=True)
    reported = [(e.text, e.thinking) for e in events if isinstance(e, StepDelta)]
    assert reported == [("hm", True), ("hm", True), ('{"n": 1}', False)]


async def test_only_the_final_step_must_fit_the_schema() -> None:
    a, b = saying("a", "free words"), saying("b", '{"n": 1}')
    run = await runner(CHAIN, a, b).run("why?", options=JSON)
    assert (run.answer, len(a.asked), a.requests[0].schema) == ('{"n": 1}', 1, None)


async def test_invalid_schemas_are_refused_at_once() -> None:
    fake = saying("a", "x")
    options = Options(response_options=ResponseOptions(schema={"type": "person"}))
    with pytest.raises(UsageError, match="expected a JSON Schema"):
        await runner(ALONE, fake).run("why?", options=options)
    with pytest.raises(UsageError, match="expected a JSON Schema"):
        await runner(ALONE, fake).plan("why?", options=options)
    assert fake.asked == []


async def test_terms_hold_for_the_run_nested_in_the_final_step_and_not_in_others() -> None:
    outer = Workflow((Step("conductor", "first"), Step("conductor", "last", (0,))))
    inner = Workflow((Step("a", "do"),))
    fake = saying("a", "notes", '{"n": 1}')
    engine = Runner(
        FixedConductor(outer),
        [fake, ConductorWorker()],
        nested_conductor=FixedConductor(inner),
    )
    run = await engine.run(
        "why?", options=Options(response_options=replace(JSON.response_options, effort="low"))
    )
    assert run.answer == '{"n": 1}'
    assert [(r.schema, r.effort) for r in fake.requests] == [(None, "low"), (SCHEMA, "low")]


async def test_images_go_only_to_workers_with_vision() -> None:
    plan = Workflow((Step("blind", "x"), Step("seeing", "y"), Step("blind", "z", (0, 1))))
    blind, seeing = FakeWorker("blind"), FakeWorker("seeing", can=("vision",))
    await runner(plan, blind, seeing).run("what is it?", options=Options(images=(PICTURE,)))
    assert seeing.requests[0].messages[0].parts[0] == PICTURE
    assert isinstance(seeing.requests[0].messages[0].parts[1], Text)
    for request in blind.requests:
        parts = [part for message in request.messages for part in message.parts]
        assert not any(isinstance(part, Image) for part in parts)


async def test_images_are_seen_in_nested_runs_too() -> None:
    seeing = FakeWorker("seeing", can=("vision",))
    engine = Runner(
        FixedConductor(Workflow((Step("conductor", "look"),))),
        [seeing, ConductorWorker()],
        nested_conductor=FixedConductor(Workflow((Step("seeing", "see"),))),
    )
    await engine.run("what is it?", options=Options(images=(PICTURE,)))
    assert seeing.requests[0].messages[0].parts[0] == PICTURE


async def test_a_fallback_of_a_worker_with_vision_needs_vision() -> None:
    eyes = FakeWorker("eyes", lambda _: UsageError("no"), fallback="blind", can=("vision",))
    blind = FakeWorker("blind", fallback="other")
    other = FakeWorker("other", lambda _: "a square", can=("vision",))
    plan = Workflow((Step("eyes", "look"), Step("blind", "say", (0,))))
    run = await runner(plan, eyes, blind, other).run(
        "what is it?", options=Options(images=(PICTURE,))
    )
    assert run.steps[0].answered_by == "other"
    assert len(blind.asked) == 1, "for its own step alone"


async def test_a_pool_that_cannot_see_refuses_images() -> None:
    with pytest.raises(UsageError, match="no worker of the pool can see images"):
        await runner(ALONE, FakeWorker("a")).run("what is it?", options=Options(images=(PICTURE,)))


async def test_hints_at_a_cache_reach_the_steps_of_nested_runs() -> None:
    fake = FakeWorker("a")
    engine = Runner(
        FixedConductor(Workflow((Step("conductor", "first"), Step("a", "last", (0,))))),
        [fake, ConductorWorker()],
        nested_conductor=FixedConductor(ALONE),
    )
    await engine.run("why?", options=Options(response_options=ResponseOptions(cache_key="mine")))
    assert [request.cache_key for request in fake.requests] == ["mine", "mine"]


async def test_the_stop_sequence_that_ended_the_answer_is_on_the_run() -> None:
    ended = Reply("a", UNKNOWN_USAGE, stop_sequence="END")
    options = Options(response_options=ResponseOptions(stop=("END",)))
    run = await runner(ALONE, saying("a", ended)).run("why?", options=options)
    assert load(dump(run)).final_reply.stop_sequence == "END"
    nesting = Runner(
        FixedConductor(Workflow((Step("conductor", "do"),))),
        [saying("a", ended), ConductorWorker()],
        nested_conductor=FixedConductor(ALONE),
    )
    assert (await nesting.run("why?", options=options)).final_reply.stop_sequence == "END"
    plain = await runner(ALONE, FakeWorker("a")).run("why?")
    assert plain.final_reply.stop_sequence == ""
