"""The workers of a training: connected, kept replies before them, and forgetful where a recipe
wants that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from podium.assembly import assemble
from podium.etudes import MISLEADING, FlakyWorker
from podium.etudes.perfect import oracle_workers
from podium.files import sha256_of
from podium.pool import Limits, Pool, WorkerProfile
from podium.providers import Endpoint, Http, connect
from podium.providers.cached import CachedWorker, ReplyCache
from podium.request import Reply, Request
from podium.train.pools import pool_settings, recipe_pool
from podium.train.recipe import Recipe
from podium.usage import FREE
from podium.worker import Worker

CACHE_FILE: Final = "replies.sqlite3"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
MISLEADING_SYSTEM: Final = "You answer at once with one short guess, whatever is asked."
"""What makes the plain model the misleading worker of the études."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is led, and the pool as data."""

    workers: tuple[Worker, ...]
    pool: Pool
    cache: ReplyCache | None
    http: Http

    async def close(self) -> None:
        """Close what they hold open on this event loop, and the file of replies."""
        if self.cache is not None:
            self.cache.close()
        await self.http.close()


def make_cast(recipe: Recipe, http: Http) -> Cast:
    """Connect the recipe's workers; nothing is loaded or sent before the first call."""
    workers = list(_connected(recipe, http))
    cache = None
    if recipe.run.cache_mb:
        recipe.output.mkdir(parents=True, exist_ok=True)
        cache = ReplyCache(recipe.output / CACHE_FILE, recipe.run.cache_mb * 1_000_000)
        workers = [
            CachedWorker(worker, cache, fingerprint=_fingerprint(recipe, worker.profile.name))
            for worker in workers
        ]
    if recipe.pool.flaky:
        share, seed = recipe.pool.flaky, recipe.run.seed
        workers = [FlakyWorker(worker, share, seed) for worker in workers]
    return Cast(tuple(workers), recipe_pool(recipe), cache, http)


def _connected(recipe: Recipe, http: Http) -> Iterator[Worker]:
    if recipe.pool.oracle:
        yield from oracle_workers()
    elif recipe.pool.adapters:
        yield from _etude_workers(recipe, http)
    else:
        yield from _filed(recipe, http)


class AskedAs(Worker):
    """A worker that is asked as the recipe says, whoever asks."""

    def __init__(self, worker: Worker, max_tokens: int, temperature: float) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._max_tokens = max_tokens
        self._temperature = temperature

    async def reply(self, request: Request) -> Reply:
        """Ask with the recipe's bound and temperature."""
        return await self._worker.reply(
            replace(request, max_tokens=self._max_tokens, temperature=self._temperature)
        )


def _fingerprint(recipe: Recipe, role: str) -> str:
    """What the worker's replies depend on beside its name: an adapter that was trained again is
    another worker."""
    adapter = recipe.pool.adapters.get(role)
    if not adapter:
        return ""
    weights = Path(adapter) / WEIGHTS_FILE
    return sha256_of(weights) if weights.exists() else adapter


def _etude_workers(recipe: Recipe, http: Http) -> Iterator[Worker]:
    for role, adapter in recipe.pool.adapters.items():
        profile = WorkerProfile(
            name=role,
            provider="transformers",
            model=recipe.worker_base,
            price=FREE,
            limits=Limits(max_output_tokens=recipe.workers.max_tokens),
        )
        options: dict[str, object] = {"temperature": recipe.workers.temperature}
        if adapter:
            options["adapter"] = adapter
        if role == MISLEADING:
            options["system"] = MISLEADING_SYSTEM
        yield connect(profile, Endpoint(options=options), http)


def _filed(recipe: Recipe, http: Http) -> Iterator[Worker]:
    assembly = assemble(pool_settings(recipe), os.environ, http)
    for worker in assembly.workers:
        yield AskedAs(worker, recipe.workers.max_tokens, recipe.workers.temperature)
