from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.support import ensemble_of, oracle_cases
from podium.config import Settings, load
from podium.errors import ConfigError, StoreError, UsageError
from podium.etudes import ROLES
from podium.etudes.perfect import oracle_workers
from podium.evals.case import Case
from podium.evals.cluster import HandedOver, Opening, Replies, SpreadPerformer, spread
from podium.evals.ensemble import opened
from podium.evals.performing import Performer
from podium.evals.report import Wanted, reported

QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 4,
}
"""Of Ray: how soon a machine that is gone is known to be."""


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
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    pytest.importorskip("ray", reason="the extra ray is not installed: NOTHING of Ray is tested")
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "include_dashboard": False,
            "_system_config": QUICK_TO_NOTICE,
        },
    )
    yield cluster
    cluster.shutdown()


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # what Ray does with its processes is not ours to warn of
async def test_a_cluster_gives_the_same_table_and_a_node_that_dies_half_way_loses_nothing(
    two_nodes: Any, settings: Settings
) -> None:
    second = two_nodes.add_node(num_cpus=1)
    wanted = Wanted(strategies=("ideal", "best-single", "majority"), limit=20, seed=7)
    opening = Opening(settings=settings, seed=7, oracle=True)
    done = 0

    def watch(strategy: str, so_far: int, total: int) -> None:
        nonlocal done
        done += 1
        if done == 110:
            two_nodes.remove_node(second, allow_graceful=False)

    async with (
        opened(settings, {}, oracle=True) as ensemble,
        spread(two_nodes.address, opening, Replies(None, 1_000_000)) as cluster,
    ):
        here = (await reported(ensemble, wanted)).document()
        assert cluster.seats == 2
        there = (await reported(ensemble, wanted, perform=cluster, watch=watch)).document()
        assert cluster.seats == 1
        assert cluster.asked.total() >= 20 * len(ROLES)
    for row in (*here["rows"], *there["rows"]):
        del row["seconds"]
    assert there == here


class Gone(Exception):
    """What Ray raises when a seat's process is no more."""


class Wrapped(Exception):
    """What Ray raises when a seat raised something."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class FakeSeat:
    """A seat in this process, which counts what it is given and may be gone."""

    def __init__(self, end: HandedOver | Exception) -> None:
        self.perform = self
        self.given = 0
        self._end = end

    async def remote(self, name: str, case: Case, repeat: int) -> HandedOver:
        self.given += 1
        await asyncio.sleep(0)
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


EXCEPTIONS = SimpleNamespace(RayActorError=Gone, RayTaskError=Wrapped)


async def handed_over() -> tuple[Case, HandedOver]:
    (case,) = oracle_cases(1)
    performed = await Performer(ensemble_of(oracle_workers()), seed=0)("ideal", case, 0)
    return case, HandedOver(performed, Counter(words=2))


async def test_tasks_go_to_whoever_has_least_to_do_and_calls_are_summed() -> None:
    case, done = await handed_over()
    seats = [FakeSeat(done) for _ in range(3)]
    perform = SpreadPerformer(seats, EXCEPTIONS)
    performed = await asyncio.gather(*(perform("ideal", case, 0) for _ in range(9)))
    assert performed == [done.performed] * 9
    assert [seat.given for seat in seats] == [3, 3, 3]
    assert perform.asked == {"words": 18}


async def test_a_seat_that_is_gone_is_not_given_anything_again_and_without_any_it_ends() -> None:
    case, done = await handed_over()
    gone, here = FakeSeat(Gone()), FakeSeat(done)
    perform = SpreadPerformer([gone, here], EXCEPTIONS)
    for _ in range(3):
        assert await perform("ideal", case, 0) == done.performed
    assert (gone.given, here.given, perform.seats) == (1, 3, 1)
    with pytest.raises(StoreError, match="has lost every machine; what was measured is kept"):
        await SpreadPerformer([gone], EXCEPTIONS)("ideal", case, 0)


async def test_what_a_person_must_change_comes_out_as_it_is() -> None:
    case, _ = await handed_over()
    refused = FakeSeat(Wrapped(ConfigError("no price is known")))
    with pytest.raises(ConfigError, match="no price is known"):
        await SpreadPerformer([refused], EXCEPTIONS)("ideal", case, 0)


async def test_without_the_package_the_extra_to_install_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install .*\[ray\]'"):
        async with spread("auto", Opening(settings=settings, seed=0), Replies(None, 1_000_000)):
            """Never got here."""


async def test_a_cluster_is_not_reached_from_outside(settings: Settings) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed: NOTHING of Ray is tested")
    opening, replies = Opening(settings=settings, seed=0), Replies(None, 1_000_000)
    with pytest.raises(UsageError, match="join it here with: ray start"):
        async with spread("ray://10.0.0.1:10001", opening, replies):
            """Never got here."""
