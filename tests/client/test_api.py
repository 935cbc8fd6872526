from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from podium import (
    AsyncPodium,
    Budget,
    ConductorWorker,
    FixedConductor,
    Image,
    ModelConductor,
    Options,
    PodiumError,
    Reply,
    Request,
    ResponseOptions,
    RulesConductor,
    ScriptedWorker,
    Step,
    Tool,
    ToolCall,
    ToolResult,
    Worker,
    WorkerProfile,
    Workflow,
    open_store,
)
from podium.conductors import TierRouter
from podium.config import load
from podium.core.errors import ConfigError, StoreError, UnknownWorker, UsageError
from podium.core.events import Event, RunDone, StepDelta
from podium.core.run import Round, Run
from podium.store import RunStore
from support.scripted_router import ScriptedRouter

SOON = 20.0
"""Seconds in which what is waited for has happened, or never will."""

JOIN = Workflow((Step("a", "one view"), Step("b", "another"), Step("a", "both", (0, 1))))


class HeldWorker(Worker):
    """Says that it was asked, and then never answers."""

    def __init__(self, name: str = "a") -> None:
        self.profile = WorkerProfile(name=name)
        self.asked = asyncio.Event()

    async def reply(self, request: Request) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")


class Holding(ScriptedWorker):
    """Counts how often it was closed, and may fail at it."""

    closed = 0

    def __init__(self, name: str, fault: Exception | None = None) -> None:
        super().__init__(name, f"answer of {name}")
        self.fault = fault

    async def close(self) -> None:
        self.closed += 1
        if self.fault is not None:
            raise self.fault


ALONE = Workflow((Step("a", "x"),))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[RunStore]:
    store = await open_store(tmp_path / "runs.db")
    yield store
    await store.close()


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker("a", "answer of a"), ScriptedWorker("b", "answer of b")]


async def test_ask_answers_with_the_given_workers_and_conductor() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        run = await podium.ask("why?")
    assert (run.status, run.answer, len(run.steps)) == ("answered", "answer of a", 3)


async def test_images_terms_and_owner_are_kept_on_the_run() -> None:
    image, response_options = Image(url="https://example.org/a.png"), ResponseOptions(max_tokens=9)
    seeing = ScriptedWorker(
        WorkerProfile(name="a", capabilities=frozenset({"vision"})), "a red square"
    )
    async with AsyncPodium([seeing], FixedConductor(ALONE)) as podium:
        run = await podium.ask(
            "why?", images=(image,), response_options=response_options, owner="key_1"
        )
    assert (run.images, run.response_options, run.owner) == ((image,), response_options, "key_1")


LOOK = Tool("look", "looks something up", {"type": "object"})


def looking(name: str = "a") -> ScriptedWorker:
    """Looks something up, and says what it found."""

    def act(request: Request) -> Reply | str:
        found = [p.text for m in request.messages for p in m.parts if isinstance(p, ToolResult)]
        called = Reply("", finish="tool", tool_calls=(ToolCall("1", "look", "{}"),))
        return f"found {found[0]}" if found else called

    profile = WorkerProfile(name=name, capabilities=frozenset({"tools"}))
    return ScriptedWorker(profile, act)


async def test_a_run_that_waits_is_kept_and_continues_with_the_results(store: RunStore) -> None:
    worker = looking()
    async with AsyncPodium([worker], FixedConductor(ALONE), store=store) as podium:
        run = await podium.ask(
            "why?", response_options=ResponseOptions(tools=(LOOK,)), owner="key_1"
        )
        kept = await store.load(run.id)
        assert (kept, kept.status) == (run, "waiting")
        with pytest.raises(UsageError, match=r"waits for the results of 1 \(look\)"):
            await podium.resume(run.id)
        results = (ToolResult(run.waiting_for[0].id, "it"),)
        again = await podium.resume(run.id, results=results)
        assert await store.load(run.id) == again
    assert (again.status, again.answer, again.owner) == ("answered", "found it", "key_1")
    assert (worker.calls, again.spent.calls) == (2, 2)


async def test_a_run_is_not_taken_up_twice_at_once() -> None:
    worker = looking()
    async with AsyncPodium([worker], FixedConductor(ALONE)) as podium:
        run = await podium.ask("why?", response_options=ResponseOptions(tools=(LOOK,)))
        results = (ToolResult("1", "it"),)
        ended = await asyncio.gather(
            podium.resume(run, results=results),
            podium.resume(run, results=results),
            return_exceptions=True,
        )
    assert sorted(type(end).__name__ for end in ended) == ["Conflict", "Run"]
    assert worker.calls == 2


async def test_one_of_two_podiums_on_a_store_resumes_a_run(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, one_is_refused = looking(), asyncio.Event()
    at_once = worker.reply

    async def reply(request: Request) -> Reply:
        if worker.calls:
            await one_is_refused.wait()
        return await at_once(request)

    monkeypatch.setattr(worker, "reply", reply)
    other = await open_store(tmp_path / "runs.db")
    async with (
        AsyncPodium([worker], FixedConductor(ALONE), store=store) as here,
        AsyncPodium([worker], FixedConductor(ALONE), store=other) as there,
    ):
        run = await here.ask("why?", response_options=ResponseOptions(tools=(LOOK,)))
        results = (ToolResult("1", "it"),)
        resuming = [
            asyncio.create_task(here.resume(run, results=results)),
            asyncio.create_task(there.resume(run.id, results=results)),
        ]
        await asyncio.wait(resuming, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
        one_is_refused.set()
        ended = await asyncio.gather(*resuming, return_exceptions=True)
        assert (await store.load(run.id)).answer == "found it"
    await other.close()
    assert sorted(type(end).__name__ for end in ended) == ["Conflict", "Run"]
    assert worker.calls == 2


async def test_a_run_that_could_not_be_resumed_stays_as_it_was(store: RunStore) -> None:
    async with AsyncPodium([looking()], FixedConductor(ALONE), store=store) as podium:
        run = await podium.ask("why?", response_options=ResponseOptions(tools=(LOOK,)))
        with pytest.raises(UsageError, match="'2'"):
            await podium.resume(run, results=(ToolResult("2", "it"),))
        assert await store.load(run.id) == run
        assert not await store.is_claimed(run.id)
        assert (await podium.resume(run, results=(ToolResult("1", "it"),))).answer == "found it"
        with pytest.raises(ConfigError, match="answered already"):
            await podium.resume(run)
        assert (await store.load(run.id)).status == "answered"


async def test_tools_in_the_toolbox_are_used_inside_the_step() -> None:
    class Box:
        tools = (LOOK,)

        async def call(self, call: ToolCall) -> ToolResult:
            return ToolResult(call.id, "it")

    async with AsyncPodium([looking()], FixedConductor(ALONE), toolbox=Box()) as podium:
        run = await podium.ask("why?")
    assert (run.status, run.answer) == ("answered", "found it")


async def test_without_a_conductor_the_best_worker_plans() -> None:
    def act(request: Request) -> str:
        planning = request.messages[-1].text != "why?"
        return 'model_id = [0]\nsubtasks = ["why?"]\naccess_list = [[]]' if planning else "so."

    async with AsyncPodium([ScriptedWorker("a", act), ScriptedWorker("b", "42")]) as podium:
        run = await podium.ask("why?")
    assert (run.answer, run.conductor) == ("so.", "model(a)")
    assert [call.worker for call in run.rounds[0].planning_attempts] == ["a"]


async def test_plan_carries_nothing_out() -> None:
    crew = workers()
    async with AsyncPodium(crew, RulesConductor()) as podium:
        round_ = await podium.plan("Compare x and y")
    assert round_.workflow is not None
    assert len(round_.workflow) == 3
    assert [worker.calls for worker in crew] == [0, 0]


async def test_run_carries_out_a_workflow_by_hand_and_checks_it_first() -> None:
    async with AsyncPodium(workers()) as podium:
        run = await podium.run(JOIN, "why?")
        assert (run.conductor, run.answer) == ("fixed", "answer of a")
        with pytest.raises(UnknownWorker, match="no worker named 'c'"):
            await podium.run(Workflow((Step("c", "x"),)), "why?")


async def test_a_workflow_by_hand_that_could_not_be_planned_is_not_replaced_by_another() -> None:
    crew = workers()
    async with AsyncPodium(crew, FixedConductor(JOIN)) as podium:
        run = await podium.run(JOIN, "why?")
    failed = replace(run, status="failed", answer=None, rounds=(Round(0, None),))
    calls = [worker.calls for worker in crew]
    async with AsyncPodium(crew, RulesConductor()) as podium:
        with pytest.raises(UsageError, match="before the workflow that it was given was on record"):
            await podium.resume(failed)
    assert [worker.calls for worker in crew] == calls


async def test_options_of_one_run_override_the_defaults() -> None:
    usual = Options(max_steps=4, budget=Budget(calls=9))
    async with AsyncPodium(workers(), FixedConductor(JOIN), options=usual) as podium:
        run = await podium.ask("why?", budget=Budget(calls=2), rounds=2, exclude=frozenset())
    assert (run.max_steps, run.max_rounds, run.budget.calls) == (4, 2, 2)
    assert run.status == "partial"


async def test_the_mini_tier_asks_one_worker_and_plans_nothing() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        run = await podium.ask("why?", tier="mini")
    assert (run.tier, len(run.steps), run.spent.calls) == ("mini", 1, 1)


async def test_a_misspelt_option_is_refused_not_ignored() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        with pytest.raises(
            PodiumError, match="unexpected option 'budgets'; expected one of history"
        ):
            await podium.ask("why?", budgets=Budget(calls=0))  # type: ignore[call-arg]
        with pytest.raises(PodiumError, match="cannot exclude 'zz'"):
            await podium.ask("why?", exclude=frozenset({"zz"}))


async def test_a_run_that_is_still_going_on_is_not_resumed() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        run = replace(await podium.ask("why?"), status="running")
        with pytest.raises(PodiumError, match="still running in process"):
            await podium.resume(run)
        crashed = replace(run, process=run.process.rpartition(":")[0] + ":999999999")
        assert (await podium.resume(crashed)).status == "answered"


async def test_a_crash_loses_no_finished_step_of_a_nested_run(tmp_path: Path) -> None:
    """What the store holds while the inner run is at its second step is what a crash leaves."""
    inner = Workflow((Step("a", "first"), Step("slow", "second", (0,))))
    outer = Workflow((Step("conductor", "x"),))
    reached = asyncio.Event()

    def hang(request: Request) -> str:
        reached.set()
        return "never said"

    slow = ScriptedWorker("slow", hang, delay_seconds=3600)
    store = await open_store(tmp_path / "runs.db")
    crew = [ScriptedWorker("a", "kept"), slow, ConductorWorker()]
    async with AsyncPodium(crew, FixedConductor(inner), store=store) as podium:
        task = asyncio.create_task(podium.run(outer, "why?"))
        async with asyncio.timeout(SOON):
            await reached.wait()
            while not await store.list():  # what happens is written while the run goes on
                await asyncio.sleep(0)
            left = await store.load("last")
            while not left.steps or not left.steps[0].nested[0].steps:
                left = await store.load("last")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.close()
    assert left.status == "running"
    again = ScriptedWorker("a", "asked again")
    crew = [again, ScriptedWorker("slow", "end"), ConductorWorker()]
    async with AsyncPodium(crew, FixedConductor(inner)) as podium:
        run = await podium.resume(replace(left, process="elsewhere:1"))
    assert (run.answer, again.calls) == ("end", 0)


async def test_stream_yields_the_answer_as_it_comes_and_the_run_last() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        events = [event async for event in podium.stream("why?")]
    text = "".join(event.text for event in events if isinstance(event, StepDelta))
    assert text == "answer of a"
    assert isinstance(events[-1], RunDone)


async def test_leaving_a_stream_early_stops_the_run() -> None:
    slow = ScriptedWorker("a", "never said", delay_seconds=3600)
    async with AsyncPodium([slow], FixedConductor(Workflow((Step("a", "x"),)))) as podium:
        before = asyncio.all_tasks()
        stream = podium.stream("why?")
        await anext(stream)
        await stream.aclose()
        assert asyncio.all_tasks() == before


async def test_a_run_is_kept_when_its_watcher_leaves_at_the_end(store: RunStore) -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN), store=store) as podium:
        async with aclosing(podium.stream("why?")) as events:
            async for event in events:
                if isinstance(event, RunDone):
                    break
        assert (await store.load("last")).status == "answered"


async def test_a_usage_error_comes_out_of_a_stream_as_it_is() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        with pytest.raises(PodiumError, match="leaves no worker"):
            async for _ in podium.stream("why?", exclude=frozenset({"a", "b"})):
                pass


async def test_runs_are_kept_in_the_store_and_resumed_from_it(store: RunStore) -> None:
    slow = ScriptedWorker("b", "answer of b", delay_seconds=3600)
    plan = Workflow((Step("a", "x"), Step("b", "y", (0,))))
    async with AsyncPodium([workers()[0], slow], store=store) as podium:
        cut = await podium.run(plan, "why?", budget=Budget(seconds=0.05))
        assert cut.status == "partial"
    crew = workers()
    async with AsyncPodium(crew, store=store) as podium:
        run = await podium.resume(cut.id, budget=Budget())
        assert (run.id, run.answer, crew[0].calls) == (cut.id, "answer of b", 0)
        assert await store.load("last") == run


async def test_a_store_that_fails_costs_a_warning_and_not_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(RunStore):
        async def finish(self, *runs: Run) -> None:
            raise StoreError("the disk is full; free some space")

    async with AsyncPodium(workers(), FixedConductor(JOIN), store=Full()) as podium:
        with caplog.at_level(logging.WARNING, "podium"):
            run = await podium.ask("why?")
    assert run.answer == "answer of a"
    assert "not stored: the disk is full" in caplog.text


async def test_closing_stops_the_runs_that_are_going_on_and_keeps_them(store: RunStore) -> None:
    held = HeldWorker()
    podium = AsyncPodium([held], FixedConductor(ALONE), store=store)
    asking = asyncio.create_task(podium.ask("why?"))
    await asyncio.wait_for(held.asked.wait(), SOON)
    await podium.close()
    assert (await store.load("last")).status == "interrupted"
    with pytest.raises(UsageError, match="was closed during the run"):
        await asking
    assert asking.cancelling() == 0


async def test_a_caller_that_is_cancelled_while_podium_closes_stays_cancelled() -> None:
    held = HeldWorker()
    podium = AsyncPodium([held], FixedConductor(ALONE))
    asking = asyncio.create_task(podium.ask("why?"))
    await asyncio.wait_for(held.asked.wait(), SOON)
    asking.cancel()
    await podium.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_stream_that_was_left_standing_does_not_outlive_podium(store: RunStore) -> None:
    podium = AsyncPodium([HeldWorker()], FixedConductor(ALONE), store=store)
    stream = podium.stream("why?")
    await anext(stream)
    await podium.close()
    assert (await store.load("last")).status == "interrupted"
    with pytest.raises(UsageError, match="was closed during the run"):
        async for _ in stream:
            pass


async def test_a_closed_podium_refuses_everything_but_to_be_closed_again() -> None:
    podium = AsyncPodium(workers(), FixedConductor(JOIN))
    run = await podium.ask("why?")
    await podium.close()
    await podium.close()
    stream = podium.stream("why?")
    for call in (
        podium.ask("why?"),
        podium.run(JOIN, "why?"),
        podium.plan("why?"),
        podium.resume(run),
        podium.open(),
        anext(stream),
    ):
        with pytest.raises(UsageError, match="this Podium is closed; create a new one"):
            await call


async def test_failure_to_close_one_closes_the_others(tmp_path: Path) -> None:
    crew = [Holding("a"), Holding("b", OSError("stuck")), Holding("c")]
    podium = AsyncPodium(crew, FixedConductor(ALONE), store=tmp_path / "runs.db")
    await podium.ask("why?")
    store = (await podium.open()).store
    with pytest.raises(OSError, match="stuck"):
        await podium.close()
    assert [worker.closed for worker in crew] == [1, 1, 1]
    with pytest.raises(StoreError, match="is closed"):
        await store.load("last")


async def test_a_store_that_was_given_stays_open(store: RunStore) -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN), store=store) as podium:
        run = await podium.ask("why?")
    assert await store.load("last") == run


async def test_settings_that_cannot_be_used_open_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    file = tmp_path / "podium.toml"
    file.write_text(
        '[store]\npath = "runs.db"\n'
        '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "m"\nkey_env = "NO_SUCH_KEY"\n'
    )
    for where in (None, tmp_path / "runs.db"):
        async with AsyncPodium(settings=load(file), store=where) as podium:
            with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
                await podium.ask("why?")
    assert not (tmp_path / "runs.db").exists()


async def test_a_watcher_that_fails_costs_a_warning_and_not_the_run(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []

    def fail(event: Event) -> None:
        events.append(event)
        raise ValueError("no room on the page")

    async with AsyncPodium(workers(), FixedConductor(JOIN), store=store) as podium:
        run = await podium.ask("why?", emit=fail)
    assert (run.status, len(events)) == ("answered", 1)
    assert await store.load("last") == run
    [record] = caplog.records
    assert record.getMessage() == (
        "a listener of this run failed: ValueError('no room on the page')"
    )


async def test_a_stream_reaches_a_second_listener_and_survives_its_failure() -> None:
    reported: list[Event] = []

    def watch(event: Event) -> None:
        reported.append(event)
        if isinstance(event, StepDelta):
            raise ValueError("words")

    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        events = [event async for event in podium.stream("why?", emit=watch)]
    assert reported == events[: len(reported)]
    assert isinstance(reported[-1], StepDelta)
    assert isinstance(events[-1], RunDone)


@pytest.mark.parametrize("name", ["d", ""])
async def test_excluding_what_is_not_there_is_refused(name: str) -> None:
    async with AsyncPodium([*workers(), HeldWorker("c")], FixedConductor(JOIN)) as podium:
        with pytest.raises(ConfigError, match="cannot exclude .*there is a, b, c, scripted"):
            await podium.ask("why?", exclude=frozenset({name}))


async def test_a_planner_outside_the_pool_can_be_excluded() -> None:
    boss = ScriptedWorker("boss", "model_id = [0]")
    async with AsyncPodium(workers(), ModelConductor(boss)) as podium:
        run = await podium.ask("why?", exclude=frozenset({"boss"}))
    assert (run.exclude, boss.calls) == (("boss",), 0)


async def test_an_option_of_a_run_excludes_more_than_the_settings_and_never_less() -> None:
    usual = Options(exclude=frozenset({"a", "gone"}))
    async with AsyncPodium(workers(), RulesConductor(), options=usual) as podium:
        run = await podium.ask("why?", exclude=frozenset())
        assert (run.exclude, run.pool.names) == (("a", "gone"), ("b",))
        with pytest.raises(UsageError, match="leaves no worker"):
            await podium.ask("why?", exclude=frozenset({"b"}))


async def test_a_supplied_workflow_may_not_use_excluded_workers() -> None:
    crew = workers()
    async with AsyncPodium(crew) as podium:
        with pytest.raises(UnknownWorker, match="no worker named 'a' in the pool; it has b"):
            await podium.run(JOIN, "why?", exclude=frozenset({"a"}))
    assert [worker.calls for worker in crew] == [0, 0]


async def test_a_router_that_was_trained_with_another_pool_is_refused_or_narrows_with_a_warning(
    tmp_path: Path,
) -> None:
    workers = [ScriptedWorker("a", "A"), ScriptedWorker("b", "B")]
    router = ScriptedRouter({"a": 0.8, "b": 0.9}, stranger="b")
    async with AsyncPodium(
        workers, router=TierRouter(router), store=tmp_path / "runs.db"
    ) as podium:
        with pytest.raises(
            ConfigError, match=r"another pool: b is new; .* TierRouter\(…, narrow=True\)"
        ):
            await podium.ask("Why?", tier="mini")
    assert not (tmp_path / "runs.db").exists()
    async with AsyncPodium(
        workers, router=TierRouter(router, narrow=True, quality_bias=0.9)
    ) as podium:
        run = await podium.ask("Why?", tier="mini")
    assert run.answer == "A"
    assert "b is new; it chooses among those that both have" in run.rounds[0].warnings[0]
    assert [quality_bias for _, _, quality_bias in router.asked] == [0.9]
