"""Plans scored on a Ray cluster.

    with ray_scorer(recipe) as scorer:
        score = await scorer.score(text, task, pool)

Plans and tasks travel as data, never as code; scores come back. Each actor connects the recipe's
workers, whose limits hold for each actor by itself. The reply cache stays on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from podium.config import Settings
from podium.core.pool import Pool
from podium.core.task import Task
from podium.tasks.cluster import ActorPool, RemoteReplyCache, ReplyCacheSpec, start_actors
from podium.train.exercises import pool_settings
from podium.train.recipe import Recipe
from podium.train.runtime import process_count
from podium.train.score import Score, Scorer
from podium.train.worker_set import CACHE_FILE, connect_workers, plain_scorer, recipe_scorer
from podium.workers import Http
from podium.workers.cached import LEAST_BYTES

WHAT_IS_LEFT: Final = (
    "what was trained is kept up to the last checkpoint: start the cluster again and go on from it "
    "with --resume"
)

Rules = Literal["recipe", "plain"]
"""Score plans by the recipe's rules, or by none, for baselines."""


@dataclass(frozen=True, slots=True)
class RemoteSetup:
    """The recipe and settings that give another machine the same workers."""

    recipe: Recipe
    settings: Settings | None


class ScoreResult(NamedTuple):
    """A score, and the actor's cache hits and misses since its last result."""

    score: Score
    hits: int
    misses: int


class ScoringActor:
    """Scores plans on a machine of the cluster; its workers are connected with the first plan."""

    def __init__(self, setup: RemoteSetup, cache: Any) -> None:
        self._setup = setup
        self._cache = RemoteReplyCache(cache)
        self._scorers: dict[Rules, Scorer] = {}
        self._reported = (0, 0)

    async def perform(
        self, rules: Rules, text: str, task: Task, pool: Pool, options: Mapping[str, Any]
    ) -> ScoreResult:
        """Execute the plan and score it; `options` are those of `Scorer.score`."""
        if not self._scorers:
            recipe, settings = self._setup.recipe, self._setup.settings
            connected = connect_workers(recipe, Http(), cache=self._cache, settings=settings)
            self._scorers = {
                "recipe": recipe_scorer(recipe, connected.workers, connected.flaky_workers),
                "plain": plain_scorer(recipe, connected.workers),
            }
        score = await self._scorers[rules].score(text, task, pool, **options)
        hits, misses = self._reported
        self._reported = (self._cache.hits, self._cache.misses)
        return ScoreResult(score, self._cache.hits - hits, self._cache.misses - misses)


class RayScorer:
    """Scores plans on the actors of a cluster; `replies` counts their cache hits and misses."""

    def __init__(
        self, actors: ActorPool, rules: Rules = "recipe", replies: Counter[str] | None = None
    ) -> None:
        self._actors = actors
        self._rules: Rules = rules
        self.replies = Counter[str]() if replies is None else replies

    @property
    def seats(self) -> int:
        """The number of actors."""
        return len(self._actors)

    @property
    def plain(self) -> RayScorer:
        """The same actors, without the recipe's rules."""
        return RayScorer(self._actors, "plain", self.replies)

    async def score(self, text: str, task: Task, pool: Pool, **options: Any) -> Score:
        """Score the text as a plan for the task over that pool, as `Scorer.score` does."""
        done: ScoreResult = await self._actors.perform(self._rules, text, task, pool, options)
        self.replies += Counter(hits=done.hits, misses=done.misses)
        return done.score


@contextmanager
def ray_scorer(recipe: Recipe, *, seats: int | None = None) -> Iterator[RayScorer]:
    """Start actors in the recipe's cluster, one for each CPU or GPU unless `seats` says how many.

    Several processes that train together divide the actors among them.
    """
    assert recipe.run.ray is not None, "only a recipe with run.ray has a cluster"
    settings = pool_settings(recipe) if recipe.pool.file is not None else None
    with start_actors(
        recipe.run.ray,
        ScoringActor,
        RemoteSetup(recipe, settings),
        _replies(recipe),
        on_gpus=_needs_gpus(recipe, settings),
        hint=WHAT_IS_LEFT,
        count=seats,
        sharers=process_count(),
    ) as actors:
        yield RayScorer(actors)


def _replies(recipe: Recipe) -> ReplyCacheSpec:
    """Return the reply cache; nothing is written where the recipe disables it."""
    if not recipe.run.cache_mb:
        return ReplyCacheSpec(None, LEAST_BYTES)
    recipe.output.mkdir(parents=True, exist_ok=True)
    return ReplyCacheSpec(recipe.output / CACHE_FILE, recipe.run.cache_mb * 1_000_000)


def _needs_gpus(recipe: Recipe, settings: Settings | None) -> bool:
    """True if workers are models in this process, which need a GPU."""
    if settings is None:
        return bool(recipe.pool.adapters)
    return any(worker.profile.provider == "transformers" for worker in settings.workers)
