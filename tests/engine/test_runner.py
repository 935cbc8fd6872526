from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import pytest

from podium._util.process import this_process
from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import (
    BudgetExhausted,
    ConfigError,
    MalformedPlan,
    PromptTooLong,
    RequestRefused,
    Unavailable,
    UnknownWorker,
    UsageError,
)
from podium.core.events import Event, RoundPlanned, RunDone, RunStarted, StepDelta
from podium.core.request import FREE, NO_USAGE, Delta, Price, Reply, Request, user
from podium.core.run import Run, dump, load
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import ConductorWorker, Options, Runner
from support.harness import FakeWorker

ONE = Workflow((Step("a", "do it"),))


class Planner(Conductor):
    """Writes the given plans in turn; None accepts."""

    name = "planner"
    worker: FakeWorker | None = None

    def __init__(self, *plans: Workflow | Exception | None, asks: FakeWorker | None = None) -> None:
        self.plans = list(plans)
        self.asks = asks
        self.situations: list[PlanningContext] = []

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        self.situations.append(context)
        if self.asks is not None:
            await call(self.asks, Request((user("plan, please"),)))
        plan = self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]
        if isinstance(plan, Exception):
            raise plan
        return Plan(plan, "the plan's text", ("a warning",))


def runner(planner: Planner, *fakes: FakeWorker | ConductorWorker) -> Runner:
    async def no_sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    return Runner(planner, fakes, call_policy=CallPolicy(RetryPolicy(), sleep=no_sleep))


async def test_a_run_plans_carries_out_and_answers() -> None:
    events: list[Event] = []
    run = await runner(Planner(ONE), FakeWorker("a", lambda _: "42")).run(
        "why?", emit=events.append
    )
    assert (run.status, run.answer, run.error) == ("answered", "42", None)
    assert run.rounds[0].plan_text == "the plan's text"
    assert run.rounds[0].warnings == ("a warning",)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[1], RoundPlanned)
    assert isinstance(events[-1], RunDone)
    assert events[-1].run == run


async def test_the_conductors_calls_are_metered_and_kept_apart() -> None:
    run = await runner(Planner(ONE, asks=FakeWorker("boss")), FakeWorker("a")).run("why?")
    assert [call.worker for call in run.calls] == ["boss", "a"]
    assert run.orchestration.total_tokens == 2
    assert run.usage.total_tokens == 4
    assert run.spent.calls == 2


async def test_a_second_round_sees_the_first_and_may_accept_it() -> None:
    planner = Planner(ONE, None)
    run = await runner(planner, FakeWorker("a", lambda _: "42")).run(
        "why?", options=Options(rounds=3)
    )
    assert [round_.accepts_answer for round_ in run.rounds] == [False, True]
    assert planner.situations[1].rounds[0].steps[0].reply == "42"
    assert (run.status, run.answer) == ("answered", "42")


async def test_a_second_round_may_plan_again_and_its_answer_counts() -> None:
    replies = iter(["first", "second"])
    run = await runner(Planner(ONE), FakeWorker("a", lambda _: next(replies))).run(
        "why?", options=Options(rounds=2)
    )
    assert len(run.rounds) == 2
    assert run.answer == "second"
    assert [step.round for step in run.steps] == [0, 1]


async def test_the_best_answer_so_far_is_returned_when_the_last_step_fails() -> None:
    plan = Workflow((Step("a", "x"), Step("bad", "y", (0,))))
    bad = FakeWorker("bad", lambda _: RequestRefused("no"))
    run = await runner(Planner(plan), FakeWorker("a", lambda _: "draft"), bad).run("why?")
    assert (run.status, run.answer) == ("partial", "draft")
    assert run.error == "step 1 (bad) failed: no"


async def test_a_later_round_that_fails_leaves_the_earlier_answer_standing() -> None:
    bad = FakeWorker("bad", lambda _: RequestRefused("no"))
    planner = Planner(ONE, Workflow((Step("bad", "better"),)))
    run = await runner(planner, FakeWorker("a", lambda _: "42"), bad).run(
        "why?", options=Options(rounds=2)
    )
    assert (run.status, run.answer) == ("answered", "42")
    assert run.error == "step 0 (bad) failed: no"


async def test_a_run_without_any_reply_has_failed() -> None:
    bad = FakeWorker("a", lambda _: RequestRefused("no"))
    run = await runner(Planner(ONE), bad).run("why?")
    assert (run.status, run.answer) == ("failed", None)


def too_long(name: str, fallback: str | None = None) -> FakeWorker:
    return FakeWorker(name, lambda _: PromptTooLong("it has 9 tokens too many"), fallback=fallback)


async def test_a_run_says_that_it_failed_because_the_prompt_was_too_long() -> None:
    run = await runner(Planner(ONE), too_long("a", "b"), too_long("b")).run("why?")
    assert (run.status, run.context_exceeded) == ("failed", True)
    assert load(dump(run)) == run
    failed = await runner(Planner(ONE), FakeWorker("a", lambda _: RequestRefused("no"))).run("why?")
    assert (failed.status, failed.context_exceeded) == ("failed", False)


async def test_a_run_that_a_larger_window_answers_was_not_too_long() -> None:
    engine = runner(Planner(ONE), too_long("a", "b"), FakeWorker("b"))
    run = await engine.run("why?")
    assert (run.status, run.answer, run.context_exceeded) == ("answered", "ok", False)


async def test_a_prompt_too_long_for_planner_or_nested_run_is_reported() -> None:
    planning = await runner(Planner(ONE, asks=too_long("boss")), FakeWorker("a")).run("why?")
    assert (planning.status, planning.context_exceeded) == ("failed", True)
    outer = Workflow((Step("conductor", "split it"),))
    nested = await runner(Planner(outer, ONE), too_long("a"), ConductorWorker()).run("why?")
    assert (nested.status, nested.context_exceeded) == ("failed", True)


async def test_a_budget_that_ends_before_any_answer_is_exhausted() -> None:
    run = await runner(Planner(ONE, asks=FakeWorker("boss")), FakeWorker("a")).run(
        "why?", options=Options(budget=Budget(calls=1))
    )
    assert (run.status, run.answer) == ("exhausted", None)
    assert run.error == "the run's budget is spent: the cap on calls is 1"
    assert len(list(run.calls)) == 1


async def test_a_budget_that_ends_in_mid_run_returns_the_best_so_far() -> None:
    plan = Workflow((Step("a", "x"), Step("a", "y", (0,))))
    run = await runner(Planner(plan), FakeWorker("a", lambda _: "draft")).run(
        "why?", options=Options(budget=Budget(calls=1))
    )
    assert (run.status, run.answer) == ("partial", "draft")


async def test_the_deadline_ends_the_run_and_keeps_what_is_done() -> None:
    slow = FakeWorker("slow")
    slow.gate = asyncio.Event()
    plan = Workflow((Step("a", "x"), Step("slow", "y", (0,))))
    run = await runner(Planner(plan), FakeWorker("a", lambda _: "draft"), slow).run(
        "why?", options=Options(budget=Budget(seconds=0.02))
    )
    assert (run.status, run.answer) == ("partial", "draft")
    assert run.error == "the run's budget is spent: the cap on seconds is 0.02"
    assert [step.status for step in run.steps] == ["done", "cancelled"]


async def test_a_plan_that_cannot_be_used_fails_the_run_with_its_reason() -> None:
    fakes = (FakeWorker("a"),)
    unknown = await runner(Planner(Workflow((Step("nobody", "x"),))), *fakes).run("why?")
    assert unknown.status == "failed"
    assert unknown.error == "no worker named 'nobody' in the pool; it has a"
    malformed = await runner(Planner(MalformedPlan("subtasks", "missing")), *fakes).run("why?")
    assert malformed.error == "subtasks: missing"
    unplanned = await runner(Planner(RequestRefused("no model to plan with")), *fakes).run("why?")
    assert (unplanned.status, unplanned.error) == ("failed", "no model to plan with")
    long = await runner(Planner(Workflow((Step("a", "x"),) * 3)), *fakes).run(
        "why?", options=Options(max_steps=2)
    )
    assert long.error is not None
    assert "at most 2 are allowed" in long.error


async def test_excluded_workers_are_not_in_the_conductors_pool() -> None:
    planner = Planner(Workflow((Step("b", "x"),)))
    run = await runner(planner, FakeWorker("a"), FakeWorker("b")).run(
        "why?", options=Options(exclude=frozenset({"a"}))
    )
    assert planner.situations[0].pool.names == ("b",)
    assert run.status == "answered"


async def test_an_excluded_worker_may_not_plan_either() -> None:
    boss = FakeWorker("boss")
    made = runner(Planner(ONE, asks=boss), FakeWorker("a"), FakeWorker("boss"))
    run = await made.run("why?", options=Options(exclude=frozenset({"boss"})))
    assert (run.status, run.error) == ("failed", "boss: boss is excluded from this run")
    assert boss.asked == []
    again = await made.resume(run)
    assert (again.exclude, again.status, boss.asked) == (("boss",), "failed", [])


async def test_planning_alone_carries_nothing_out() -> None:
    fake = FakeWorker("a")
    round_ = await runner(Planner(ONE), fake).plan("why?")
    assert round_.workflow == ONE
    assert fake.asked == []


async def interrupted(
    planner: Planner, *fakes: FakeWorker | ConductorWorker, when: Callable[[], bool]
) -> Run:
    """Start a run and cancel it when the condition holds."""
    runs: list[Run] = []

    def emit(event: Event) -> None:
        if isinstance(event, RunDone):
            runs.append(event.run)

    task = asyncio.create_task(runner(planner, *fakes).run("why?", emit=emit))
    while not when():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return runs[-1]


async def test_an_interrupted_run_resumes_without_repeating_finished_steps() -> None:
    plan = Workflow((Step("a", "x"), Step("slow", "y", (0,)), Step("a", "z", (0, 1))))
    slow = FakeWorker("slow")
    slow.gate = asyncio.Event()
    cut = await interrupted(Planner(plan), FakeWorker("a"), slow, when=lambda: slow.in_flight == 1)
    assert cut.status == "interrupted"
    assert [step.status for step in cut.steps] == ["done", "cancelled"]

    planner, again = Planner(plan), FakeWorker("a", lambda _: "end")
    run = await runner(planner, again, FakeWorker("slow")).resume(load(dump(cut)))
    assert (run.status, run.answer, run.id) == ("answered", "end", cut.id)
    assert len(again.asked) == 1
    assert planner.situations == []
    assert run.spent.calls == 4


async def test_a_run_that_was_cut_off_while_planning_plans_again() -> None:
    boss = FakeWorker("boss")
    boss.gate = asyncio.Event()
    cut = await interrupted(
        Planner(ONE, asks=boss), FakeWorker("a"), when=lambda: boss.in_flight == 1
    )
    assert cut.rounds[0].workflow is None
    run = await runner(Planner(ONE), FakeWorker("a")).resume(cut)
    assert run.status == "answered"
    assert len(run.rounds) == 1
    assert [call.worker for call in run.rounds[0].planning_attempts] == ["boss"]


async def test_resuming_an_answered_run_is_refused() -> None:
    made = runner(Planner(ONE), FakeWorker("a"))
    run = await made.run("why?")
    with pytest.raises(ConfigError, match="answered already"):
        await made.resume(run)


async def test_resuming_needs_the_workers_of_the_run() -> None:
    run = await runner(Planner(MalformedPlan("plan", "no")), FakeWorker("a")).run("why?")
    with pytest.raises(UnknownWorker, match="no worker named 'a'"):
        await runner(Planner(ONE), FakeWorker("b")).resume(run)


NESTING = Workflow((Step("a", "gather"), Step("conductor", "solve the hard part", (0,))))


async def test_a_conductor_in_the_pool_answers_by_a_nested_run() -> None:
    events: list[Event] = []
    planner = Planner(NESTING, ONE)
    fake = FakeWorker("a", lambda request: f"{len(request.messages)} messages")
    run = await runner(planner, fake, ConductorWorker()).run("why?", emit=events.append)
    (nested,) = run.steps[1].nested
    assert nested.question == "solve the hard part"
    assert nested.depth == 1
    assert run.answer == nested.answer == "3 messages"
    inner = planner.situations[1]
    assert [message.text for message in inner.history] == ["gather", "1 messages"]
    started = [event for event in events if isinstance(event, RunStarted)]
    assert [event.parent for event in started] == [None, (run.id, 1)]
    assert run.spent.calls == 2
    assert run.usage.total_tokens == 4


async def test_runs_nest_no_deeper_than_the_budget_says() -> None:
    planner = Planner(NESTING, NESTING, ONE)
    made = runner(planner, FakeWorker("a"), ConductorWorker())
    await made.run("why?", options=Options(budget=Budget(depth=2)))
    assert [("conductor" in s.pool.names) for s in planner.situations] == [True, True, False]


async def test_with_no_depth_the_conductor_is_not_in_the_pool() -> None:
    planner = Planner(ONE)
    made = runner(planner, FakeWorker("a"), ConductorWorker())
    await made.run("why?", options=Options(budget=Budget(depth=0)))
    assert planner.situations[0].pool.names == ("a",)


async def test_a_plan_that_nests_too_deep_exhausts_the_depth() -> None:
    made = runner(Planner(Workflow((Step("conductor", "x"),))), FakeWorker("a"), ConductorWorker())
    run = await made.run("why?", options=Options(budget=Budget(depth=0)))
    assert run.status == "exhausted"
    assert run.error == "the run's budget is spent: the cap on depth is 0"


async def test_a_nested_run_that_fails_falls_back() -> None:
    planner = Planner(Workflow((Step("conductor", "x"),)), MalformedPlan("plan", "no"))
    made = runner(
        planner,
        FakeWorker("a", lambda _: "saved"),
        ConductorWorker(replace(ConductorWorker().profile, fallback="a")),
    )
    run = await made.run("why?")
    assert (run.status, run.answer) == ("answered", "saved")
    assert [nested.status for nested in run.steps[0].nested] == ["failed"]


async def test_the_calls_of_a_cancelled_nested_run_are_not_lost() -> None:
    slow = FakeWorker("slow")
    slow.gate = asyncio.Event()
    planner = Planner(
        Workflow((Step("conductor", "x"),)), Workflow((Step("a", "y"), Step("slow", "z", (0,))))
    )
    made = runner(planner, FakeWorker("a"), slow, ConductorWorker())
    run = await made.run("why?", options=Options(budget=Budget(seconds=0.02)))
    assert run.status == "exhausted"
    assert [call.worker for call in run.calls] == ["a", "slow"]


async def test_a_nested_run_sees_what_its_step_may_read_and_nothing_else() -> None:
    plan = Workflow((Step("a", "one"), Step("a", "two"), Step("conductor", "three", (1,))))
    planner = Planner(plan, ONE)
    replies = iter(["SECRET-0", "SECRET-1", "end"])
    fake = FakeWorker("a", lambda _: next(replies))
    await runner(planner, fake, ConductorWorker()).run("why?")
    seen = [message.text for message in planner.situations[1].history]
    assert seen == ["two", "SECRET-1"]


async def test_only_the_answer_is_streamed_also_from_nested_runs() -> None:
    events: list[Event] = []
    plan = Workflow((Step("conductor", "x"), Step("conductor", "y", (0,))))
    replies = iter(["not the answer", "the answer"])
    made = runner(Planner(plan, ONE), FakeWorker("a", lambda _: next(replies)), ConductorWorker())
    await made.run("why?", emit=events.append, stream=True)
    said = [event.text for event in events if isinstance(event, StepDelta)]
    assert said == ["the", "answer"]


async def test_a_nested_run_that_exhausts_the_budget_exhausts_its_run() -> None:
    planner = Planner(Workflow((Step("conductor", "x"),)), ONE, asks=FakeWorker("boss"))
    made = runner(planner, FakeWorker("a"), ConductorWorker())
    run = await made.run("why?", options=Options(budget=Budget(calls=2)))
    assert (run.status, run.error) == (
        "exhausted",
        "the run's budget is spent: the cap on calls is 2",
    )


async def test_a_nested_run_that_was_cut_off_is_resumed() -> None:
    slow = FakeWorker("slow")
    slow.gate = asyncio.Event()
    inner = Workflow((Step("a", "y"), Step("slow", "z", (0,))))
    fakes = (FakeWorker("a"), slow, ConductorWorker())
    planner = Planner(Workflow((Step("conductor", "x"),)), inner)
    cut = await interrupted(planner, *fakes, when=lambda: slow.in_flight == 1)
    slow.gate.set()
    again = FakeWorker("a")
    later = Planner(ONE)
    run = await runner(later, again, FakeWorker("slow", lambda _: "end"), ConductorWorker()).resume(
        load(dump(cut))
    )
    assert (run.status, run.answer) == ("answered", "end")
    assert (again.asked, later.situations) == ([], [])
    (nested,) = run.steps[0].nested
    assert nested.status == "answered"
    assert [call.worker for call in run.calls] == ["a", "slow", "slow"]


async def test_the_nested_conductor_may_be_another_one() -> None:
    fixed = Planner(Workflow((Step("conductor", "x"),)))
    lead_conductor = Planner(ONE)
    made = Runner(fixed, [FakeWorker("a"), ConductorWorker()], nested_conductor=lead_conductor)
    run = await made.run("why?")
    assert run.status == "answered"
    assert [context.question for context in lead_conductor.situations] == ["x"]


async def test_a_round_without_an_answer_cannot_be_accepted() -> None:
    bad = FakeWorker("a", lambda _: RequestRefused("no"))
    run = await runner(Planner(ONE, None), bad).run("why?", options=Options(rounds=2))
    assert run.status == "failed"
    assert run.error == "planner accepted the answer, but there is none yet"
    first = await runner(Planner(None), FakeWorker("a")).run("why?")
    assert (first.status, first.error) == ("failed", run.error)


async def test_an_accepted_round_does_not_hide_what_went_wrong_before_it() -> None:
    plan = Workflow((Step("bad", "x"), Step("a", "y")))
    bad = FakeWorker("bad", lambda _: RequestRefused("no"))
    run = await runner(Planner(plan, None), bad, FakeWorker("a")).run(
        "why?", options=Options(rounds=2)
    )
    assert (run.status, run.error) == ("answered", "step 0 (bad) failed: no")


async def test_an_error_behind_the_last_step_is_reported() -> None:
    inner = Workflow((Step("a", "x"), Step("bad", "y", (0,))))
    bad = FakeWorker("bad", lambda _: RequestRefused("no"))
    planner = Planner(Workflow((Step("conductor", "x"),)), inner)
    run = await runner(planner, FakeWorker("a"), bad, ConductorWorker()).run("why?")
    assert (run.status, run.error) == ("answered", "step 1 (bad) failed: no")


async def test_a_half_streamed_answer_is_kept_as_the_best_so_far() -> None:
    class Slow(FakeWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield Delta("hm", "thinking")
            yield Delta("half an ")
            yield Delta("answer")
            await asyncio.Event().wait()

    plan = Workflow((Step("a", "x"), Step("slow", "y", (0,))))
    events: list[Event] = []
    run = await runner(Planner(plan), FakeWorker("a", lambda _: "notes"), Slow("slow")).run(
        "why?",
        options=Options(budget=Budget(seconds=0.05)),
        emit=events.append,
        stream=True,
    )
    assert (run.status, run.answer) == ("partial", "half an answer")
    again = await runner(
        Planner(plan), FakeWorker("a"), FakeWorker("slow", lambda _: "whole")
    ).resume(run, budget=Budget())
    assert again.answer == "whole"


async def test_of_an_answer_that_fails_in_mid_stream_the_reader_keeps_what_came() -> None:
    class Breaking(FakeWorker):
        async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
            yield Delta("half an answer")
            raise RequestRefused("no more")

    plan = Workflow((Step("a", "x"), Step("breaking", "y", (0,))))
    engine = runner(Planner(plan), FakeWorker("a", lambda _: "notes"), Breaking("breaking"))
    run = await engine.run("why?", emit=lambda _: None, stream=True)
    assert (run.status, run.answer, run.final_reply.finish) == (
        "partial",
        "half an answer",
        "length",
    )
    assert run.error == "step 1 (breaking) failed: no more"


async def test_an_empty_question_is_refused() -> None:
    with pytest.raises(UsageError, match="the question is empty"):
        await runner(Planner(ONE), FakeWorker("a")).run("  ")


async def test_a_run_names_the_process_that_performs_it() -> None:
    run = await runner(Planner(ONE), FakeWorker("a")).run("why?")
    assert run.process == this_process()


async def test_an_answer_that_was_cut_off_says_so() -> None:
    cut = FakeWorker("a", lambda _: Reply("half an ans", NO_USAGE, "length"))
    run = await runner(Planner(ONE), cut).run("why?")
    assert (run.status, run.answer) == ("answered", "half an ans")
    assert run.error == "a reached its output limit, so the answer is cut off"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (ZeroDivisionError("oops"), "planner raised ZeroDivisionError: oops"),
        (TimeoutError("too slow"), "planner raised TimeoutError: too slow"),
    ],
)
async def test_a_conductor_that_breaks_fails_the_run_and_nothing_else(
    fault: Exception, reason: str
) -> None:
    run = await runner(Planner(fault), FakeWorker("a")).run("why?")
    assert (run.status, run.error) == ("failed", reason)


async def test_malformed_plans_fail_the_run() -> None:
    class Odd(Planner):
        async def plan(self, context: PlanningContext, call: Caller) -> Plan:
            return ONE  # type: ignore[return-value]

    run = await runner(Odd(ONE), FakeWorker("a")).run("why?")
    assert (run.status, run.error) == ("failed", "planner returned Workflow, not a Plan")


async def test_planning_alone_has_a_time_limit_too() -> None:
    boss = FakeWorker("boss")
    boss.gate = asyncio.Event()
    with pytest.raises(BudgetExhausted, match="the cap on seconds is 0.01"):
        await runner(Planner(ONE, asks=boss), FakeWorker("a")).plan(
            "why?", options=Options(budget=Budget(seconds=0.01))
        )


async def test_a_cap_on_money_needs_the_planners_price_too() -> None:
    planner = Planner(ONE)
    planner.worker = FakeWorker("boss")
    free = FakeWorker("a")
    free.profile = replace(free.profile, price=FREE)
    made = runner(planner, free)
    capped = Options(budget=Budget(usd=1.0))
    with pytest.raises(ConfigError, match="no price is known for boss"):
        await made.run("why?", options=capped)
    run = await runner(Planner(MalformedPlan("plan", "no")), free).run("why?", options=capped)
    with pytest.raises(ConfigError, match="no price is known for boss"):
        await made.resume(run)


async def test_a_resumed_run_does_not_forget_what_unknown_usage_was_charged() -> None:
    price = Price(input=0.0, output=1000.0)
    hanging = FakeWorker("a", lambda _: Unavailable("cut off", billed=True))
    hanging.profile = replace(hanging.profile, price=price)
    capped = Options(budget=Budget(usd=1.0))
    cut = await runner(Planner(ONE), hanging).run("why?", options=capped)
    assert cut.spent.usd == pytest.approx(1.0)
    well = FakeWorker("a")
    well.profile = hanging.profile
    run = await runner(Planner(ONE), well).resume(cut)
    assert (run.status, well.asked) == ("exhausted", [])


async def test_an_accepted_run_that_is_resumed_is_not_planned_again() -> None:
    run = await runner(Planner(ONE, None), FakeWorker("a")).run("why?", options=Options(rounds=3))
    planner = Planner(ONE)
    again = await runner(planner, FakeWorker("a")).resume(replace(run, status="running"))
    assert (again.status, planner.situations) == ("answered", [])


def test_options_must_make_sense() -> None:
    with pytest.raises(ConfigError, match="tier is 'max'; it is one of mini, podium, ultra"):
        Options(tier="max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="budget is 3; give a Budget"):
        Options(budget=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="exclude is the text 'ab'"):
        Options(exclude="ab")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rounds is 0"):
        Options(rounds=0)
