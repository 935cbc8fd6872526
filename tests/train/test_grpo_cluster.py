"""Learning from reward with plans scored elsewhere: the conductor is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from podium.tasks.cluster import ActorPool, ReplyCacheActor, ReplyCacheSpec
from podium.train.recipe import Recipe
from podium.train.worker_set import RayScorer, RemoteSetup, ScoringActor
from support.ray_cluster import EXCEPTIONS, Gone, Remote, SeatHere
from support.trainings import REWARD, adapter_bytes, base, let_it_plan, metrics, tiny_recipe

pytest.importorskip("torch")
pytest.importorskip("trl")

from podium.train import grpo

pytestmark = pytest.mark.torch

__all__ = ["base"]

SMALL = ("grpo.steps=2", "run.eval_every=2", "run.eval_tasks=2")


async def gone(*_: object) -> None:
    raise Gone


@contextmanager
def one_seat_and_one_that_is_gone(recipe: Recipe) -> Iterator[RayScorer]:
    assert recipe.run.ray == "auto"
    library = ReplyCacheActor(ReplyCacheSpec(None, 1_000_000))
    shelf = SimpleNamespace(get=Remote(library.get), put=Remote(library.put))
    here = SeatHere(ScoringActor(RemoteSetup(recipe, None), shelf).perform)
    yield RayScorer(ActorPool([SeatHere(gone), here], EXCEPTIONS, hint=""))


def test_remote_scoring_trains_the_same_conductor(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_it_plan(monkeypatch)
    monkeypatch.setattr(grpo, "ray_scorer", one_seat_and_one_that_is_gone)
    alone = tiny_recipe(REWARD, base, tmp_path / "alone", *SMALL)
    elsewhere = tiny_recipe(REWARD, base, tmp_path / "elsewhere", *SMALL, "run.ray=auto")
    for recipe in (alone, elsewhere):
        grpo.train(recipe)
    assert metrics(elsewhere) == metrics(alone)
    assert adapter_bytes(elsewhere) == adapter_bytes(alone)
    baselines = [(one.output / "baselines.json").read_bytes() for one in (alone, elsewhere)]
    assert baselines[0] == baselines[1]
    document = [json.loads((one.output / "summary.json").read_text()) for one in (alone, elsewhere)]
    assert document[0]["cache_misses"] == document[1]["cache_misses"] > 0
    assert document[0]["cache_hits"] == document[1]["cache_hits"]
