"""Steps that begin while their plan is still being written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from podium.conductors import ModelConductor
from podium.conductors.plan import PlanLayout, write
from podium.core.budget import Budget
from podium.core.conductor import Conductor
from podium.core.errors import Unavailable
from podium.core.events import Event, RoundPlanned, RunStarted, StepDelta, StepDone, StepStarted
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Delta,
    Reply,
    Request,
    ResponseOptions,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from podium.core.run import Run, dump, load
from podium.core.worker import Worker
from podium.core.workflow import Condition, Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.guardrails import (
    Guardrail,
    GuardrailInput,
    Pass,
    Redact,
    Replan,
    as_guardrail,
)
from podium.engine.requests import replay_request
from podium.engine.runner import ConductorWorker, Options, Runner
from podium.workers.scripted import ScriptedWorker

NAMES = ("anna", "bert", "cora")
POOL = Pool(tuple(WorkerProfile(name=name) for name in NAMES))
THREE = Workflow(
    (Step("anna", "collect"), Step("bert", "compare", (0,)), Step("cora", "conclude", (0, 1)))
)
USED = Usage(input_tokens=7, output_tokens=3)


class SlowPlanner(Worker):
    """Streams each of its texts in pieces, and lets others work between them."""

    def __init__(self, *texts: str, breaks_at: int | None = None) -> None:
        self.profile = WorkerProfile(name="planner")
        self._texts = list(texts)
        self._breaks_at = breaks_at

    async def reply(self, request: Request) -> Reply:
        return Reply(self._texts.pop(0), usage=USED)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        text = self._texts.pop(0)
        for start in range(0, len(text), 20):
            if self._breaks_at is not None and start >= self._breaks_at:
                raise RuntimeError("the line went dead")
            yield Delta(text[start : start + 20])
            for _ in range(3):
                await asyncio.sleep(0)
        yield Reply(text, usage=USED)


class Diligent(Worker):
    """Answers after a few turns of the event loop, and keeps count of its calls.

    It fails for requests that contain one of the texts in `fails`.
    """

    def __init__(self, name: str, turns: int = 2, fails: Sequence[str] = ()) -> None:
        self.profile = WorkerProfile(name=name)
        self._turns = turns
        self._fails = fails
        self.requests: list[Request] = []

    @property
    def calls(self) -> int:
        return len(self.requests)

    async def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        if any(f"Your subtask: {text}" in request.text for text in self._fails):
            raise Unavailable("it is down")
        return Reply(f"{self.profile.name}: {len(request.text)}", usage=USED)


async def ask(
    planner: Worker,
    workers: Sequence[Diligent] | None = None,
    events: list[Event] | None = None,
    *,
    overlap: bool = True,
    speculate: bool = False,
    budget: Budget = Budget(),
    max_steps: int = 5,
    rounds: int = 1,
    guardrails: Sequence[Guardrail] = (),
    pool: Pool = POOL,
    nested: Conductor | None = None,
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS,
) -> Run:
    workers = workers or [Diligent(name) for name in NAMES]
    leaders = [
        ConductorWorker(profile) for profile in pool if profile.provider == CONDUCTOR_PROVIDER
    ]
    runner = Runner(
        ModelConductor(planner, overlap=overlap, speculate=speculate, fallback="bert"),
        [*workers, *leaders],
        pool=pool,
        call_policy=CallPolicy(RetryPolicy(initial_wait_seconds=0.0)),
        nested_conductor=nested,
        guardrails=guardrails,
    )
    options = Options(
        budget=budget, max_steps=max_steps, rounds=rounds, response_options=response_options
    )
    return await runner.run(
        "What holds?",
        options=options,
        emit=None if events is None else events.append,
        stream=True,
    )


def plan_text(workflow: Workflow = THREE, layout: PlanLayout = "step-by-step") -> str:
    return write(workflow, POOL, layout=layout)


async def test_the_first_step_starts_before_the_plan_is_written() -> None:
    run = await ask(SlowPlanner(plan_text()))
    planned = run.rounds[0].planning_attempts[0].finished_ms
    assert run.status == "answered"
    assert run.steps[0].started_ms < planned, "it began early"
    assert run.steps[2].started_ms > planned, "the answering step never does"
    assert run.rounds[0].cancelled_steps == ()


async def test_without_overlap_nothing_starts_early() -> None:
    run = await ask(SlowPlanner(plan_text()), overlap=False)
    assert len(run.steps) == 3
    assert run.steps[0].started_ms >= run.rounds[0].planning_attempts[0].finished_ms


async def test_events_of_early_steps_come_after_the_plan() -> None:
    events: list[Event] = []
    await ask(SlowPlanner(plan_text()), events=events)
    kinds = [type(event) for event in events]
    assert kinds.index(StepStarted) > kinds.index(RoundPlanned)
    assert [e.step.index for e in events if isinstance(e, StepDone)] == [0, 1, 2]


async def test_a_plan_that_becomes_invalid_cancels_what_it_began() -> None:
    broken = plan_text().replace('"worker": 2', '"worker": 9')
    events: list[Event] = []
    run = await ask(SlowPlanner(broken, plan_text(Workflow(THREE.steps[:1]))), events=events)
    round_ = run.rounds[0]
    assert run.status == "answered"
    assert [step.worker for step in round_.steps] == ["anna"]
    assert {step.status for step in round_.cancelled_steps} == {"cancelled"}
    assert {step.reply for step in round_.cancelled_steps} == {""}
    assert round_.cancelled_steps[0].worker == "anna"
    assert "malformed" in (round_.cancelled_steps[0].error or "")
    planned = next(event for event in events if isinstance(event, RoundPlanned))
    assert planned.round.cancelled_steps == round_.cancelled_steps
    assert len(list(run.calls)) == run.spent.calls == 2 + len(round_.cancelled_steps) + 1
    assert load(dump(run)) == run


async def test_a_second_plan_in_the_text_cancels_what_the_first_began() -> None:
    other = Workflow(
        (Step("cora", "think"), Step("cora", "think on", (0,)), Step("bert", "end", (1,)))
    )
    run = await ask(SlowPlanner(f"{plan_text()}\n{plan_text(other)}"))
    assert run.rounds[0].workflow == other
    assert [step.subtask for step in run.steps] == ["think", "think on", "end"]
    assert {step.worker for step in run.cancelled_steps} == {"anna", "bert"}


async def test_a_planning_call_that_breaks_off_cancels_what_it_began() -> None:
    text = plan_text()
    run = await ask(SlowPlanner(text, text, text, text, text, breaks_at=len(text) - 30))
    assert run.status == "answered"
    assert run.rounds[0].workflow is not None
    assert len(run.rounds[0].workflow) == 1, "one worker answers where there is no plan"
    assert run.rounds[0].cancelled_steps


@pytest.mark.parametrize(
    ("budget", "begins_early"),
    [
        (Budget(calls=5), False),
        (Budget(calls=50), True),
        (Budget(tokens=20_000), False),
        (Budget(tokens=900_000), True),
    ],
)
async def test_a_tight_budget_waits_for_the_plan(budget: Budget, begins_early: bool) -> None:
    run = await ask(SlowPlanner(plan_text()), budget=budget)
    assert run.status == "answered"
    assert (
        run.steps[0].started_ms < run.rounds[0].planning_attempts[0].finished_ms
    ) is begins_early


CHIEF = ConductorWorker(WorkerProfile(name="chief")).profile


@pytest.mark.parametrize(
    "profiles",
    [
        [replace(CHIEF, name="anna")],
        [WorkerProfile(name="anna", fallback="chief")],
        [
            WorkerProfile(name="anna", fallback="bert"),
            WorkerProfile(name="bert", fallback="chief"),
        ],
    ],
)
async def test_a_step_that_may_lead_a_nested_run_waits_for_the_plan(
    profiles: list[WorkerProfile],
) -> None:
    named = {profile.name: profile for profile in (*POOL, CHIEF, *profiles)}
    nested = ModelConductor(SlowPlanner(plan_text(Workflow((Step("bert", "dig"),)))))
    events: list[Event] = []
    run = await ask(
        SlowPlanner(plan_text()),
        [Diligent(name) for name in NAMES if named[name].provider != CONDUCTOR_PROVIDER],
        events,
        pool=Pool(tuple(named.values())),
        nested=nested,
    )
    assert run.status == "answered"
    assert run.steps[0].started_ms > run.rounds[0].planning_attempts[0].finished_ms
    own = [event for event in events if isinstance(event, RoundPlanned | RunStarted)]
    assert [type(event) for event in own[:2]] == [RunStarted, RoundPlanned]


async def test_a_run_that_is_cancelled_while_it_plans_leaves_nothing_running() -> None:
    workers = [Diligent(name, turns=10_000) for name in NAMES]
    events: list[Event] = []
    task = asyncio.create_task(ask(SlowPlanner(plan_text() + " " * 9999), workers, events))
    while not workers[0].calls:
        await asyncio.sleep(0)
    before = asyncio.all_tasks()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()} < before
    ended = events[-1].run  # type: ignore[union-attr]
    assert ended.status == "interrupted"
    assert [step.worker for step in ended.rounds[0].cancelled_steps] == ["anna"]
    assert len(list(ended.calls)) == 2

    resumed = await Runner(
        ModelConductor(SlowPlanner(plan_text())), [Diligent(name) for name in NAMES], pool=POOL
    ).resume(ended)
    assert resumed.status == "answered"
    assert [step.worker for step in resumed.rounds[0].cancelled_steps] == ["anna"]
    assert len(list(resumed.calls)) == 2 + 1 + 3


async def test_a_deadline_that_passes_while_a_plan_is_written_cancels_what_it_began() -> None:
    workers = [Diligent(name, turns=10**9) for name in NAMES]
    planner = SlowPlanner(plan_text() + " " * 10**8)
    run = await ask(planner, workers, budget=Budget(seconds=0.05))
    assert (run.status, run.answer, run.spent.calls) == ("exhausted", None, 2)
    assert [(step.worker, step.status) for step in run.cancelled_steps] == [("anna", "cancelled")]
    assert len(list(run.calls)) == 2


def random_workflow(chance: random.Random, *, conditions: bool = False) -> Workflow:
    steps = []
    for index in range(chance.randint(1, 5)):
        condition = None
        if conditions and index and chance.random() < 0.2:
            condition = Condition("failed", (chance.randrange(index),))
        access = tuple(i for i in range(index) if chance.random() < 0.5)
        subtask = f"part {index} " + "x" * chance.randint(1, 60)
        steps.append(Step(chance.choice(NAMES), subtask, access, condition))
    return Workflow(tuple(steps))


def shout(checked: GuardrailInput) -> Redact | Pass:
    if checked.stage != "reply":
        return Pass()
    return Redact(checked.text.upper(), "small letters")


@pytest.mark.parametrize("seed", range(30))
async def test_guardrails_events_streams_and_replay_hold_under_overlap(seed: int) -> None:
    chance = random.Random(seed)
    workflow, events = random_workflow(chance), list[Event]()
    workers = [Diligent(name, chance.randint(0, 9)) for name in NAMES]
    guardrails = (as_guardrail(shout),) if seed % 2 else ()
    planner = SlowPlanner(plan_text(workflow))
    run = await ask(planner, workers, events, guardrails=guardrails)
    assert run.answer == "".join(e.text for e in events if isinstance(e, StepDelta))
    assert all(step.reply.isupper() == bool(guardrails) for step in run.steps)
    assert all(len(step.guardrail_checks) == len(guardrails) for step in run.steps)
    planned = next(i for i, event in enumerate(events) if isinstance(event, RoundPlanned))
    of_steps = [(i, e) for i, e in enumerate(events) if isinstance(e, StepStarted | StepDone)]
    assert all(position > planned for position, _ in of_steps)
    for index, step in enumerate(workflow.steps):
        own = [
            event
            for _, event in of_steps
            if (event.index if isinstance(event, StepStarted) else event.step.index) == index
        ]
        assert [type(event) for event in own] == [StepStarted, StepDone]
        request = replay_request(run, run.rounds[0], run.steps[index])
        worker = workers[NAMES.index(step.worker)]
        assert request in worker.requests


@pytest.mark.parametrize("seed", range(30))
async def test_a_run_cut_off_anywhere_under_overlap_resumes_to_the_same_answer(seed: int) -> None:
    chance = random.Random(seed)
    text, events = plan_text(random_workflow(chance)), list[Event]()
    whole = await ask(SlowPlanner(text))
    workers = [Diligent(name) for name in NAMES]
    task = asyncio.create_task(ask(SlowPlanner(text), workers, events))
    for _ in range(chance.randint(3, 60)):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    ended = load(dump(events[-1].run))  # type: ignore[union-attr]
    if ended.status == "interrupted":
        ended = await Runner(ModelConductor(SlowPlanner(text)), workers, pool=POOL).resume(ended)
    assert ended.answer == whole.answer
    made = [call for call in ended.calls if call.worker != "planner"]
    assert len(made) == sum(worker.calls for worker in workers)
    assert ended.spent.calls == len(list(ended.calls))


@pytest.mark.parametrize("seed", range(90))
async def test_overlap_changes_when_steps_run_and_nothing_else(seed: int) -> None:
    """Some plans have conditions, an invalid tail or a second round, some steps fail, and some
    budgets end early.
    """
    chance = random.Random(seed)
    layout: PlanLayout = chance.choice(("lists", "step-by-step"))
    plans = [random_workflow(chance, conditions=layout == "step-by-step") for _ in range(2)]
    text, later = (plan_text(workflow, layout) for workflow in plans)
    texts, rounds = [text, text, later, later], chance.choice((1, 1, 2))
    if chance.random() < 0.4:
        texts[0] = text[: chance.randint(1, len(text))] + chance.choice(("", "]", "}]}", " 9"))
    fails = [f"part {index}" for index in range(5) if chance.random() < 0.2]
    budget = Budget(calls=chance.choice((None, None, chance.randint(1, 12), 40)))
    outcomes = []
    for overlap in (False, True):
        workers = [Diligent(name, chance.randint(0, 9), fails) for name in NAMES]
        planner = SlowPlanner(*texts)
        run = await ask(planner, workers, overlap=overlap, budget=budget, rounds=rounds)
        assert budget.calls is None or run.spent.calls <= budget.calls
        made = sum(worker.calls for worker in workers)
        assert made == len([call for call in run.calls if call.worker != "planner"])
        assert run.spent.calls == len(list(run.calls))
        assert all(step.status == "cancelled" for step in run.cancelled_steps)
        for round_ in run.rounds:
            planned = range(len(round_.workflow or ()))
            assert [step.index for step in round_.steps] == [*planned]
        workflows = [round_.workflow for round_ in run.rounds]
        assert overlap or not run.cancelled_steps
        steps = [replace(s, started_ms=0, finished_ms=0, attempts=()) for s in run.steps]
        outcomes.append((run.status, run.answer, run.error, workflows, steps))
    # Which of two concurrent steps gets the last call of a budget is a matter of time.
    assert budget.calls is not None or outcomes[0] == outcomes[1]


async def test_a_worker_that_is_scripted_plans_with_overlap_too() -> None:
    run = await ask(ScriptedWorker("planner", [plan_text()], chunk=5))
    assert run.status == "answered"


async def test_a_plan_of_one_step_for_the_speculated_worker_uses_its_answer() -> None:
    workers, events = [Diligent(name) for name in NAMES], list[Event]()
    plan = plan_text(Workflow((Step("bert", "Say what holds."),)))
    run = await ask(SlowPlanner(plan), workers, events, speculate=True)
    assert run.status == "answered"
    assert [worker.calls for worker in workers] == [0, 1, 0]
    assert run.steps[0].started_ms < run.rounds[0].planning_attempts[0].finished_ms
    assert run.steps[0].prompt == run.question
    assert run.rounds[0].workflow == Workflow((Step("bert", run.question),))
    assert "asked the question itself" in run.rounds[0].warnings[0]
    assert run.cancelled_steps == ()
    text = "".join(event.text for event in events if isinstance(event, StepDelta))
    assert text == run.answer
    kinds = [type(event) for event in events]
    assert kinds.index(StepDelta) > kinds.index(RoundPlanned)


@pytest.mark.parametrize("workflow", [THREE, Workflow(THREE.steps[:1])])
async def test_any_other_plan_cancels_the_speculation(workflow: Workflow) -> None:
    run = await ask(SlowPlanner(plan_text(workflow)), speculate=True)
    assert run.status == "answered"
    assert run.rounds[0].workflow == workflow
    (cancelled,) = run.cancelled_steps
    assert (cancelled.worker, cancelled.status, cancelled.reply) == ("bert", "cancelled", "")
    assert len(list(run.calls)) == run.spent.calls == 1 + 1 + len(workflow)


async def test_nothing_is_speculated_where_the_budget_is_tight() -> None:
    run = await ask(SlowPlanner(plan_text()), speculate=True, budget=Budget(calls=6))
    assert run.cancelled_steps == ()
    assert run.spent.calls == 4


async def test_without_a_plan_the_speculated_answer_stands() -> None:
    workers = [Diligent(name) for name in NAMES]
    run = await ask(SlowPlanner("I cannot", "plan this."), workers, speculate=True)
    assert run.status == "answered"
    assert [worker.calls for worker in workers] == [0, 1, 0]


class Reluctant(Diligent):
    """Ends a cancelled call only when it is released."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.is_stopping = asyncio.Event()
        self.release = asyncio.Event()

    async def reply(self, request: Request) -> Reply:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.is_stopping.set()
            await self.release.wait()
            raise
        return Reply("too late")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        yield await self.reply(request)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_run_cancelled_while_it_drops_a_speculation_leaves_nothing_running(
    times: int,
) -> None:
    bert, events = Reluctant("bert"), list[Event]()
    workers = [Diligent("anna", turns=10_000), bert, Diligent("cora")]
    task = asyncio.create_task(ask(SlowPlanner(plan_text()), workers, events, speculate=True))
    await bert.is_stopping.wait()
    for _ in range(200):  # the plan is whole, and the run waits for the call to end
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    bert.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    ended = events[-1].run  # type: ignore[union-attr]
    assert {step.worker for step in ended.cancelled_steps} == {"anna", "bert"}
    assert len(list(ended.calls)) == ended.spent.calls == 3


class Stubborn(Diligent):
    """Swallows its cancellation."""

    async def reply(self, request: Request) -> Reply:
        with suppress(asyncio.CancelledError):
            return await super().reply(request)
        return Reply("all the same", usage=USED)


async def test_a_worker_that_swallows_its_cancellation_starts_no_further_step() -> None:
    workers = [Stubborn("anna", turns=10_000), Diligent("bert"), Diligent("cora")]
    plan = plan_text(Workflow((*THREE.steps, Step("cora", "end"))))
    broken = plan.replace('"worker": 2, "access": []', '"worker": 9, "access": []')
    run = await ask(SlowPlanner(broken, plan_text(Workflow((Step("cora", "say"),)))), workers)
    assert run.status == "answered"
    assert [worker.calls for worker in workers] == [1, 0, 1]
    assert [(step.status, step.reply) for step in run.cancelled_steps] == [("cancelled", "")]
    assert len(list(run.calls)) == run.spent.calls == 4


async def test_only_the_first_round_speculates() -> None:
    later = Workflow((Step("bert", "Say it at length."),))
    verdicts: list[Replan | Pass] = [Replan("too short"), Pass()]
    guardrails = (Guardrail("length", lambda _: verdicts.pop(0), stages=("answer",)),)
    planner = SlowPlanner(plan_text(Workflow((Step("bert", "Say it."),))), plan_text(later))
    run = await ask(planner, speculate=True, rounds=2, guardrails=guardrails)
    assert [round_.workflow for round_ in run.rounds[1:]] == [later]


LOOK = Tool("look", "looks something up", {"type": "object"})


class Caller(Diligent):
    """Calls a tool of the client once."""

    async def reply(self, request: Request) -> Reply:
        reply = await super().reply(request)
        if not request.tools or any(isinstance(p, ToolResult) for p in request.messages[-1].parts):
            return reply
        return Reply("", USED, "tool", (ToolCall(self.profile.name, "look", "{}"),))


@pytest.mark.parametrize(
    ("plan", "speculate"), [(THREE, False), (Workflow((Step("bert", "What holds?"),)), True)]
)
async def test_a_run_that_began_early_waits_for_the_client_s_tools_and_resumes(
    plan: Workflow, speculate: bool
) -> None:
    pool = Pool(
        tuple(WorkerProfile(name=name, capabilities=frozenset({"tools"})) for name in NAMES)
    )
    options = ResponseOptions(tools=(LOOK,))
    ended: list[Run] = []
    for early in (True, False):
        workers = [Caller(name) for name in NAMES]
        for worker, profile in zip(workers, pool, strict=True):
            worker.profile = profile
        planner = SlowPlanner(plan_text(plan))
        run = await ask(
            planner,
            workers,
            overlap=early,
            speculate=early and speculate,
            pool=pool,
            response_options=options,
        )
        assert run.status == "waiting"
        began = run.steps[0].started_ms < run.rounds[0].planning_attempts[0].finished_ms
        assert began is early
        assert [call.name for call in run.waiting_for] == ["look"]
        results = [ToolResult(call.id, "found") for call in run.waiting_for]
        conductor = ModelConductor(SlowPlanner())
        ended.append(await Runner(conductor, workers, pool=pool).resume(run, results=results))
    early_run, late_run = ended
    assert (early_run.status, early_run.answer) == ("answered", late_run.answer)
    assert len(list(early_run.calls)) == len(list(late_run.calls)) == early_run.spent.calls
