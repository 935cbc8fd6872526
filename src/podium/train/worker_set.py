"""The workers of a training, their pool, and the scorer of plans over them.

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
from podium.config import Settings, load
from podium.config.problems import suggest
from podium.core.errors import ConfigError, MalformedPlan
from podium.core.pool import CONDUCTOR_PROVIDER, Limits, Pool, WorkerProfile
from podium.core.request import FREE, Reply, Request
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.train.recipe import FIXED_SUBTASK, Recipe
from podium.train.score import Scorer
from podium.workers import Endpoint, Http, connect
from podium.workers.cached import CachedWorker, ReplyCache
from podium.workers.local.sources import WEIGHTS_FILE

CACHE_FILE: Final = "replies.sqlite3"
MISLEADING_PROMPT: Final = "You answer at once with one short guess, whatever is asked."
"""The prompt that makes the plain model the misleading worker of the études."""


@dataclass(frozen=True, slots=True)
class WorkerSet:
    """The workers of a training and their pool.

    `flaky_workers` are the same workers, unsure as often as `pool.flaky_rate` says; first rounds
    do not use them, or luck would decide what a plan is worth. `connected` are the workers without
    cache and without failures. `scorer` scores the recipe's plans.
    """

    workers: tuple[Worker, ...]
    flaky_workers: tuple[Worker, ...]
    pool: Pool
    cache: ReplyCache | None
    http: Http
    connected: tuple[Worker, ...]
    scorer: Scorer

    async def close(self) -> None:
        try:
            await close_all(self.connected)
        finally:
            if self.cache is not None:
                self.cache.close()
            await self.http.close()


class _ConnectedWorker(NamedTuple):
    """A worker as its pool connects it; `limited` adds the recipe's sampling options to it."""

    worker: Worker
    limited: Worker
    options: Mapping[str, Any]


def connect_workers(recipe: Recipe) -> WorkerSet:
    """Connect the recipe's workers; nothing is loaded or sent before the first call.

    Replies are cached below the recipe's output.
    """
    http = Http()
    settings = pool_settings(recipe) if recipe.pool.file is not None else None
    connected = list(_connect(recipe, http, settings))
    workers: Sequence[Worker] = [one.limited for one in connected]
    cache = None
    if recipe.run.cache_mb:
        recipe.output.mkdir(parents=True, exist_ok=True)
        cache = ReplyCache(recipe.output / CACHE_FILE, recipe.run.cache_mb * 1_000_000)
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
    scorer = make_scorer(recipe, workers, flaky_workers)
    return WorkerSet(tuple(workers), tuple(flaky_workers), pool, cache, http, behind, scorer)


def _connect(recipe: Recipe, http: Http, settings: Settings | None) -> Iterator[_ConnectedWorker]:
    if recipe.pool.oracle:
        with lab_extra():
            from podium_lab.etudes.workers import oracle_workers
        yield from (_ConnectedWorker(worker, worker, {}) for worker in oracle_workers())
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


def _etude_workers(recipe: Recipe, http: Http) -> Iterator[_ConnectedWorker]:
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
            options["system"] = MISLEADING_PROMPT
        worker = connect(profile, Endpoint(options=options), http)
        yield _ConnectedWorker(worker, worker, options)


def _pool_file_workers(
    recipe: Recipe, http: Http, settings: Settings
) -> Iterator[_ConnectedWorker]:
    asking = recipe.workers
    workers = assemble(settings, os.environ, http).workers
    for worker, filed in zip(workers, settings.workers, strict=True):
        limited = FixedOptionsWorker(worker, asking.max_tokens, asking.temperature)
        yield _ConnectedWorker(worker, limited, filed.options)


def make_scorer(
    recipe: Recipe, workers: Sequence[Worker], second_round_workers: Sequence[Worker] | None = None
) -> Scorer:
    """Return the scorer of the recipe's plans.

    `second_round_workers` replace the workers after the first round.
    """
    prompt = recipe.prompt

    def transform_plan(workflow: Workflow) -> Workflow:
        if prompt.access == "binary":
            refuse_indices(workflow)
        return with_fixed_subtasks(workflow) if prompt.fixed_subtasks else workflow

    return Scorer(
        workers,
        reward=recipe.reward.reward(),
        max_steps=prompt.max_steps,
        transform_plan=transform_plan,
        second_round_workers=second_round_workers,
    )


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


def recipe_pool(recipe: Recipe) -> Pool:
    if recipe.pool.file is not None:
        return pool_settings(recipe).pool
    return Pool(
        tuple(
            WorkerProfile(name=role, provider="transformers", model=recipe.worker_base, price=FREE)
            for role in recipe.pool.roles
        ),
        share_question=False,
        mask_names=recipe.prompt.mask_names,
    )


def pool_settings(recipe: Recipe) -> Settings:
    """Load the recipe's pool file and check that the recipe's other keys fit it."""
    assert recipe.pool.file is not None, "the études' workers have no file"
    settings = load(Path(recipe.pool.file))
    names, subset = settings.pool.names, recipe.pool.subset
    nested = [worker.name for worker in settings.pool if worker.provider == CONDUCTOR_PROVIDER]
    if nested:
        raise ConfigError(
            f"{settings.source}: {nested[0]} is a conductor, and no runs are nested in training; "
            f"take it out of the pool"
        )
    if recipe.prompt.fixed_subtasks and not settings.pool.share_question:
        raise ConfigError(
            f"prompt.fixed_subtasks: the workers of {settings.source} are not shown the question "
            f"(share_question is false), so each needs a subtask of its own"
        )
    for described in recipe.pool.descriptions:
        if described not in names:
            raise ConfigError(
                f"pool.descriptions: {described!r} is not in {settings.source}; "
                f"{suggest(described, names)}"
            )
    if subset is not None and subset.largest > len(names):
        raise ConfigError(
            f"pool.subset.largest is {subset.largest}, but {settings.source} has {len(names)} "
            f"workers"
        )
    return settings
