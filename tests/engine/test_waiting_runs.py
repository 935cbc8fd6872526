"""Runs that call tools of the client: they wait, and go on where they stood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

import pytest

from podium.conductors import FixedConductor
from podium.core.budget import Budget
from podium.core.conductor import Conductor
from podium.core.errors import RequestRefused, UsageError
from podium.core.events import (
    Event,
    RoundDone,
    RunDone,
    StepDelta,
    StepDone,
    StepProgress,
    ToolUsed,
)
from podium.core.pool import Capability
from podium.core.request import (
    Delta,
    Image,
    Message,
    Reply,
    Request,
    ResponseOptions,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    unanswered_calls,
)
from podium.core.run import ClientRequest, Run, dump, load
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy, Toolbox
from podium.engine.requests import prompt_text
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import Behaviour, FakeWorker

LOOK = Tool("look", "looks something up", {"type": "object"})
TERMS = ResponseOptions(tools=(LOOK,))
TWO_VIEWS = Workflow((Step("a", "one"), Step("b", "two"), Step("c", "both", (0, 1))))
TOOLS: Final[tuple[Capability, ...]] = ("tools",)
USED = Usage(1, 1, 0, 0, 0)


def calling(*ids: str, text: str = "", name: str = "look") -> Reply:
    calls = tuple(ToolCall(i, name, "{}") for i in ids)
    return Reply(text, USED, "tool", calls, (Thinking("hm", "sealed", "a"),))


def texts_of(request: Request) -> list[str]:
    """The results that the request hands back, in order."""
    return [p.text for m in request.messages for p in m.parts if isinstance(p, ToolResult)]


def user_of_tools(name: str, *turns: Reply | str) -> FakeWorker:
    """Gives these replies in turn."""
    left = list(turns)
    return FakeWorker(name, lambda _: left.pop(0), can=TOOLS)


def results(run: Run, text: str = "found") -> tuple[ToolResult, ...]:
    return tuple(ToolResult(call.id, f"{text} for {call.id}") for call in run.waiting_for)


def runner(
    plan: Workflow | Conductor,
    *workers: Worker,
    toolbox: Toolbox | None = None,
    nested: Conductor | None = None,
) -> Runner:
    async def no_sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    conductor = FixedConductor(plan) if isinstance(plan, Workflow) else plan
    call_policy = CallPolicy(RetryPolicy(), sleep=no_sleep)
    return Runner(
        conductor, workers, call_policy=call_policy, toolbox=toolbox, nested_conductor=nested
    )


ALONE = Workflow((Step("a", "why?"),))
OPTIONS = Options(response_options=TERMS)


async def test_a_tool_call_suspends_the_run_and_its_result_takes_up_that_very_step() -> None:
    fake = user_of_tools("a", calling("1", text="Let me see."), "It is 42.")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    assert (run.status, run.final_reply.finish, run.error) == ("waiting", "tool", None)
    assert run.answer == "Let me see."
    assert [call.id for call in run.waiting_for] == ["1"]
    again = await engine.resume(load(dump(run)), results=results(run))
    assert (again.status, again.answer, again.final_reply.finish) == (
        "answered",
        "It is 42.",
        "stop",
    )
    assert len(fake.asked) == len(list(again.calls)) == again.spent.calls == 2
    asked, called, answered = fake.requests[1].messages
    assert asked == fake.requests[0].messages[0]
    assert called.parts[1:] == (Text("Let me see."), ToolCall("1", "look", "{}"))
    assert answered == Message("tool", (ToolResult("1", "found for 1"),))
    assert again.steps[0].turns == (called, answered)


async def test_thinking_comes_before_the_calls_and_goes_only_to_the_model_that_made_it() -> None:
    thinker = FakeWorker("a", fallback="b", can=TOOLS)
    thinker.behaviour = _then_refused(thinker)
    other = user_of_tools("b", "done")
    engine = runner(ALONE, thinker, other)
    run = await engine.run("why?", options=OPTIONS)
    again = await engine.resume(run, results=results(run))
    assert isinstance(thinker.requests[1].messages[1].parts[0], Thinking)
    assert again.steps[0].answered_by == "b"
    assert texts_of(other.requests[0]) == ["found for 1"]
    parts = [part for message in other.requests[0].messages for part in message.parts]
    assert not any(isinstance(part, Thinking) for part in parts)


def _then_refused(fake: FakeWorker) -> Behaviour:
    return lambda _: calling("1") if len(fake.requests) == 1 else RequestRefused("no")


async def test_finished_steps_are_not_asked_again() -> None:
    a, b = user_of_tools("a", "one"), user_of_tools("b", "two")
    c = user_of_tools("c", calling("1"), "both")
    engine = runner(TWO_VIEWS, a, b, c)
    events: list[Event] = []
    run = await engine.run("why?", options=OPTIONS, emit=events.append)
    assert [step.status for step in run.steps] == ["done", "done", "waiting"]
    assert run.answer is None
    assert not any(isinstance(event, RoundDone) for event in events)
    assert isinstance(events[-1], RunDone)
    again = await engine.resume(run, results=results(run))
    assert (again.status, again.answer) == ("answered", "both")
    assert [len(fake.asked) for fake in (a, b, c)] == [1, 1, 2]


async def test_a_resumed_run_keeps_its_earlier_responses() -> None:
    engine = runner(ALONE, user_of_tools("a", calling("1", text="Looking."), calling("2"), "done"))
    run = await engine.run("why?", options=replace(OPTIONS, request=ClientRequest("first")))
    assert (run.request.fingerprint, run.earlier_responses) == ("first", ())
    for fingerprint in ("second", "third"):
        run = await engine.resume(
            load(dump(run)), results=results(run), request=ClientRequest(fingerprint)
        )
    first, second = load(dump(run)).earlier_responses
    assert run.request.fingerprint == "third"
    assert (first.request.fingerprint, second.request.fingerprint) == ("first", "second")
    assert (first.text, first.usage.input_tokens) == ("Looking.", 1)
    assert first.thinking == (Thinking("hm", "sealed", "a"),)
    assert first.results == (ToolResult("1", "found for 1"),)
    assert [call.id for call in second.tool_calls] == ["2"]
    assert second.usage.input_tokens == 2


async def test_several_turns_each_wait_and_go_on() -> None:
    fake = user_of_tools("a", calling("1"), calling("2"), calling("3"), "done")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    for turn in range(3):
        assert run.status == "waiting"
        assert len(run.steps[0].turns) == 2 * turn + 1
        run = await engine.resume(run, results=results(run))
    assert run.answer == "done"
    assert run.spent.calls == run.usage.input_tokens == 4


async def test_tool_calls_with_one_id_get_distinct_ids() -> None:
    fake = user_of_tools("a", calling("1", "1"), calling("1"), "done")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    ids = [call.id for call in run.waiting_for]
    run = await engine.resume(run, results=results(run))
    ids += [call.id for call in run.waiting_for]
    assert len(set(ids)) == 3
    run = await engine.resume(run, results=results(run))
    assert texts_of(fake.requests[2]) == [f"found for {i}" for i in ids]
    assert run.status == "answered"


async def test_a_call_in_a_nested_run_is_answered_there() -> None:
    inner = Workflow((Step("a", "look"), Step("b", "say", (0,))))
    outer = Workflow((Step("c", "find out"), Step("conductor", "tell", (0,))))
    a, c = user_of_tools("a", "found it"), user_of_tools("c", "there")
    b = user_of_tools("b", calling("1"), "it is there")
    engine = runner(outer, a, b, c, ConductorWorker(), nested=FixedConductor(inner))
    run = await engine.run("why?", options=OPTIONS)
    assert run.status == run.steps[1].nested[0].status == "waiting"
    again = await engine.resume(load(dump(run)), results=results(run))
    assert (again.status, again.answer) == ("answered", "it is there")
    assert [len(fake.asked) for fake in (a, b, c)] == [1, 2, 1]
    assert len(again.steps[1].nested) == 1
    assert len(list(again.calls)) == again.spent.calls == 4


async def test_a_failed_step_stays_failed_when_the_run_continues_with_results() -> None:
    a = user_of_tools("a", "one")
    b = FakeWorker("b", lambda _: RequestRefused("no"))
    c = user_of_tools("c", calling("1"), "one view")
    engine = runner(TWO_VIEWS, a, b, c)
    run = await engine.run("why?", options=OPTIONS)
    again = await engine.resume(run, results=results(run))
    assert (again.answer, len(b.asked)) == ("one view", 1)
    assert again.error == "step 1 (b) failed: no"


async def test_the_budget_covers_all_turns() -> None:
    fake = user_of_tools("a", calling("1"), calling("2"), "never")
    engine = runner(ALONE, fake)
    options = replace(OPTIONS, budget=Budget(calls=2))
    run = await engine.run("why?", options=options)
    run = await engine.resume(run, results=results(run))
    assert (run.status, run.spent.calls) == ("waiting", 2)
    run = await engine.resume(run, results=results(run))
    assert (run.status, run.spent.calls, len(fake.asked)) == ("exhausted", 2, 2)
    with_more = await engine.resume(run, budget=Budget(calls=3))
    assert with_more.answer == "never"
    assert texts_of(fake.requests[2]) == ["found for 1", "found for 2"]


async def test_a_resumed_run_that_is_interrupted_does_not_lose_its_results() -> None:
    class Stuck(FakeWorker):
        async def reply(self, request: Request) -> Reply:
            if texts_of(request) and len(self.requests) < 2:
                self.requests.append(request)
                await asyncio.Event().wait()
            return await super().reply(request)

    fake = Stuck("a", can=TOOLS)
    fake.behaviour = lambda request: "done" if texts_of(request) else calling("1")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    events: list[Event] = []
    task = asyncio.create_task(engine.resume(run, results=results(run), emit=events.append))
    while len(fake.requests) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(events[-1], RunDone)
    cut = events[-1].run
    assert (cut.status, cut.waiting_for) == ("interrupted", ())
    again = await engine.resume(cut)
    assert again.answer == "done"
    assert texts_of(fake.requests[-1]) == ["found for 1"]


async def test_a_run_interrupted_while_a_step_waits_continues_to_wait() -> None:
    fake = user_of_tools("a", calling("1"), "done")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    again = await engine.resume(replace(run, status="interrupted"))
    assert (again.status, len(fake.asked)) == ("waiting", 1)
    assert (await engine.resume(again, results=results(again))).answer == "done"


async def test_results_must_be_those_that_the_run_waits_for() -> None:
    engine = runner(ALONE, user_of_tools("a", calling("1"), "x"))
    run = await engine.run("why?", options=OPTIONS)
    with pytest.raises(UsageError, match="'other'"):
        await engine.resume(run, results=(ToolResult("other", "x"),))
    with pytest.raises(UsageError, match="waits for the results of 1"):
        await engine.resume(run)


async def test_a_worker_that_was_offered_no_tools_and_calls_one_has_failed() -> None:
    run = await runner(ALONE, FakeWorker("a", lambda _: calling("1"))).run("why?")
    assert (run.status, run.error) == (
        "failed",
        "step 0 (a) failed: a called look, but was offered no tools",
    )


async def test_the_clients_tools_and_their_choice_go_to_the_final_step_alone() -> None:
    a, b, c = user_of_tools("a", "1"), FakeWorker("b", lambda _: "2"), user_of_tools("c", "3")
    response_options = replace(TERMS, tool_choice="look", parallel_tools=False)
    await runner(TWO_VIEWS, a, b, c).run("why?", options=Options(response_options=response_options))
    offered = [(w.requests[0].tools, w.requests[0].tool_choice) for w in (a, b, c)]
    assert offered == [((), ""), ((), ""), ((LOOK,), "look")]


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_the_tool_choice_holds_on_every_request(choice: str) -> None:
    fake = user_of_tools("a", calling("1"), "done")
    engine = runner(ALONE, fake)
    options = Options(response_options=replace(TERMS, tool_choice=choice))
    run = await engine.run("why?", options=options)
    await engine.resume(run, results=results(run))
    assert [request.tool_choice for request in fake.requests] == [choice, choice]


async def test_a_call_of_podiums_own_tool_satisfies_a_required_choice() -> None:
    fake = user_of_tools("a", calling("1", name="add"), "done")
    options = Options(response_options=replace(TERMS, tool_choice="required"))
    await runner(ALONE, fake, toolbox=Box()).run("why?", options=options)
    assert [request.tool_choice for request in fake.requests] == ["required", "auto"]


CALLED = (
    Message("assistant", (ToolCall("9", "look", "{}"),)),
    Message("tool", (ToolResult("9", "seen"),)),
)


async def test_messages_after_the_question_follow_the_final_prompt() -> None:
    a, b, c = user_of_tools("a", "one"), user_of_tools("b", "two"), user_of_tools("c", "both")
    earlier = (Message("user", (Text("hello"),)), Message("assistant", (Text("hi"),)))
    run = await runner(TWO_VIEWS, a, b, c).run(
        "why?", options=replace(OPTIONS, history=earlier, trailing_messages=CALLED)
    )
    assert run.answer == "both"
    messages = c.requests[0].messages
    assert messages[:2] == earlier
    asked = f"{prompt_text('final.txt')}\n\n<question>\nwhy?\n</question>"
    assert messages[2].text.endswith(asked)
    assert messages[3:] == CALLED
    seen = a.requests[0].messages
    assert [message.text for message in seen[:3]] == ["hello", "hi", "why?"]
    assert [message.text for message in seen[3:5]] == [
        "[called the tool look with {}]",
        "[the tool look answered: seen]",
    ]
    assert load(dump(run)).trailing_messages == CALLED


async def test_the_start_of_an_answer_is_the_last_message_to_the_final_worker() -> None:
    fake = user_of_tools("a", " 42.")
    start = Message("assistant", (Text("It is"),))
    await runner(ALONE, fake).run("why?", options=Options(trailing_messages=(start,)))
    assert fake.requests[0].messages == (Message("user", (Text("why?"),)), start)


async def test_messages_after_the_question_reach_a_nested_final_run() -> None:
    outer = Workflow((Step("conductor", "why?"),))
    fake = user_of_tools("a", "done")
    engine = runner(outer, fake, ConductorWorker(), nested=FixedConductor(ALONE))
    await engine.run("why?", options=replace(OPTIONS, trailing_messages=CALLED))
    assert fake.requests[0].messages[-2:] == CALLED


class Box:
    """Tools of Podium's own, for tests."""

    tools = (Tool("add", "adds", {"type": "object"}), Tool("fail", "fails", {"type": "object"}))

    def __init__(self) -> None:
        self.used: list[ToolCall] = []

    async def call(self, call: ToolCall) -> ToolResult:
        self.used.append(call)
        await asyncio.sleep(0)
        if call.name == "fail":
            raise ValueError("no")
        return ToolResult("", f"sum of {call.id}")


async def test_podiums_own_tools_answer_inside_the_step_and_every_use_is_kept() -> None:
    fake = user_of_tools("a", calling("1", "2", name="add"), calling("3", name="fail"), "6")
    box = Box()
    events: list[Event] = []
    engine = runner(ALONE, fake, toolbox=box)
    run = await engine.run("why?", options=Options(budget=Budget(calls=6)), emit=events.append)
    assert (run.status, run.answer) == ("answered", "6")
    assert texts_of(fake.requests[2]) == ["sum of 1", "sum of 2", "ValueError: no"]
    assert [m.role for m in run.steps[0].turns] == ["assistant", "tool", "assistant", "tool"]
    assert unanswered_calls(run.steps[0].turns) == ()
    assert run.spent.calls == 6
    assert len(list(run.calls)) == 3
    tool_uses = [event for event in events if isinstance(event, ToolUsed)]
    assert [(use.call.id, use.result.is_error) for use in tool_uses] == [
        ("1", False),
        ("2", False),
        ("3", True),
    ]
    noted = [event.step for event in events if isinstance(event, StepProgress)]
    assert [len(step.turns) for step in noted] == [2, 4]


async def test_tool_calls_count_as_calls_of_the_budget() -> None:
    fake = user_of_tools("a", calling("1", "2", name="add"), "never")
    box = Box()
    run = await runner(ALONE, fake, toolbox=box).run(
        "why?", options=Options(budget=Budget(calls=2))
    )
    assert (run.status, len(box.used)) == ("exhausted", 0)


async def test_a_turn_may_call_tools_of_both_kinds() -> None:
    reply = Reply("", USED, "tool", (ToolCall("1", "add", "{}"), ToolCall("2", "look", "{}")))
    fake = user_of_tools("a", reply, "done")
    box = Box()
    engine = runner(ALONE, fake, toolbox=box)
    run = await engine.run("why?", options=OPTIONS)
    assert [call.id for call in run.waiting_for] == ["2"]
    again = await engine.resume(load(dump(run)), results=results(run))
    assert again.answer == "done"
    assert texts_of(fake.requests[1]) == ["sum of 1", "found for 2"]
    assert len(box.used) == 1


async def test_a_tool_that_there_is_not_is_answered_as_an_error() -> None:
    fake = user_of_tools("a", calling("1", name="fly"), "on foot, then")
    run = await runner(ALONE, fake, toolbox=Box()).run("why?")
    assert run.answer == "on foot, then"
    assert texts_of(fake.requests[1]) == ["there is no tool named 'fly'"]


async def test_a_worker_that_uses_tools_without_end_has_failed() -> None:
    count = iter(range(1000))
    fake = FakeWorker("a", lambda _: calling(f"{next(count)}", name="add"), can=TOOLS)
    run = await runner(ALONE, fake, toolbox=Box()).run("why?")
    assert run.error == "step 0 (a) failed: a exceeded 100 tool turns"


async def test_a_tool_of_the_client_may_not_be_named_like_one_of_podiums_own() -> None:
    response_options = ResponseOptions(tools=(Tool("add", "", {}),))
    with pytest.raises(UsageError, match="'add' is already a tool of the toolbox"):
        await runner(ALONE, user_of_tools("a"), toolbox=Box()).run(
            "why?", options=Options(response_options=response_options)
        )


async def test_text_before_podiums_own_tools_belongs_to_the_answer() -> None:
    class Streaming(FakeWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            reply = await self.reply(request)
            for letter in reply.text:
                yield Delta(letter)
            yield reply

    left = [calling("1", text="Adding.", name="add"), Reply("It is 6.", USED)]
    fake = Streaming("a", lambda _: left.pop(0), can=TOOLS)
    events: list[Event] = []
    run = await runner(ALONE, fake, toolbox=Box()).run("why?", emit=events.append, stream=True)
    pieces = [event.text for event in events if isinstance(event, StepDelta)]
    assert run.answer == "".join(pieces) == "Adding.\n\nIt is 6."


async def test_a_resumed_stream_sends_only_new_events() -> None:
    fake = user_of_tools("a", calling("1", text="Looking."), "Found.")
    engine = runner(ALONE, fake)
    first: list[Event] = []
    run = await engine.run("why?", options=OPTIONS, emit=first.append, stream=True)
    then: list[Event] = []
    run = await engine.resume(run, results=results(run), emit=then.append, stream=True)
    texts_of = [[e.text for e in events if isinstance(e, StepDelta)] for events in (first, then)]
    assert texts_of == [["Looking."], ["Found."]]
    assert run.answer == "Found."


async def test_rounds_go_on_after_a_wait() -> None:
    fake = user_of_tools("a", calling("1"), "done")
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=replace(OPTIONS, rounds=2))
    assert (run.status, len(run.rounds)) == ("waiting", 1)
    run = await engine.resume(run, results=results(run))
    assert (run.answer, [round_.accepts_answer for round_ in run.rounds]) == ("done", [False, True])


async def test_the_time_that_the_client_takes_is_not_the_runs() -> None:
    engine = runner(ALONE, user_of_tools("a", calling("1"), "done"))
    run = await engine.run("why?", options=replace(OPTIONS, budget=Budget(seconds=60)))
    late = replace(run, created_at="2020-01-01T00:00:00.000+00:00")
    assert (await engine.resume(late, results=results(run))).status == "answered"
    spent = replace(run, spent=replace(run.spent, seconds=61.0))
    assert (await engine.resume(spent, results=results(run))).status == "exhausted"


async def test_a_waiting_step_is_emitted_as_waiting() -> None:
    events: list[Event] = []
    engine = runner(ALONE, user_of_tools("a", calling("1")))
    await engine.run("why?", options=OPTIONS, emit=events.append)
    (ended,) = [event.step for event in events if isinstance(event, StepDone)]
    assert (ended.status, ended.finish, len(ended.waiting_for)) == ("waiting", "tool", 1)


async def test_pictures_that_the_clients_tools_show_reach_the_step_and_are_kept() -> None:
    picture = Image("image/png", "QUJD")
    left: list[Reply | str] = [calling("1"), "a cat"]
    fake = FakeWorker("a", lambda _: left.pop(0), can=("tools", "vision"))
    engine = runner(ALONE, fake)
    run = await engine.run("why?", options=OPTIONS)
    result = ToolResult("1", "", images=(picture,))
    again = await engine.resume(load(dump(run)), results=(result,))
    assert fake.requests[1].messages[-1] == Message("tool", (result,))
    assert load(dump(again)).steps[0].turns[-1] == Message("tool", (result,))


async def test_parallel_tools_off_keeps_the_first_call() -> None:
    fake = user_of_tools("a", calling("1", "2"), calling("2"), "done")
    engine = runner(ALONE, fake)
    options = replace(OPTIONS, response_options=replace(TERMS, parallel_tools=False))
    run = await engine.run("why?", options=options)
    assert [call.id for call in run.waiting_for] == ["1"]
    run = await engine.resume(run, results=results(run))
    assert [call.id for call in run.waiting_for] == ["2"]
    run = await engine.resume(run, results=results(run))
    assert run.answer == "done"
    assert not any(request.parallel_tools for request in fake.requests)
    calls = [p for m in fake.requests[2].messages for p in m.parts if isinstance(p, ToolCall)]
    assert [call.id for call in calls] == ["1", "2"]
