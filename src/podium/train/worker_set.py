"""The workers of a training, and the scorers of plans over them.

The paper's ablations are switches of `[prompt]`: with `access = "binary"` a plan that names steps
by index is malformed, and with `fixed_subtasks` every worker gets the same subtask.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium._util.files import sha256_file
from podium._util.lab import lab_extra
from podium.client.assembly import assemble, close_all
from podium.config import Settings
from podium.core.errors import MalformedPlan
from podium.core.pool import Limits, Pool, WorkerProfile
from podium.core.request import FREE, Reply, Request
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.train.exercises import pool_settings, recipe_pool
from podium.train.recipe import FIXED_SUBTASK, Recipe
from podium.train.score import Scorer
from podium.workers import Endpoint, Http, connect
from podium.workers.cached import CachedWorker, ReplyCache
from podium.workers.local.sources import WEIGHTS_FILE

CACHE_FILE: Final = "replies.sqlite3"
MISLEADING_SYSTEM: Final = "You answer at once with one short guess, whatever is asked."
"""The prompt that makes the plain model the misleading worker of the études."""


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """The workers of a training and their pool.

    `flaky_workers` are the same workers, unsure as often as `pool.flaky_rate` says; first rounds
    do not use them, or luck would decide what a plan is worth. `connected` are the workers without
    cache and without failures.
    """

    workers: tuple[Worker, ...]
    flaky_workers: tuple[Worker, ...]
    pool: Pool
    cache: ReplyCache | None
    http: Http
    connected: tuple[Worker, ...]

    async def close(self) -> None:
        """Close what they hold open, such as loaded models, and the file of replies."""
        try:
            await close_all(self.connected)
        finally:
            if self.cache is not None:
                self.cache.close()
            await self.http.close()


class _Connected(NamedTuple):
    """A worker as its pool connects it; `limited` adds the recipe's sampling options to it."""

    worker: Worker
    limited: Worker
    options: Mapping[str, Any]


def connect_workers(
    recipe: Recipe,
    http: Http,
    *,
    cache: ReplyCache | None = None,
    settings: Settings | None = None,
) -> WorkerSet:
    """Connect the recipe's workers; nothing is loaded or sent before the first call.

    Replies are cached below the recipe's output, or in a given `cache`. `settings` are those of
    the pool's file, if it has been read already.
    """
    if settings is None and recipe.pool.file is not None:
        settings = pool_settings(recipe)
    connected = list(_connect(recipe, http, settings))
    workers: Sequence[Worker] = [one.limited for one in connected]
    if not recipe.run.cache_mb:
        cache = None
    elif cache is None:
        recipe.output.mkdir(parents=True, exist_ok=True)
        cache = ReplyCache(recipe.output / CACHE_FILE, recipe.run.cache_mb * 1_000_000)
    if cache is not None:
        workers = [
            CachedWorker(one.limited, cache, fingerprint=_fingerprint(one.options))
            for one in connected
        ]
    flaky_workers = workers
    if recipe.pool.flaky_rate:
        with lab_extra():
            from podium_lab.etudes import FlakyWorker
        share, seed = recipe.pool.flaky_rate, recipe.run.seed
        flaky_workers = [FlakyWorker(worker, share, seed) for worker in workers]
    behind = tuple(one.worker for one in connected)
    pool = settings.pool if settings is not None else recipe_pool(recipe)
    return WorkerSet(tuple(workers), tuple(flaky_workers), pool, cache, http, behind)


def _connect(recipe: Recipe, http: Http, settings: Settings | None) -> Iterator[_Connected]:
    if recipe.pool.oracle:
        with lab_extra():
            from podium_lab.etudes.workers import oracle_workers
        yield from (_Connected(worker, worker, {}) for worker in oracle_workers())
    elif recipe.pool.adapters:
        yield from _etude_workers(recipe, http)
    else:
        assert settings is not None, "workers that are no roles of the études have a file"
        yield from _pool_file_workers(recipe, http, settings)


class FixedOptionsWorker(Worker):
    """A worker with the recipe's token limit and temperature."""

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


def _fingerprint(options: Mapping[str, Any]) -> str:
    """Return what a worker's replies depend on besides its name: options and adapter."""
    known = {name: options[name] for name in sorted(options)}
    weights = Path(str(options.get("adapter", "")).removeprefix("file:")).expanduser()
    if weights.is_dir():
        weights /= WEIGHTS_FILE
    return repr(known) + (sha256_file(weights) if weights.is_file() else "")


def _etude_workers(recipe: Recipe, http: Http) -> Iterator[_Connected]:
    with lab_extra():
        from podium_lab.etudes import MISLEADING
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
        worker = connect(profile, Endpoint(options=options), http)
        yield _Connected(worker, worker, options)


def _pool_file_workers(recipe: Recipe, http: Http, settings: Settings) -> Iterator[_Connected]:
    asking = recipe.workers
    workers = assemble(settings, os.environ, http).workers
    for worker, filed in zip(workers, settings.workers, strict=True):
        limited = FixedOptionsWorker(worker, asking.max_tokens, asking.temperature)
        yield _Connected(worker, limited, filed.options)


class Scorers(NamedTuple):
    """The scorer of the recipe's plans, and one without the recipe's switches, for baselines."""

    recipe: Scorer
    plain: Scorer


def make_scorers(
    recipe: Recipe, workers: Sequence[Worker], second_round_workers: Sequence[Worker] | None = None
) -> Scorers:
    """Return the scorers; `second_round_workers` replace the workers after the first round."""
    prompt = recipe.prompt

    def amend(workflow: Workflow) -> Workflow:
        if prompt.access == "binary":
            refuse_indices(workflow)
        return with_fixed_subtasks(workflow) if prompt.fixed_subtasks else workflow

    scorer = Scorer(
        workers,
        reward=recipe.reward.reward(),
        max_steps=prompt.max_steps,
        amend=amend,
        second_round_workers=second_round_workers,
    )
    return Scorers(scorer, Scorer(workers, max_steps=prompt.max_steps))


def refuse_indices(workflow: Workflow) -> None:
    """Raise `MalformedPlan` where a step names the steps that it reads by index."""
    for index, step in enumerate(workflow.steps):
        if step.access not in ((), "all"):
            raise MalformedPlan(
                "access_list",
                f"entry {index} is {list(step.access)}; a step reads everything before it or "
                f'nothing here: write ["all"] or []',
            )


def with_fixed_subtasks(workflow: Workflow) -> Workflow:
    return Workflow(tuple(replace(step, subtask=FIXED_SUBTASK) for step in workflow.steps))
