from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evals.support import oracle_cases, setup_of
from podium.conductors import ModelConductor
from podium.config import Settings, WorkerSettings, load
from podium.core.pool import WorkerProfile
from podium.core.request import Request, user
from podium.evals.evaluation import Evaluation
from podium.evals.setup import open_setup, remove_adapter, worker_fingerprint
from podium.workers.cached import ReplyCache
from podium_lab.etudes import ROLES
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import OracleWorker, oracle_workers
from podium_lab.evals.tables import with_flaky_specialists

PLAN = 'model_id = [0]\nsubtasks = ["Why?"]\naccess_list = [[]]'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A pool in which every role says its own name, and a model that plans."""
    workers = [
        f'[[worker]]\nname = "{role}"\nprovider = "scripted"\noptions = {{ reply = "{role}" }}\n'
        for role in ROLES
    ]
    path = tmp_path / "pool.toml"
    planner = (
        '[[worker]]\nname = "planner"\nprovider = "scripted"\n'
        f"options = {{ reply = {json.dumps(PLAN)} }}\n"
    )
    path.write_text('[conductor]\nmodel = "planner"\n' + "".join([*workers, planner]), "utf-8")
    return load(path)


async def test_the_workers_and_the_conductor_are_those_of_the_settings(settings: Settings) -> None:
    async with open_setup(settings, {}) as setup:
        assert set(setup.workers) == {*ROLES, "planner"}
        assert setup.pool == settings.pool
        assert setup.conductor.name == "model(planner)"
        assert setup.options.max_steps == settings.conductor.max_steps
        reply = await setup.workers["words"].reply(Request((user("Who?"),)))
        assert reply.text == "words"


async def test_perfect_workers_take_the_place_of_the_pool_but_not_of_the_conductor(
    settings: Settings,
) -> None:
    async with open_setup(settings, {}, oracle=True) as setup:
        assert setup.pool.names == ROLES
        assert {profile.provider for profile in setup.pool} == {"oracle"}
        assert setup.conductor.name == "model(planner)"


async def test_with_a_cache_neither_workers_nor_planner_are_asked_the_same_twice(
    settings: Settings,
) -> None:
    cases = oracle_cases(3)
    cache = ReplyCache(None, 1_000_000)
    for _ in range(2):
        async with open_setup(settings, {}, cache=cache) as setup:
            evaluation = Evaluation(setup, cases, seed=0, concurrency=2)
            await evaluation.row("conductor")
            await evaluation.row("single:words")
        asked, cache.misses = cache.misses, 0
    assert asked == 0
    assert cache.hits > 0


async def test_a_vote_is_served_by_what_single_workers_have_replied(settings: Settings) -> None:
    cases = oracle_cases(3)
    cache = ReplyCache(None, 1_000_000)
    async with open_setup(settings, {}, cache=cache) as setup:
        evaluation = Evaluation(setup, cases, seed=0, concurrency=2)
        await evaluation.row("best-single")
        before = cache.misses
        await evaluation.row("majority")
        assert cache.misses == before


async def test_the_baseline_model_is_asked_in_two_ways_of_which_the_better_counts(
    settings: Settings,
) -> None:
    async with open_setup(settings, {}) as setup:
        assert set(setup.baseline_conductors) == {"compact", "full"}
        for prompt, conductor in setup.baseline_conductors.items():
            assert isinstance(conductor, ModelConductor)
            assert conductor.name == f"baseline-conductor:{prompt}"
            assert conductor.worker.profile.name == "planner-baseline"
        row = await Evaluation(setup, oracle_cases(2), seed=0, concurrency=1).row(
            "baseline-conductor"
        )
    assert set(row.candidates or ()) == {"baseline-conductor:compact", "baseline-conductor:full"}


def test_the_baseline_model_is_the_trained_one_less_its_adapter() -> None:
    trained = WorkerSettings(
        profile=WorkerProfile(name="conductor", provider="llamacpp", model="small"),
        options={"adapter": "trained.gguf", "adapter_scale": 1.0, "temperature": 0.0},
    )
    bare = remove_adapter(trained)
    assert bare is not None
    assert bare.options == {"temperature": 0.0}
    assert (bare.profile.model, bare.profile.name) == ("small", "conductor-baseline")


async def test_the_baseline_model_on_the_processor_is_asked_a_few_things_at_a_time(
    settings: Settings, tmp_path: Path
) -> None:
    weights = tmp_path / "small.gguf"
    weights.write_bytes(b"GGUF")
    local = WorkerSettings(
        profile=WorkerProfile(name="small", provider="llamacpp", model=str(weights))
    )
    async with open_setup(settings, {}, baseline_conductor=local) as setup:
        conductor = setup.baseline_conductors["full"]
        assert isinstance(conductor, ModelConductor)
        assert conductor.worker.profile.limits.concurrency == 4


async def test_a_pool_that_is_led_by_rules_has_no_baseline_conductor(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rules.toml"
    worker = '[[worker]]\nname = "solver"\nprovider = "scripted"\noptions = { reply = "42" }\n'
    path.write_text('[conductor]\nkind = "rules"\n' + worker, "utf-8")
    async with open_setup(load(path), {}) as setup:
        assert setup.baseline_conductors == {}


def test_workers_that_differ_only_in_what_their_adapter_holds_are_distinguished(
    tmp_path: Path,
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "weights").write_text("first", "utf-8")
    worker = WorkerSettings(
        profile=WorkerProfile(name="words", provider="transformers"),
        options={"adapter": str(adapter)},
    )
    first = worker_fingerprint(worker)
    assert worker_fingerprint(worker) == first
    (adapter / "weights").write_text("second", "utf-8")
    assert worker_fingerprint(worker) != first


def test_workers_that_differ_only_in_their_options_are_distinguished() -> None:
    def of(**options: object) -> str:
        return worker_fingerprint(
            WorkerSettings(profile=WorkerProfile(name="a", provider="scripted"), options=options)
        )

    assert of(temperature=0.0) != of(temperature=0.7)
    assert of(a=1, b=2) == of(b=2, a=1)


async def test_only_specialists_are_made_flaky_and_each_in_its_share() -> None:
    flaky = with_flaky_specialists(setup_of(oracle_workers()), 0.3, seed=1)
    cases = [case for case in oracle_cases(300) if case.skills == 1]
    declined = 0
    for case in cases:
        assert case.ideal is not None
        worker = flaky.workers[case.ideal.steps[0].worker]
        reply = await worker.reply(Request((user(case.task.question),)))
        declined += reply.text == UNSURE
    assert 0.1 < declined / len(cases) < 0.5
    for role in ("generalist", "misleading"):
        assert isinstance(flaky.workers[role], OracleWorker)


async def test_made_calls_are_counted_by_worker(settings: Settings) -> None:
    cases = oracle_cases(3)
    cache = ReplyCache(None, 1_000_000)
    counts = []
    for _ in range(2):
        async with open_setup(settings, {}, cache=cache) as setup:
            await Evaluation(setup, cases, seed=0, concurrency=2).row("single:words")
            counts.append(dict(setup.calls))
    assert counts == [{"words": 3}, {}]


SAYS_WHO_IT_IS = """
import asyncio, sys
from pathlib import Path
from podium.config import load
from podium.evals.setup import open_setup

async def main():
    async with open_setup(load(Path(sys.argv[1])), {}) as setup:
        print(setup.fingerprint)

asyncio.run(main())
"""


def test_an_ensemble_is_the_same_in_every_process(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text(
        '[[worker]]\nname = "solo"\nprovider = "scripted"\noptions = { reply = "done" }\n'
        'capabilities = ["tools", "vision", "sampling", "prefill"]\n',
        "utf-8",
    )
    output = {
        subprocess.run(
            [sys.executable, "-c", SAYS_WHO_IT_IS, str(pool)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in range(3)
    }
    assert len(output) == 1


async def test_another_workflow_in_the_same_file_makes_another_ensemble(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "flow.json"
    worker = settings.workers[0].profile.name
    conductor = replace(settings.conductor, kind="fixed", workflow=file)
    identities = []
    for subtask in ("one thing", "another"):
        step = {"worker": worker, "subtask": subtask, "access": list[int]()}
        file.write_text(json.dumps({"steps": [step]}), "utf-8")
        async with open_setup(replace(settings, conductor=conductor), {}) as setup:
            identities.append(setup.fingerprint)
    assert identities[0] != identities[1]


async def test_other_workers_or_conductors_change_the_fingerprint(
    settings: Settings,
) -> None:
    first, *others = settings.workers
    result = replace(first, options={**first.options, "reply": "something else"})
    identities = []
    for changed in (
        settings,
        settings,
        replace(settings, workers=(result, *others)),
        replace(settings, conductor=replace(settings.conductor, temperature=0.9)),
    ):
        async with open_setup(changed, {}) as setup:
            identities.append(setup.fingerprint)
    async with open_setup(settings, {}, oracle=True) as setup:
        identities.append(setup.fingerprint)
    assert identities[0] == identities[1]
    assert len(set(identities)) == 4
