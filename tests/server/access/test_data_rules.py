"""What a key excludes sees nothing of what is asked with it: through the whole server, in every
step of every round, in nested runs, and however a conductor, a fallback or a client tries."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.conductors import ModelConductor
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import Unavailable
from podium.core.pool import WorkerProfile
from podium.core.run import Run
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow
from podium.engine.runner import ConductorWorker
from podium.store.keys import Rules
from podium.store.sql.run_store import SqlRunStore
from podium.workers import ScriptedWorker
from server.access.keyed import served_to
from support.serving import Served

EXCLUDING = Rules(exclude=frozenset({"anthropic", "grok"}))
ROUNDS = 3


def make_workers(failing: bool = False) -> dict[str, ScriptedWorker]:
    """Two who may be asked, two of an excluded provider, and one who is excluded by name."""
    profiles = (
        WorkerProfile(name="gpt", provider="openai", fallback="claude"),
        WorkerProfile(name="llama", provider="ollama", fallback="grok"),
        WorkerProfile(name="claude", provider="anthropic"),
        WorkerProfile(name="haiku", provider="anthropic"),
        WorkerProfile(name="grok", provider="xai"),
    )
    script = Unavailable("down") if failing else "said"
    return {profile.name: ScriptedWorker(profile, script) for profile in profiles}


FORBIDDEN = ("claude", "haiku", "grok")


class Restless(Conductor):
    """Plans at random over the pool, nests where possible, and never accepts."""

    name = "restless"

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        names = context.pool.names
        steps = (Step(self.dice.choice(names), "do it", "all") for _ in range(4))
        return Plan(Workflow(tuple(steps)))


class Insisting(Conductor):
    """Plans for one worker, whatever the pool is."""

    name = "insisting"

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        return Plan(Workflow((Step(self.wanted, "do it", ()),)))


def asked(run: Run) -> Iterator[str]:
    """Everyone who was called for a run, nested runs included."""
    yield from (attempt.worker for attempt in run.calls)


def nested(run: Run) -> list[Run]:
    return [inner for step in run.steps for inner in step.nested]


@pytest.mark.parametrize("seed", range(8))
async def test_no_step_of_any_round_or_nested_run_goes_to_an_excluded_worker(
    tmp_path: Path, seed: int
) -> None:
    named = make_workers()
    workers: list[Worker] = [*named.values(), ConductorWorker()]
    async with served_to(EXCLUDING, workers, Restless(seed), tmp_path, ROUNDS) as (served, store):
        response = await served.ask("Compare tea and coffee", model="podium-ultra")
        assert response.status_code == 200
        run = await _kept(served, store)
    assert len(run.rounds) == ROUNDS
    assert not set(asked(run)) & set(FORBIDDEN)
    assert {name: named[name].calls for name in FORBIDDEN} == dict.fromkeys(FORBIDDEN, 0)
    assert named["gpt"].calls + named["llama"].calls > 0
    for item in (run, *nested(run)):
        assert set(item.exclude) == EXCLUDING.exclude
        assert set(item.pool.names) <= {"gpt", "llama", "conductor"}


async def test_without_the_rule_the_same_runs_do_ask_them_and_nest(tmp_path: Path) -> None:
    named = make_workers()
    workers: list[Worker] = [*named.values(), ConductorWorker()]
    runs = []
    for seed in range(8):
        directory = tmp_path / str(seed)
        async with served_to(Rules(), workers, Restless(seed), directory, ROUNDS) as (
            served,
            store,
        ):
            await served.ask("Compare tea and coffee", model="podium-ultra")
            runs.append(await _kept(served, store))
    assert all(named[name].calls for name in FORBIDDEN)
    assert any(nested(run) for run in runs)


@pytest.mark.parametrize("wanted", FORBIDDEN)
async def test_a_plan_with_an_excluded_worker_is_not_executed(tmp_path: Path, wanted: str) -> None:
    named = make_workers()
    async with served_to(EXCLUDING, [*named.values()], Insisting(wanted), tmp_path) as (
        served,
        _,
    ):
        response = await served.ask("Why?", model="podium-ultra")
    assert response.status_code >= 400
    assert named[wanted].calls == 0


async def test_an_excluded_worker_is_no_fallback(tmp_path: Path) -> None:
    named = make_workers(failing=True)
    async with served_to(EXCLUDING, [*named.values()], Restless(0), tmp_path) as (served, _):
        response = await served.ask("Why?", model="podium-ultra")
    assert response.status_code == 502
    assert named["gpt"].calls + named["llama"].calls > 0
    assert {name: named[name].calls for name in FORBIDDEN} == dict.fromkeys(FORBIDDEN, 0)


async def test_a_planner_that_is_excluded_does_not_read_the_question(tmp_path: Path) -> None:
    named = make_workers()
    planner = ModelConductor(named["claude"])
    async with served_to(EXCLUDING, [*named.values()], planner, tmp_path) as (served, _):
        await served.ask("Why?", model="podium-ultra")
    assert named["claude"].calls == 0


@pytest.mark.parametrize("wanted", FORBIDDEN)
async def test_an_excluded_worker_cannot_be_called_by_name(tmp_path: Path, wanted: str) -> None:
    named = make_workers()
    async with served_to(EXCLUDING, [*named.values()], Restless(0), tmp_path) as (served, _):
        response = await served.ask("Why?", model=wanted)
        listed = [item["id"] for item in (await served.client.get("/v1/models")).json()["data"]]
    assert (response.status_code, response.json()["field"]) == (403, "model")
    assert named[wanted].calls == 0
    assert wanted not in listed
    assert "gpt" in listed


@pytest.mark.parametrize(
    "wish",
    [
        {"exclude": []},
        {"exclude": ["llama"]},
        {"workflow": {"steps": [{"worker": "claude", "subtask": "do it", "access": []}]}},
    ],
)
async def test_a_client_can_lower_limits_and_never_raise_them(
    tmp_path: Path, wish: dict[str, object]
) -> None:
    named = make_workers()
    async with served_to(EXCLUDING, [*named.values()], Restless(1), tmp_path) as (served, _):
        await served.ask("Why?", model="podium-ultra", podium=wish)
    assert {name: named[name].calls for name in FORBIDDEN} == dict.fromkeys(FORBIDDEN, 0)


async def _kept(served: Served, store: SqlRunStore) -> Run:
    """The one run that there is, written."""
    await served.service.store.list()
    return await store.load("last")
