"""Runs with guardrails: what they look at, when, and what becomes of the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import get_args

import pytest

from podium.client.client import AsyncPodium
from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError, GuardrailBlocked, RequestRefused
from podium.core.events import (
    Event,
    GuardrailActed,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepRetried,
)
from podium.core.request import (
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
    assistant,
    user,
)
from podium.core.run import GuardrailStage, Run, dump, load
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.guardrails import (
    Block,
    Grounding,
    Guardrail,
    GuardrailInput,
    Note,
    Pass,
    Redact,
    Redaction,
    Replan,
    Verdict,
    Verify,
    as_guardrail,
)
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import FakeWorker

ONE = Workflow((Step("a", "do it"),))
TWO = Workflow((Step("a", "look"), Step("b", "answer", (0,))))
MAIL = "ada@example.com"
TOOL = Tool("look", "looks", {"type": "object"})


class Planner(Conductor):
    """Writes the given plans in turn."""

    name = "planner"

    def __init__(self, *plans: Workflow | None) -> None:
        self.plans = list(plans)
        self.situations: list[PlanningContext] = []

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        self.situations.append(context)
        return Plan(self.plans.pop(0) if len(self.plans) > 1 else self.plans[0])


def runner(planner: Planner, *workers: Worker, guardrails: list[Guardrail]) -> Runner:
    async def no_sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    call_policy = CallPolicy(RetryPolicy(), sleep=no_sleep)
    return Runner(planner, workers, call_policy=call_policy, guardrails=guardrails)


def says(verdict: Verdict) -> Callable[[GuardrailInput], Verdict]:
    return lambda checked: verdict


def seen(where: str, log: list[GuardrailInput]) -> Guardrail:
    def look(checked: GuardrailInput) -> Verdict:
        log.append(checked)
        return Pass()

    assert where in ("question", "reply", "answer")
    return Guardrail("watcher", look)


def deeds(run: Run) -> list[tuple[str, str, str]]:
    return [(check.guardrail, check.stage, check.action) for check in run.all_guardrail_checks]


async def test_each_place_is_looked_at_once_and_in_order() -> None:
    log: list[GuardrailInput] = []
    run = await runner(
        Planner(TWO),
        FakeWorker("a", lambda _: "facts"),
        FakeWorker("b", lambda _: "so"),
        guardrails=[seen("reply", log)],
    ).run("why?", options=Options(history=(user("hello"), assistant("hi"))))
    assert [(c.stage, c.text, c.step, c.worker) for c in log] == [
        ("question", "why?", None, ""),
        ("question", "hello", None, ""),
        ("question", "hi", None, ""),
        ("reply", "facts", 0, "a"),
        ("reply", "so", 1, "b"),
        ("answer", "so", 1, "b"),
    ]
    assert [source.reply for source in log[-1].sources] == ["facts"]
    assert all(c.question == "why?" and c.run_id == run.id for c in log)
    assert (run.status, run.guardrails, run.guardrail_checks) == ("answered", ("watcher",), ())


async def test_a_blocked_question_reaches_no_worker_and_is_not_kept() -> None:
    events: list[Event] = []
    fake = FakeWorker("a")
    planner = Planner(ONE)
    guard = Guardrail("no-mail", Redaction(action="block"))
    run = await runner(planner, fake, guardrails=[guard]).run(
        f"write to {MAIL}", options=Options(history=(user(MAIL),)), emit=events.append
    )
    assert (run.status, run.answer, run.blocked_by) == ("failed", None, "no-mail")
    assert run.error == "the guardrail 'no-mail' blocked the question: it contains 1 × e-mail"
    assert not fake.asked
    assert not planner.situations
    assert MAIL not in json.dumps(dump(run))
    assert MAIL not in repr(events)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunDone)
    assert load(dump(run)) == run


async def test_workers_conductor_events_and_record_have_the_mark_and_never_the_value() -> None:
    events: list[Event] = []
    fake = FakeWorker("a", lambda request: f"sent: {request.messages[-1].text}")
    planner = Planner(ONE)
    guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
    run = await runner(planner, fake, guardrails=[guard]).run(
        f"write to {MAIL}", options=Options(history=(user(f"I am {MAIL}"),)), emit=events.append
    )
    assert planner.situations[0].question == "write to [e-mail 1]"
    assert planner.situations[0].history == (user("I am [e-mail 1]"),)
    assert MAIL not in repr(fake.requests)
    assert "[e-mail 1]" in fake.asked[0]
    assert MAIL not in repr(events)
    ended = events[-1]
    assert isinstance(ended, RunDone)
    assert ended.run.answer is not None
    assert "[e-mail 1]" in ended.run.answer
    assert run.answer is not None
    assert MAIL in run.answer
    assert "[e-mail 1]" not in run.answer
    assert deeds(run) == [("privacy", "question", "redacted")] * 2


async def test_subtasks_of_a_workflow_that_came_with_the_question_are_looked_at_with_it() -> None:
    fake = FakeWorker("a")
    given = Workflow((Step("a", f"write to {MAIL}"), Step("a", "check it", (0,))))
    guard = Guardrail("privacy", Redaction(), stages=("question",))
    async with AsyncPodium([fake], guardrails=[guard], store=None) as podium:
        run = await podium.run(given, f"mail {MAIL} and bob@example.com")
    assert run.status == "answered"
    assert [step.subtask for step in run.steps] == ["write to [e-mail 1]", "check it"]
    assert "write to [e-mail 1]" in fake.asked[0]
    assert MAIL not in repr(fake.requests)
    assert MAIL not in json.dumps(dump(run))
    assert deeds(run) == [("privacy", "question", "redacted")] * 2

    block = Guardrail("no-mail", Redaction(action="block"), stages=("question",))
    async with AsyncPodium([fake], guardrails=[block], store=None) as podium:
        run = await podium.run(given, "mail them")
    assert (run.status, run.blocked_by, run.rounds) == ("failed", "no-mail", ())
    assert len(fake.asked) == 2
    assert MAIL not in json.dumps(dump(run))


async def test_thinking_in_the_conversation_is_looked_at_and_goes_whole_or_not_at_all() -> None:
    fake = FakeWorker("a")
    signed = Thinking("so it is", opaque='{"signature": "x"}', model=fake.profile.model)
    telling = Thinking(f"it is {MAIL}", opaque=f'{{"summary": "{MAIL}"}}', model=signed.model)
    history = (
        user("who?"),
        Message("assistant", (telling,)),
        Message("assistant", (telling, signed, Text("hi"))),
    )
    guard = Guardrail("privacy", Redaction(), stages=("question",))
    run = await runner(Planner(ONE), fake, guardrails=[guard]).run(
        "?", options=Options(history=history)
    )
    assert run.history == (user("who?"), Message("assistant", (signed, Text("hi"))))
    assert MAIL not in json.dumps(dump(run))
    assert MAIL not in repr(fake.requests)
    assert "so it is" in repr(fake.requests)
    assert deeds(run) == [("privacy", "question", "redacted")] * 2


async def test_a_value_put_back_into_json_is_quoted_as_json_has_it() -> None:
    key = '-----BEGIN PRIVATE KEY-----\nab"c\n-----END PRIVATE KEY-----'
    fake = FakeWorker("a", lambda _: '{"key": "[private key 1]"}', can=("json",))
    guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
    response_options = ResponseOptions(schema={"type": "object"})
    run = await runner(Planner(ONE), fake, guardrails=[guard]).run(
        f"keep {key}", options=Options(response_options=response_options)
    )
    assert run.answer is not None
    assert json.loads(run.answer) == {"key": key}


async def test_the_fault_of_json_that_does_not_fit_quotes_nothing_that_was_not_looked_at() -> None:
    events: list[Event] = []
    fake = FakeWorker("a", lambda _: json.dumps(f"write to {MAIL}"), can=("json",))
    other = FakeWorker("b", lambda _: json.dumps({f"of {MAIL}": 1}), can=("json",))
    guard = Guardrail("privacy", Redaction(action="block"), stages=("answer",))
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    for outer in (ONE, Workflow((Step("conductor", "split"),))):
        workers = (fake, other, ConductorWorker())
        run = await runner(Planner(outer, ONE), *workers, guardrails=[guard]).run(
            "who?",
            options=Options(response_options=ResponseOptions(schema=schema)),
            emit=events.append,
        )
        assert (run.status, run.answer) == ("failed", None)
        assert "breaks the rule 'type' of the schema" in (run.error or "")
        assert MAIL not in (run.error or "")
    faults = [event.error for event in events if isinstance(event, StepRetried)]
    faults += [event.step.error or "" for event in events if isinstance(event, StepDone)]
    assert len(faults) > 2
    assert MAIL not in repr(faults)


async def test_a_reply_is_redacted_before_other_steps_and_the_record_get_it() -> None:
    reader = FakeWorker("b", lambda _: "fine")
    guard = Guardrail("privacy", Redaction(), stages=("reply",))
    run = await runner(
        Planner(TWO), FakeWorker("a", lambda _: f"ask {MAIL}"), reader, guardrails=[guard]
    ).run("who?")
    assert "[e-mail 1]" in reader.asked[0]
    assert MAIL not in json.dumps(dump(run))
    assert MAIL not in reader.asked[0]
    assert [check.action for check in run.steps[0].guardrail_checks] == ["redacted"]


async def test_a_final_reply_is_sent_only_after_its_check() -> None:
    lines: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, StepDelta):
            lines.append(event.text)

    def look(checked: GuardrailInput) -> Verdict:
        assert lines == []
        return Redact(checked.text.replace("secret", "[…]"), "a word")

    for places in (("reply",), ("answer",), ("reply", "answer")):
        lines.clear()
        guard = Guardrail("words", look, stages=places)
        fake = FakeWorker("a", lambda _: Reply("the secret word", thinking=(Thinking("secret"),)))
        run = await runner(Planner(ONE), fake, guardrails=[guard]).run(
            "say", emit=emit, stream=True
        )
        assert lines == ["the […] word"]
        assert run.answer == "the […] word"
        assert run.steps[0].thinking == ()


async def test_without_guardrails_on_replies_text_streams() -> None:
    events: list[Event] = []
    guard = Guardrail("privacy", Redaction(), stages=("question",))
    await runner(Planner(ONE), FakeWorker("a", lambda _: "one two"), guardrails=[guard]).run(
        "say", emit=events.append, stream=True
    )
    assert [e.text for e in events if isinstance(e, StepDelta)] == ["one", "two"]


async def test_a_blocked_reply_ends_the_run_and_is_kept_nowhere() -> None:
    plan = Workflow((Step("a", "x"), Step("b", "y"), Step("c", "z", (1,))))
    after = FakeWorker("c")
    events: list[Event] = []

    def look(checked: GuardrailInput) -> Verdict:
        return Block("it is rude") if "damn" in checked.text else Pass()

    run = await runner(
        Planner(plan),
        FakeWorker("a"),
        FakeWorker("b", lambda _: "damn"),
        after,
        guardrails=[Guardrail("manners", look, stages=("reply",))],
    ).run("say", options=Options(rounds=3), emit=events.append)
    assert (run.status, run.answer, run.blocked_by) == ("failed", None, "manners")
    assert len(run.rounds) == 1
    assert not after.asked
    assert "damn" not in json.dumps(dump(run))
    assert "damn" not in repr(events)
    assert [e.check.action for e in events if isinstance(e, GuardrailActed)] == ["blocked"]


@pytest.mark.parametrize("where", ["question", "reply", "answer"])
async def test_a_hook_that_raises_blocks_and_its_words_are_not_kept(where: str) -> None:
    def fails(checked: GuardrailInput) -> Verdict:
        raise ValueError(f"cannot read {checked.text}")

    guard = Guardrail("broken", fails, stages=(where,))  # type: ignore[arg-type]
    run = await runner(
        Planner(ONE), FakeWorker("a", lambda _: "reply-words"), guardrails=[guard]
    ).run("question-words")
    assert run.error == (
        f"the guardrail 'broken' blocked the {where}: it could not decide: it raised ValueError"
    )
    assert (run.status, run.answer) == ("failed", None)
    assert "cannot read" not in json.dumps(dump(run))


async def test_a_hook_that_fails_lets_pass_where_that_is_wanted_and_the_run_says_so() -> None:
    async def fails(checked: GuardrailInput) -> Verdict:
        raise ValueError

    guard = Guardrail("broken", fails, stages=("answer",), on_error="pass")
    run = await runner(Planner(ONE), FakeWorker("a", lambda _: "42"), guardrails=[guard]).run(
        "why?"
    )
    assert (run.status, run.answer) == ("answered", "42")
    assert [check.reason for check in run.all_guardrail_checks] == [
        "it could not decide: it raised ValueError"
    ]


async def test_missing_and_late_verdicts_block() -> None:
    async def forever(checked: GuardrailInput) -> Verdict:
        await asyncio.sleep(30)
        return Pass()

    none = Guardrail("none", lambda _: None)  # type: ignore[arg-type,return-value]
    slow = Guardrail("slow", forever, timeout_seconds=0.01)
    odd = Guardrail("odd", says(Replan("x")), stages=("question",))
    asking = Verify("a", "?", lambda _: asking)
    again = Guardrail("again", says(asking))
    for guard, why in (
        (none, "it returned no verdict"),
        (slow, "it took more than 0.01 s"),
        (odd, "there is no plan to replace yet"),
        (again, "it asked its verifier more than 4 times"),
    ):
        run = await runner(Planner(ONE), FakeWorker("a"), guardrails=[guard]).run("why?")
        assert run.error is not None
        assert run.error.endswith(f"it could not decide: {why}")


@pytest.mark.parametrize("stage", get_args(GuardrailStage))
async def test_a_guardrail_has_no_more_time_than_the_run(stage: GuardrailStage) -> None:
    async def forever(checked: GuardrailInput) -> Verdict:
        await asyncio.sleep(30)
        return Pass()

    slow = Guardrail("slow", forever, stages=(stage,))
    options = Options(budget=Budget(seconds=0.05))
    async with asyncio.timeout(10):
        run = await runner(Planner(ONE), FakeWorker("a"), guardrails=[slow]).run(
            "why?", options=options
        )
    assert run.answer is None
    assert run.error is not None
    assert "the run's budget is spent" in run.error


async def test_a_replan_passes_its_reason_to_the_conductor() -> None:
    replies = iter(["bad", "good"])
    planner = Planner(ONE)

    def look(checked: GuardrailInput) -> Verdict:
        return Replan("it is bad") if checked.text == "bad" else Pass()

    guard = Guardrail("taste", look, stages=("answer",))
    run = await runner(planner, FakeWorker("a", lambda _: next(replies)), guardrails=[guard]).run(
        "why?", options=Options(rounds=2)
    )
    assert (run.status, run.answer, run.blocked_by) == ("answered", "good", "")
    assert [s.replan_reason for s in planner.situations] == ["", "it is bad"]
    assert planner.situations[1].answer is None
    assert deeds(run) == [("taste", "answer", "replanned")]
    assert "bad" not in [step.reply for step in run.steps]


async def test_a_plan_that_is_demanded_and_cannot_be_had_blocks() -> None:
    guard = Guardrail("taste", says(Replan("it is bad")), stages=("answer",))
    run = await runner(Planner(ONE), FakeWorker("a"), guardrails=[guard]).run(
        "why?", options=Options(rounds=2)
    )
    assert len(run.rounds) == 2
    assert (run.status, run.answer, run.blocked_by) == ("failed", None, "taste")
    assert run.error is not None
    assert run.error.endswith("it is bad; no round is left to plan")
    short = await runner(Planner(ONE), FakeWorker("a"), guardrails=[guard]).run(
        "why?", options=Options(rounds=5, budget=Budget(calls=2))
    )
    assert (short.status, short.answer) == ("failed", None)
    assert short.error is not None
    assert "the cap on calls is 2" in short.error


async def test_an_answer_that_passed_before_stands_though_a_later_one_did_not() -> None:
    replies = iter(["good", "bad"])

    def look(checked: GuardrailInput) -> Verdict:
        return Replan("it is bad") if checked.text == "bad" else Pass()

    guard = Guardrail("taste", look, stages=("answer",))
    run = await runner(
        Planner(ONE), FakeWorker("a", lambda _: next(replies)), guardrails=[guard]
    ).run("why?", options=Options(rounds=2))
    assert (run.status, run.answer) == ("answered", "good")


async def test_a_verifier_is_asked_on_the_runs_budget_and_its_call_is_on_the_run() -> None:
    judge = FakeWorker("judge", lambda _: "yes")

    def look(checked: GuardrailInput) -> Verdict:
        return Verify("judge", f"fine? {checked.text}", lambda said: Note(f"judge: {said}"))

    guard = Guardrail("judged", look, stages=("answer",))
    run = await runner(
        Planner(ONE), FakeWorker("a", lambda _: "42"), judge, guardrails=[guard]
    ).run("?")
    assert judge.asked == ["fine? 42"]
    assert [call.worker for call in run.calls] == ["a", "judge"]
    assert run.spent.calls == 2
    assert run.usage.total_tokens == 4
    assert [(c.action, c.reason) for c in run.all_guardrail_checks] == [("noted", "judge: yes")]
    capped = await runner(Planner(ONE), FakeWorker("a"), judge, guardrails=[guard]).run(
        "?", options=Options(budget=Budget(calls=1))
    )
    assert (capped.status, capped.spent.calls) == ("failed", 1)
    assert capped.blocked_by == "judged"


async def test_a_verifier_that_the_run_excludes_is_not_asked() -> None:
    judge = FakeWorker("judge", lambda _: "GROUNDED")
    guard = Guardrail("grounding", Grounding("judge"), stages=("answer",))
    run = await runner(
        Planner(TWO), FakeWorker("a"), FakeWorker("b"), judge, guardrails=[guard]
    ).run("?", options=Options(exclude=frozenset({"judge"})))
    assert not judge.asked
    assert (run.status, run.blocked_by) == ("failed", "grounding")
    assert run.error is not None
    assert "judge is excluded from this run" in run.error


@pytest.mark.parametrize(
    ("said", "ungrounded", "status", "action"),
    [
        ("GROUNDED", "block", "answered", "passed"),
        ("**Grounded.** All is said in step 0.", "block", "answered", "passed"),
        ("NOT GROUNDED: the year is made up", "block", "failed", "blocked"),
        ("not grounded: the year is made up", "note", "answered", "noted"),
        ("NOT GROUNDED: the year is made up", "replan", "failed", "replanned"),
        ("I would rather not say", "note", "failed", "blocked"),
    ],
)
async def test_the_grounding_check_does_what_the_verifier_says(
    said: str, ungrounded: str, status: str, action: str
) -> None:
    judge = FakeWorker("judge", lambda _: said)
    assert ungrounded in ("block", "note", "replan")
    hook = Grounding("judge", action=ungrounded)  # type: ignore[arg-type]
    guard = Guardrail("grounding", hook, stages=("answer",))
    run = await runner(
        Planner(TWO),
        FakeWorker("a", lambda _: "In 1900 </reply>"),
        FakeWorker("b", lambda _: "1901"),
        judge,
        guardrails=[guard],
    ).run("when?")
    assert (run.status, [check.action for check in run.all_guardrail_checks]) == (status, [action])
    asked = judge.asked[0]
    assert "when?" in asked
    assert "1901" in asked
    assert "In 1900" in asked
    assert "<reply>" not in asked  # the tags have a mark that the reply could not know
    if action in ("blocked", "noted") and said.lower().startswith("not"):
        assert "the year is made up" in run.steps[-1].guardrail_checks[0].reason


async def test_a_verifier_that_says_neither_is_named_with_what_was_expected_of_it() -> None:
    judge = FakeWorker("judge", lambda _: "I would rather not say")
    guard = Guardrail("grounding", Grounding("judge"), stages=("answer",))
    run = await runner(
        Planner(TWO), FakeWorker("a"), FakeWorker("b"), judge, guardrails=[guard]
    ).run("?")
    assert run.error == (
        "the guardrail 'grounding' blocked the answer: it could not decide: "
        "judge's reply says neither 'grounded' nor 'not grounded'"
    )


async def test_an_answer_of_one_step_has_nothing_to_be_grounded_in() -> None:
    judge = FakeWorker("judge")
    guard = Guardrail("grounding", Grounding("judge"), stages=("answer",))
    run = await runner(Planner(ONE), FakeWorker("a"), judge, guardrails=[guard]).run("?")
    assert run.status == "answered"
    assert not judge.asked


async def test_an_answer_that_no_final_step_gave_is_checked_too() -> None:
    bad = FakeWorker("b", lambda _: RequestRefused("no"))
    workers = (FakeWorker("a", lambda _: f"ask {MAIL}"), bad)
    redact = Guardrail("privacy", Redaction(), stages=("answer",))
    run = await runner(Planner(TWO), *workers, guardrails=[redact]).run("who?")
    assert (run.status, run.answer) == ("partial", "ask [e-mail 1]")
    assert [(c.stage, c.step) for c in run.guardrail_checks] == [("answer", None)]
    block = Guardrail("privacy", Redaction(action="block"), stages=("answer",))
    run = await runner(Planner(TWO), *workers, guardrails=[block]).run("who?")
    assert (run.status, run.answer, run.blocked_by) == ("failed", None, "privacy")


async def test_blocked_nested_runs_block_the_run() -> None:
    outer = Workflow((Step("conductor", "split"),))
    planner = Planner(outer, ONE)

    def look(checked: GuardrailInput) -> Verdict:
        return Block("rude") if "damn" in checked.text else Pass()

    for places in (("reply",), ("answer",)):
        planner = Planner(outer, ONE)
        guard = Guardrail("manners", look, stages=places)
        events: list[Event] = []
        run = await runner(
            planner, ConductorWorker(), FakeWorker("a", lambda _: "damn it"), guardrails=[guard]
        ).run("say", emit=events.append, stream=True)
        assert (run.status, run.blocked_by) == ("failed", "manners")
        assert not [event for event in events if isinstance(event, StepDelta)]


async def test_a_nested_answer_is_looked_at_as_a_reply_inside_and_as_the_answer_once() -> None:
    log: list[GuardrailInput] = []
    lines: list[str] = []

    def emit(event: Event) -> None:
        if isinstance(event, StepDelta):
            lines.append(event.text)

    run = await runner(
        Planner(Workflow((Step("conductor", "split"),)), ONE),
        ConductorWorker(),
        FakeWorker("a", lambda _: "42 it is"),
        guardrails=[seen("answer", log)],
    ).run("say", emit=emit, stream=True)
    assert [(c.stage, c.worker) for c in log] == [
        ("question", ""),
        ("reply", "a"),
        ("answer", "conductor"),
    ]
    assert lines == ["42 it is"]
    assert run.answer == "42 it is"


async def test_tool_arguments_and_results_are_checked() -> None:
    def act(request: Request) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply("done", Usage(1, 1, 0, 0, 0))
        call = ToolCall("c1", "look", json.dumps({"to": MAIL}))
        return Reply(f"asking {MAIL}", Usage(1, 1, 0, 0, 0), finish="tool", tool_calls=(call,))

    fake = FakeWorker("a", act, can=("tools",))
    guard = Guardrail("privacy", Redaction())
    guarded = runner(Planner(ONE), fake, guardrails=[guard])
    options = Options(response_options=ResponseOptions(tools=(TOOL,)))
    run = await guarded.run("who?", options=options)
    assert run.status == "waiting"
    assert [json.loads(call.arguments) for call in run.waiting_for] == [{"to": "[e-mail 1]"}]
    assert run.answer is None  # with answer guardrails, no text is streamed before the end
    again = await guarded.resume(
        run, results=[ToolResult(run.waiting_for[0].id, "bob@example.com says hello")]
    )
    assert (again.status, again.answer) == ("answered", "done")
    assert [check.stage for check in again.all_guardrail_checks] == ["question", "reply", "reply"]
    assert "[e-mail 2] says hello" in repr(fake.requests[-1])
    assert "bob@" not in json.dumps(dump(again))
    assert MAIL not in json.dumps(dump(again))


async def test_a_run_with_a_blocked_question_cannot_be_resumed() -> None:
    guarded = runner(Planner(ONE), FakeWorker("a"), guardrails=[Guardrail("no", says(Block("no")))])
    run = await guarded.run("why?")
    with pytest.raises(ConfigError, match="was blocked by the guardrail 'no', and stays so"):
        await guarded.resume(run)


async def test_a_run_that_was_blocked_cannot_be_resumed_whatever_is_in_force_now() -> None:
    def look(checked: GuardrailInput) -> Verdict:
        return Block("rude") if "damn" in checked.text else Pass()

    workers = FakeWorker("a", lambda _: "damn it"), FakeWorker("b", lambda _: "damn, so")
    guard = Guardrail("manners", look, stages=("answer",))
    run = await runner(Planner(TWO), *workers, guardrails=[guard]).run("say")
    assert (run.blocked_by, run.answer) == ("manners", None)
    for guardrails in ([], [guard]):
        with pytest.raises(ConfigError, match="was blocked by the guardrail 'manners'"):
            await runner(Planner(TWO), *workers, guardrails=guardrails).resume(load(dump(run)))


async def test_a_run_continues_only_under_every_guardrail_that_it_began_under() -> None:
    fails = [True]
    workers = (
        FakeWorker("a"),
        FakeWorker("b", lambda _: RequestRefused("no") if fails[0] else "42"),
    )
    first, second = (Guardrail(name, says(Pass())) for name in ("first", "second"))
    run = await runner(Planner(TWO), *workers, guardrails=[first, second]).run("?")
    assert run.status == "partial"
    fails[0] = False
    with pytest.raises(ConfigError, match="'second', which is not in force now; configure it"):
        await runner(Planner(TWO), *workers, guardrails=[first]).resume(load(dump(run)))
    third = Guardrail("third", says(Pass()))
    more = runner(Planner(TWO), *workers, guardrails=[third, second, first])
    again = await more.resume(load(dump(run)))
    assert (again.status, again.guardrails) == ("answered", ("third", "second", "first"))


async def test_planning_alone_is_guarded() -> None:
    planner = Planner(ONE)
    guarded = runner(planner, FakeWorker("a"), guardrails=[Guardrail("privacy", Redaction())])
    await guarded.plan(f"write to {MAIL}")
    assert planner.situations[0].question == "write to [e-mail 1]"
    blocking = runner(planner, FakeWorker("a"), guardrails=[Guardrail("no", says(Block("no")))])
    with pytest.raises(GuardrailBlocked, match="blocked the question: no"):
        await blocking.plan("why?")


async def test_checks_stand_on_the_step_as_soon_as_it_is_done() -> None:
    done: list[StepDone] = []

    def emit(event: Event) -> None:
        if isinstance(event, StepDone):
            done.append(event)

    guard = Guardrail("privacy", Redaction(), stages=("reply",))
    await runner(Planner(ONE), FakeWorker("a", lambda _: MAIL), guardrails=[guard]).run(
        "?", emit=emit
    )
    assert [check.action for check in done[0].step.guardrail_checks] == ["redacted"]


def test_a_bare_function_is_a_guardrail_everywhere_and_bad_ones_are_refused() -> None:
    def politeness(checked: GuardrailInput) -> Verdict:
        return Pass()

    assert as_guardrail(politeness) == Guardrail("politeness", politeness)
    with pytest.raises(ConfigError, match="expected question, reply, answer"):
        Guardrail("x", politeness, stages=("step",))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it is block or pass"):
        Guardrail("x", politeness, on_error="ignore")  # type: ignore[arg-type]


async def test_a_verifier_that_was_asked_when_the_run_was_stopped_is_on_it() -> None:
    judge = FakeWorker("judge")
    judge.gate = asyncio.Event()
    ended: list[Run] = []

    def emit(event: Event) -> None:
        if isinstance(event, RunDone):
            ended.append(event.run)

    def look(checked: GuardrailInput) -> Verdict:
        return Verify("judge", "?", lambda said: Pass(said))

    guard = Guardrail("judged", look, stages=("answer",))
    guarded = runner(Planner(ONE), FakeWorker("a"), judge, guardrails=[guard])
    task = asyncio.create_task(guarded.run("?", emit=emit))
    while not judge.asked:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (run,) = ended
    assert (run.status, run.answer) == ("interrupted", None)
    assert [call.worker for call in run.calls] == ["a", "judge"]
    assert run.spent.calls == 2


async def test_a_run_in_progress_is_guarded_and_pays_nothing_twice() -> None:
    judge = FakeWorker("judge", lambda _: "fine")

    def look(checked: GuardrailInput) -> Verdict:
        return Verify("judge", "?", lambda said: Pass(said))

    guard = Guardrail("judged", look, stages=("reply",))
    fails = [True]

    def act(request: Request) -> str | Exception:
        return RequestRefused("no") if fails[0] else "42"

    guarded = runner(Planner(TWO), FakeWorker("a"), FakeWorker("b", act), judge, guardrails=[guard])
    run = await guarded.run("?")
    assert run.status == "partial"
    fails[0] = False
    again = await guarded.resume(load(dump(run)))
    assert (again.status, again.answer) == ("answered", "42")
    assert len(judge.asked) == 2
    assert sorted(call.worker for call in again.calls) == ["a", "b", "b", "judge", "judge"]
    assert again.spent.calls == 5


async def test_a_step_that_has_not_begun_when_something_is_blocked_does_not() -> None:
    plan = Workflow((Step("slow", "x"), Step("b", "y"), Step("c", "z", (0,))))
    slow, after = FakeWorker("slow"), FakeWorker("c")
    slow.gate = asyncio.Event()

    def look(checked: GuardrailInput) -> Verdict:
        if checked.worker == "b":
            assert slow.gate is not None
            slow.gate.set()
            return Block("no")
        return Pass()

    guard = Guardrail("no-b", look, stages=("reply",))
    run = await runner(Planner(plan), slow, FakeWorker("b"), after, guardrails=[guard]).run("?")
    assert not after.asked
    assert [step.status for step in run.steps] == ["done", "failed", "skipped"]


async def test_question_verification_counts_once_in_nested_runs() -> None:
    def look(checked: GuardrailInput) -> Verdict:
        return Verify("judge", "?", lambda said: Pass(said))

    guard = Guardrail("judged", look, stages=("question",))
    run = await runner(
        Planner(Workflow((Step("conductor", "split"),)), ONE),
        ConductorWorker(),
        FakeWorker("a"),
        FakeWorker("judge"),
        guardrails=[guard],
    ).run("?")
    assert [call.worker for call in run.calls] == ["judge", "a"]
    assert run.spent.calls == 2


async def test_the_askers_tool_calls_have_restored_values() -> None:
    def act(request: Request) -> Reply:
        said = repr(request.messages)
        assert MAIL not in said
        assert "bob@" not in said
        if request.messages[-1].role == "tool":
            return Reply("sent to [e-mail 1], from [e-mail 2]", Usage(1, 1, 0, 0, 0))
        call = ToolCall("c1", "look", json.dumps({"to": "[e-mail 1]"}))
        return Reply("", Usage(1, 1, 0, 0, 0), finish="tool", tool_calls=(call,))

    for nested in (False, True):
        kept: list[Run] = []

        def emit(event: Event, kept: list[Run] = kept) -> None:
            if isinstance(event, RunDone) and event.run.depth == 0:
                kept.append(event.run)

        plans = (Workflow((Step("conductor", "split"),)), ONE) if nested else (ONE,)
        guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
        workers = (ConductorWorker(), FakeWorker("a", act, can=("tools",)))
        guarded = runner(Planner(*plans), *workers, guardrails=[guard])
        options = Options(response_options=ResponseOptions(tools=(TOOL,)))
        run = await guarded.run(f"mail {MAIL}", options=options, emit=emit)
        (call,) = run.waiting_for
        assert json.loads(call.arguments) == {"to": MAIL}
        again = await guarded.resume(
            run, results=[ToolResult(call.id, "bob@example.com signed it")], emit=emit
        )
        assert again.answer == f"sent to {MAIL}, from bob@example.com"
        assert len(kept) == 2
        assert MAIL not in repr(kept)
        assert "bob@" not in repr(kept)


async def test_a_run_that_continues_elsewhere_has_marks_where_values_were() -> None:
    def act(request: Request) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply("to [e-mail 1] and [e-mail 2]", Usage(1, 1, 0, 0, 0))
        call = ToolCall("c1", "look", "{}")
        return Reply("", Usage(1, 1, 0, 0, 0), finish="tool", tool_calls=(call,))

    guard = Guardrail("privacy", Redaction(restore=True), stages=("question",))
    fake = FakeWorker("a", act, can=("tools",))
    options = Options(response_options=ResponseOptions(tools=(TOOL,)))
    run = await runner(Planner(ONE), fake, guardrails=[guard]).run(f"{MAIL}", options=options)
    elsewhere = runner(Planner(ONE), fake, guardrails=[guard])
    results = [ToolResult(run.waiting_for[0].id, "bob@example.com")]
    again = await elsewhere.resume(run, results=results)
    assert again.answer == "to [e-mail 1] and bob@example.com"
