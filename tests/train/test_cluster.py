"""Plans scored on other processes of a Ray cluster: the same scores as in this one."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from podium.conductors.plan import write
from podium.core.pool import Pool
from podium.core.run import Round
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium.tasks.cluster import ActorPool, ReplyCacheActor, ReplyCacheSpec
from podium.train import worker_set as module
from podium.train.exercises import (
    exercises,
    held_out_exercises,
    pool_settings,
    recipe_pool,
)
from podium.train.recipe import Recipe, read_recipe
from podium.train.score import PlanScorer, Score
from podium.train.worker_set import (
    RayScorer,
    RemoteSetup,
    ScoringActor,
    connect_workers,
    make_scorers,
    ray_scorer,
)
from podium.workers import Http
from support.ray_cluster import EXCEPTIONS, DeadlyGrader, Remote, SeatHere, ray_cluster
from support.recipes import RECIPES, make_recipe, write_recipe

DATA = Path(__file__).parents[1] / "tasks" / "data"
ACCEPT = "model_id = []\nsubtasks = []\naccess_list = []"


class Refusing(BaseHTTPRequestHandler):
    """A vendor that refuses whatever it is sent."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(400)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def refusing() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[Recipe]:
    """A recipe whose workers are one that is right, one that is wrong, and one that fails."""
    path = write_recipe(tmp_path)
    with refusing() as port:
        failing = (
            '[[worker]]\nname = "failing"\nprovider = "openai-compatible"\nmodel = "m"\n'
            f'base_url = "http://127.0.0.1:{port}/v1"\n'
        )
        pool = tmp_path / "pool.toml"
        said = pool.read_text("utf-8").replace('reply = "ok"', 'reply = "4"', 1)
        pool.write_text(said + failing, "utf-8")
        yield read_recipe(path, ["run.cache_mb=1", "prompt.access=index"])


class Asked(NamedTuple):
    """A text, and what it is a plan for."""

    text: str
    task: Task
    rounds: tuple[Round, ...] = ()
    ended: bool = True


def texts(pool: Pool) -> list[str]:
    """Plans of every kind: right, wrong, of several steps, by one who fails, and none at all."""
    plans = [
        Workflow((Step("one", "Add them"),)),
        Workflow((Step("two", "Add them"),)),
        Workflow((Step("two", "Add"), Step("one", "Check", (0,)))),
        Workflow((Step("failing", "Add them"),)),
    ]
    return [*(write(plan, pool) for plan in plans), "no plan at all"]


def told(score: Score) -> tuple[Any, ...]:
    """All of a score but what names its run and depends on the clock."""
    steps = [(step.worker, step.status, step.reply, step.usage) for step in score.steps]
    told = (score.reward, score.parts, score.workflow, score.valid, score.right, score.problem)
    return (*told, score.question, score.text, steps)


async def all_scored(scorer: PlanScorer, pool: Pool, asked: list[Asked]) -> list[Score]:
    return await asyncio.gather(
        *(
            scorer.score(one.text, one.task, pool, rounds=one.rounds, ended=one.ended)
            for one in asked
        )
    )


async def scored_here(recipe: Recipe, asked: list[Asked]) -> tuple[list[Score], int]:
    """What they earn in this process, and how many calls had to be made for it."""
    cast = connect_workers(recipe, Http())
    try:
        scores = await all_scored(make_scorers(recipe, cast.workers).recipe, cast.pool, asked)
        assert cast.cache is not None
        return scores, cast.cache.misses
    finally:
        await cast.close()


def task_of(recipe: Recipe) -> Task:
    return exercises(recipe, recipe_pool(recipe))[0].task


@pytest.fixture
def two_seats(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of one node with places for two."""
    with ray_cluster(monkeypatch, cpus=2) as cluster:
        yield cluster


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # what Ray does with its processes is not ours to warn of
async def test_a_cluster_gives_the_same_scores_and_a_seat_that_dies_half_way_loses_nothing(
    two_seats: Any, recipe: Recipe, tmp_path: Path
) -> None:
    pool, task = recipe_pool(recipe), task_of(recipe)
    elsewhere = recipe.model_copy(
        update={"run": recipe.run.model_copy(update={"ray": two_seats.address})}
    )
    deadly = Task(id="deadly", question="?", grader=DeadlyGrader(str(tmp_path / "mark")))
    asked = [Asked(text, task) for text in texts(pool)]
    with ray_scorer(elsewhere) as cluster:
        assert cluster.actor_count == 2
        there = await all_scored(cluster, pool, [*asked, Asked(texts(pool)[0], deadly), *asked])
        assert cluster.actor_count == 1
        assert there.pop(len(asked)).right
        first = next(score for score in there if score.run is not None and score.right)
        assert first.run is not None
        again = [Asked(ACCEPT, task, first.run.rounds), Asked(asked[0].text, task, ended=False)]
        later = await all_scored(cluster, pool, again)
    _, misses = await scored_here(recipe, [*asked[:3], *asked[4:]])
    assert misses == 0, "what seats were told is kept on this machine"
    here, _ = await scored_here(recipe, [*asked, *asked])
    assert [told(score) for score in there] == [told(score) for score in here]
    assert [score.reward for score in here[:5]] == [1.0, 0.5, 1.0, None, 0.0]
    assert [told(score) for score in later] == [
        told(score) for score in (await scored_here(recipe, again))[0]
    ]


# ---- without Ray


@pytest.fixture
async def sessions(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Closes what seats hold open, which ends with their process where that is their own."""
    opened: list[Http] = []

    def opening() -> Http:
        opened.append(Http())
        return opened[-1]

    monkeypatch.setattr(module, "Http", opening)
    yield
    for http in opened:
        await http.close()


def seat_here(recipe: Recipe) -> SeatHere:
    """A seat in this process, with a library of its own; the recipe's file may be gone."""
    library = ReplyCacheActor(ReplyCacheSpec(None, 1_000_000))
    shelf = SimpleNamespace(get=Remote(library.get), put=Remote(library.put))
    seat = ScoringActor(RemoteSetup(recipe, pool_settings(recipe)), shelf)
    return SeatHere(seat.perform)


@pytest.mark.usefixtures("sessions")
async def test_a_seat_needs_no_file_of_the_pool_and_writes_nothing(
    recipe: Recipe, tmp_path: Path
) -> None:
    pool, task = recipe_pool(recipe), task_of(recipe)
    scorer = RayScorer(ActorPool([seat_here(recipe)], EXCEPTIONS, hint=""))
    (tmp_path / "pool.toml").unlink()
    scores = await all_scored(scorer, pool, [Asked(text, task) for text in texts(pool)])
    assert [score.reward for score in scores] == [1.0, 0.5, 1.0, None, 0.0]
    assert scores[3].problem.startswith("step 0 (failing):")
    assert not recipe.output.exists()


@pytest.mark.usefixtures("sessions")
async def test_replies_that_seats_found_kept_are_counted_in_whatever_manner(
    recipe: Recipe,
) -> None:
    pool, task = recipe_pool(recipe), task_of(recipe)
    scorer = RayScorer(ActorPool([seat_here(recipe)], EXCEPTIONS, hint=""))
    for _ in range(3):
        await scorer.score(texts(pool)[0], task, pool)
    assert scorer.replies == {"hits": 2, "misses": 1}
    await scorer.plain.score(texts(pool)[0], task, pool)
    assert scorer.replies == {"hits": 3, "misses": 1}


@pytest.mark.usefixtures("sessions")
async def test_what_training_is_held_against_is_scored_by_no_switch_of_the_recipe(
    tmp_path: Path,
) -> None:
    recipe = make_recipe(tmp_path, overrides=["prompt.access=binary", "reward.wrong=0.25"])
    pool, task = recipe_pool(recipe), task_of(recipe)
    scorer = RayScorer(ActorPool([seat_here(recipe)], EXCEPTIONS, hint=""))
    text = write(Workflow((Step("two", "Add"), Step("two", "Again", (0,)))), pool)
    assert (await scorer.score(text, task, pool)).valid is False
    assert (await scorer.plain.score(text, task, pool)).reward == 0.5


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("etudes", ["pool.oracle=true", "pool.adapters=", "grpo.steps=2"]),
        (
            "conductor-7b",
            [
                f"data.mix.path={DATA}",
                "data.mix.per_source=1",
                'data.mix.sources=["math500", "rlpr", "livecodebench"]',
                "pool.file=../src/podium/config/pools/scripted.toml",
                "grpo.steps=2",
            ],
        ),
    ],
    ids=["etudes", "benchmarks"],
)
def test_what_travels_to_a_seat_is_data(name: str, settings: list[str]) -> None:
    recipe = read_recipe(RECIPES / f"{name}.toml", [*settings, "run.eval_tasks=3"])
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    pool = recipe_pool(recipe)
    made = [*exercises(recipe, pool), *held_out_exercises(recipe, pool)]
    for task, *_ in made:
        pickled = pickle.dumps(task)  # by names and values: plain pickle takes no code
        assert len(pickled) < 20_000
        assert pickle.loads(pickled).question == task.question


def test_the_cluster_of_a_recipe_changes_nothing_of_what_is_learned(tmp_path: Path) -> None:
    alone = make_recipe(tmp_path)
    assert alone.run.ray is None
    spread_out = make_recipe(tmp_path, overrides=["run.ray=auto"])
    assert spread_out.run.ray == "auto"
    assert spread_out.fingerprint == alone.fingerprint
