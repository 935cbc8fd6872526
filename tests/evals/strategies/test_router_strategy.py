"""Strategies by a router that `podium train router` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.support import case_of, setup_of
from podium.core.errors import ConfigError, UsageError
from podium.evals.evaluation import Evaluation
from podium.evals.strategies.registry import (
    check_strategy,
    parse_router_name,
    read_router,
    strategy_checksums,
)
from podium.workers.scripted import ScriptedWorker

pytest.importorskip("numpy")

from support.routing import PLAYS, SUMS, small_router

POOL = [ScriptedWorker("poet", "a verse"), ScriptedWorker("clerk", "a sum")]


async def test_a_router_that_was_trained_is_measured_as_it_would_choose(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    small_router().save(path)
    workers = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    cases = [case_of(PLAYS[0], "a poet", workers), case_of(SUMS[0], "a poet", workers)]
    row = await Evaluation(setup_of(workers), cases, seed=0, concurrency=1).row(f"router:{path}")
    assert [sample.workers for sample in row.samples] == [("dear",), ("dear",)]
    assert [w.name for w in read_router(path).workers] == ["cheap", "dear"]


async def test_a_router_is_measured_at_a_position_of_its_quality_bias(tmp_path: Path) -> None:
    path = tmp_path / "a@b" / "router.json"
    path.parent.mkdir()
    small_router().save(path)
    workers = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    cases = [case_of(PLAYS[0], "a poet", workers), case_of(SUMS[0], "a poet", workers)]
    evaluation = Evaluation(setup_of(workers), cases, seed=0, concurrency=1)
    asked = {}
    for quality_bias in ("0", "0.5", "1"):
        row = await evaluation.row(f"router:{path}@{quality_bias}")
        asked[quality_bias] = [worker for sample in row.samples for worker in sample.workers]
    assert asked == {"0": ["cheap", "cheap"], "0.5": ["dear", "cheap"], "1": ["dear", "dear"]}
    assert strategy_checksums([f"router:{path}@0.5"]).keys() == {f"router:{path}@0.5"}


@pytest.mark.parametrize("quality_bias", ["1.5", "-0.1", "nan", "best", ""])
def test_an_invalid_quality_bias_is_refused(tmp_path: Path, quality_bias: str) -> None:
    small_router().save(tmp_path / "router.json")
    workers = [ScriptedWorker("cheap", "a sum"), ScriptedWorker("dear", "a poet")]
    name = f"router:{tmp_path / 'router.json'}@{quality_bias}"
    with pytest.raises(
        UsageError, match=rf"has the quality bias '{quality_bias}': expected a number from 0"
    ):
        check_strategy(name, setup_of(workers), [])


def test_a_file_name_may_contain_an_at_sign(tmp_path: Path) -> None:
    path = tmp_path / "router@home"
    small_router().save(path)
    assert parse_router_name(f"router:{path}") == (path, None)
    assert parse_router_name(f"router:{path}@0.5") == (path, 0.5)


def test_a_quality_bias_without_a_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'router:@0\.5' has a quality bias and no file"):
        check_strategy("router:@0.5", setup_of(POOL), [])


def test_a_name_that_no_file_can_have_is_reported() -> None:
    name = "r" * 5000
    assert parse_router_name(f"router:{name}@0.5") == (Path(name), 0.5)
    with pytest.raises(ConfigError, match="File name too long"):
        check_strategy(f"router:{name}@0.5", setup_of(POOL), [])


def test_a_router_of_another_pool_is_refused(tmp_path: Path) -> None:
    small_router().save(tmp_path / "router.json")
    with pytest.raises(UsageError, match="the pool has poet, clerk: none of them"):
        check_strategy(f"router:{tmp_path / 'router.json'}", setup_of(POOL), [])


@pytest.mark.parametrize("workers", [[3], [{}], "cheap", None])
def test_invalid_workers_of_a_router_are_named_with_the_file(
    tmp_path: Path, workers: object
) -> None:
    path = tmp_path / "router.json"
    path.write_text(json.dumps({**small_router().document(), "workers": workers}))
    with pytest.raises(ConfigError, match=f"{path}"):
        read_router(path)
