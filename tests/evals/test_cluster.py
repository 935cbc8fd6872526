from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals.support import oracle_cases, setup_of
from podium.config import Settings, load
from podium.evals.evaluation import (
    ActorResult,
    ClusterSampleRunner,
    SampleRunner,
    SetupSpec,
    open_cluster,
)
from podium.evals.report import EvalSpec, run_eval
from podium.evals.setup import open_setup
from podium.tasks.cluster import ActorPool, ReplyCacheSpec
from podium_lab.etudes import ROLES
from podium_lab.etudes.workers import oracle_workers
from support.ray_cluster import EXCEPTIONS, SeatHere, ray_cluster


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A pool in which every worker says its own role."""
    pool = tmp_path / "pool.toml"
    workers = (
        f'[[worker]]\nname = "{role}"\nprovider = "scripted"\n'
        f"options = {{ reply = {json.dumps(role)} }}\n"
        for role in ROLES
    )
    pool.write_text('[conductor]\nkind = "rules"\n' + "".join(workers), "utf-8")
    return load(pool)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of two nodes, both on this machine."""
    with ray_cluster(monkeypatch, cpus=1) as cluster:
        yield cluster


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # what Ray does with its processes is not ours to warn of
async def test_a_cluster_gives_the_same_table_and_a_node_that_dies_half_way_loses_nothing(
    two_nodes: Any, settings: Settings
) -> None:
    second = two_nodes.add_node(num_cpus=1)
    wanted = EvalSpec(strategies=("ideal", "best-single", "majority"), limit=20, seed=7)
    opening = SetupSpec(settings=settings, seed=7, oracle=True)
    done = 0

    def watch(strategy: str, so_far: int, total: int) -> None:
        nonlocal done
        done += 1
        if done == 110:
            two_nodes.remove_node(second)

    async with (
        open_setup(settings, {}, oracle=True) as setup,
        open_cluster(two_nodes.address, opening, ReplyCacheSpec(None, 1_000_000)) as cluster,
    ):
        here = (await run_eval(setup, wanted)).document()
        assert cluster.actors == 2
        there = (await run_eval(setup, wanted, run_sample=cluster, on_progress=watch)).document()
        assert cluster.actors == 1
        assert cluster.calls.total() >= 20 * len(ROLES)
    for row in (*here["rows"], *there["rows"]):
        del row["seconds"]
    assert there == here


async def test_the_calls_that_all_seats_made_are_summed() -> None:
    (case,) = oracle_cases(1)
    performed = await SampleRunner(setup_of(oracle_workers()), seed=0)("ideal", case, 0)
    done = ActorResult(performed, Counter(words=2))
    perform = ClusterSampleRunner(ActorPool([SeatHere(lambda *_: done)], EXCEPTIONS, hint=""))
    assert await asyncio.gather(*(perform("ideal", case, 0) for _ in range(9))) == [performed] * 9
    assert perform.calls == {"words": 18}
