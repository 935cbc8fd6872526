from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from podium import (
    AsyncPodium,
    Budget,
    FixedConductor,
    Options,
    Podium,
    PodiumError,
    RulesConductor,
    ScriptedWorker,
    Step,
    Workflow,
    open_store,
)
from podium.errors import StoreError, UnknownWorker
from podium.events import Event, RunDone, StepDelta
from podium.request import Request
from podium.run import Run
from podium.store import NullStore

JOIN = Workflow((Step("a", "one view"), Step("b", "another"), Step("a", "both", (0, 1))))


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker("a", "answer of a"), ScriptedWorker("b", "answer of b")]


async def test_ask_answers_with_the_given_workers_and_conductor() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        run = await podium.ask("why?")
    assert (run.status, run.answer, len(run.steps)) == ("answered", "answer of a", 3)


async def test_without_a_conductor_the_best_worker_plans() -> None:
    def act(request: Request) -> str:
        planning = request.messages[-1].text != "why?"
        return 'model_id = [0]\nsubtasks = ["why?"]\naccess_list = [[]]' if planning else "so."

    async with AsyncPodium([ScriptedWorker("a", act)]) as podium:
        run = await podium.ask("why?")
    assert (run.answer, run.conductor) == ("so.", "model(a)")
    assert [call.worker for call in run.rounds[0].planning] == ["a"]


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


async def test_wishes_of_one_run_take_the_place_of_the_options() -> None:
    usual = Options(max_steps=4, budget=Budget(calls=9))
    async with AsyncPodium(workers(), FixedConductor(JOIN), options=usual) as podium:
        run = await podium.ask("why?", budget=Budget(calls=2), rounds=2, exclude=frozenset())
    assert (run.max_steps, run.max_rounds, run.budget.calls) == (4, 2, 2)
    assert run.status == "partial"


async def test_the_mini_tier_asks_one_worker_and_plans_nothing() -> None:
    async with AsyncPodium(workers(), FixedConductor(JOIN)) as podium:
        run = await podium.ask("why?", tier="mini")
    assert (run.tier, len(run.steps), run.spent.calls) == ("mini", 1, 1)


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


async def test_a_run_is_kept_when_its_watcher_leaves_at_the_end(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
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


async def test_runs_are_kept_in_the_store_and_resumed_from_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "runs.db")
    slow = ScriptedWorker("b", "answer of b", delay_seconds=3600)
    plan = Workflow((Step("a", "x"), Step("b", "y", (0,))))
    async with AsyncPodium([workers()[0], slow], store=store) as podium:
        cut = await podium.run(plan, "why?", budget=Budget(seconds=0.05))
        assert cut.status == "partial"
    store = await open_store(tmp_path / "runs.db")
    crew = workers()
    async with AsyncPodium(crew, store=store) as podium:
        run = await podium.resume(cut.id, budget=Budget())
        assert (run.id, run.answer, crew[0].calls) == (cut.id, "answer of b", 0)
        assert await store.load("last") == run


async def test_a_store_that_fails_costs_a_warning_and_not_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(NullStore):
        async def finish(self, run: Run) -> None:
            raise StoreError("the disk is full; free some space")

    async with AsyncPodium(workers(), FixedConductor(JOIN), store=Full()) as podium:
        with caplog.at_level(logging.WARNING, "podium"):
            run = await podium.ask("why?")
    assert run.answer == "answer of a"
    assert "not stored: the disk is full" in caplog.text


@pytest.fixture
def podium() -> Iterator[Podium]:
    with Podium(workers(), FixedConductor(JOIN)) as podium:
        yield podium


def test_podium_waits_where_async_podium_awaits(podium: Podium) -> None:
    assert podium.ask("why?").answer == "answer of a"
    assert podium.plan("why?").workflow == JOIN
    assert podium.run(Workflow((Step("b", "x"),)), "why?").answer == "answer of b"
    events: list[Event] = list(podium.stream("why?"))
    assert isinstance(events[-1], RunDone)


def test_podium_raises_what_async_podium_raises(podium: Podium) -> None:
    with pytest.raises(UnknownWorker):
        podium.run(Workflow((Step("c", "x"),)), "why?")
    with pytest.raises(PodiumError):
        list(podium.stream("why?", exclude=frozenset({"a", "b"})))


def test_podium_keeps_runs_in_a_file_that_it_is_given(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    with Podium(workers(), FixedConductor(JOIN), store=file) as podium:
        first = podium.ask("why?")
    again = Podium(workers(), FixedConductor(JOIN), store=str(file))
    with again as podium, pytest.raises(PodiumError, match="answered already"):
        podium.resume(first.id)


def test_podium_closes_twice_without_complaint() -> None:
    podium = Podium(workers(), FixedConductor(JOIN))
    podium.close()
    podium.close()
    with pytest.raises(PodiumError, match="this Podium is closed"):
        podium.ask("why?")
