"""Rollouts spread over a Ray cluster: the same scores, of plans carried out on other machines.

    with spread(recipe) as scorer:
        score = await scorer.score(text, task, pool)

The policy, the trainer and all that is written stay in this process; what travels is a plan's text
and its task, and what comes back is its score, run and all. A task is data: its grader is a type
of Podium's and the words to hold an answer against, so no code is sent. Each seat has a cast of
the recipe's workers of its own; kept replies are on this machine.

A seat that is lost loses nothing: another one scores what it had not handed over. What it had asked
is kept, and asked of nobody again. A worker's fault is found where it happens, and comes back as a
rollout to be dropped. Limits of a worker hold for each seat by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from podium.config import Settings
from podium.core.pool import Pool
from podium.core.run import Round
from podium.core.task import Task
from podium.tasks.cluster import ActorPool, RemoteReplyCache, ReplyCacheSpec, start_actors
from podium.train.ablations import recipe_scorer
from podium.train.baselines import plain_scorer
from podium.train.exercises import pool_settings
from podium.train.recipe import Recipe
from podium.train.runtime import process_count
from podium.train.score import Score, Scorer
from podium.train.worker_set import CACHE_FILE, connect_workers
from podium.workers import Http
from podium.workers.cached import LEAST_BYTES

WHAT_IS_LEFT: Final = (
    "what was trained is kept up to the last checkpoint: start the cluster again and go on from it "
    "with --resume"
)

Manner = Literal["recipe", "plain"]
"""By which rules plans are scored: the recipe's, or none, for what training is held against."""


@dataclass(frozen=True, slots=True)
class RemoteSetup:
    """The recipe and settings that give another machine the same workers."""

    recipe: Recipe
    settings: Settings | None


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """A plan that was written for a task, and all that its score depends on."""

    text: str
    task: Task
    pool: Pool
    rounds: tuple[Round, ...]
    ended: bool
    completion_tokens: int | None
    is_followed: bool


class ScoreResult(NamedTuple):
    """Scores of an actor, and its cache hits and misses since the last result."""

    score: Score
    hits: int
    misses: int


class ScoringActor:
    """A process on some machine of the cluster. Its workers are connected with the first plan."""

    def __init__(self, opening: RemoteSetup, library: Any) -> None:
        self._opening = opening
        self._replies = RemoteReplyCache(library)
        self._scorers: dict[Manner, Scorer] = {}
        self._told = (0, 0)

    async def perform(self, manner: Manner, written: ScoreRequest) -> ScoreResult:
        """Have the plan carried out, and score it."""
        if not self._scorers:
            self._open()
        score = await self._scorers[manner].score(
            written.text,
            written.task,
            written.pool,
            rounds=written.rounds,
            ended=written.ended,
            completion_tokens=written.completion_tokens,
            is_followed=written.is_followed,
        )
        hits, misses = self._told
        self._told = (self._replies.hits, self._replies.misses)
        return ScoreResult(score, self._told[0] - hits, self._told[1] - misses)

    def _open(self) -> None:
        recipe, settings = self._opening.recipe, self._opening.settings
        cast = connect_workers(recipe, Http(), cache=self._replies, settings=settings)
        self._scorers["recipe"] = recipe_scorer(recipe, cast.workers, cast.flaky_workers)
        self._scorers["plain"] = plain_scorer(recipe, cast.workers)


class RayScorer:
    """Scores plans on the seats of a cluster, as a `Scorer` does here. `replies` counts those that
    all of them found kept (`hits`) and had to ask for (`misses`), in whatever manner."""

    def __init__(
        self, seats: ActorPool, manner: Manner = "recipe", replies: Counter[str] | None = None
    ) -> None:
        self._seats = seats
        self._manner: Manner = manner
        self.replies = Counter[str]() if replies is None else replies

    @property
    def seats(self) -> int:
        """The number of actors."""
        return len(self._seats)

    @property
    def plain(self) -> RayScorer:
        """The same seats, by no recipe's rules."""
        return RayScorer(self._seats, "plain", self.replies)

    async def score(
        self,
        text: str,
        task: Task,
        pool: Pool,
        *,
        rounds: tuple[Round, ...] = (),
        ended: bool = True,
        completion_tokens: int | None = None,
        is_followed: bool = False,
    ) -> Score:
        """Score the text as a plan for the task over that pool."""
        written = ScoreRequest(text, task, pool, rounds, ended, completion_tokens, is_followed)
        done: ScoreResult = await self._seats.perform(self._manner, written)
        self.replies += Counter(hits=done.hits, misses=done.misses)
        return done.score


@contextmanager
def ray_scorer(recipe: Recipe, *, seats: int | None = None) -> Iterator[RayScorer]:
    """Take seats in the cluster that the recipe names, one for each of its CPUs or GPUs, or as many
    as are wanted, and leave them at the end. Where several processes train together, each takes
    its part of the seats."""
    assert recipe.run.ray is not None, "who trains alone needs no cluster"
    settings = pool_settings(recipe) if recipe.pool.file is not None else None
    with start_actors(
        recipe.run.ray,
        ScoringActor,
        RemoteSetup(recipe, settings),
        _replies(recipe),
        on_gpus=_is_on_cards(recipe, settings),
        hint=WHAT_IS_LEFT,
        count=seats,
        sharers=process_count(),
    ) as found:
        yield RayScorer(found)


def _replies(recipe: Recipe) -> ReplyCacheSpec:
    """Return the reply cache; nothing is written where the recipe disables it."""
    if not recipe.run.cache_mb:
        return ReplyCacheSpec(None, LEAST_BYTES)
    recipe.output.mkdir(parents=True, exist_ok=True)
    return ReplyCacheSpec(recipe.output / CACHE_FILE, recipe.run.cache_mb * 1_000_000)


def _is_on_cards(recipe: Recipe, settings: Settings | None) -> bool:
    """True if workers are models in this process, which need a GPU."""
    if settings is None:
        return bool(recipe.pool.adapters)
    return any(worker.profile.provider == "transformers" for worker in settings.workers)
