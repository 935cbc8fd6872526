"""The pool that a recipe names: as data, and whether its workers answer.

How a pool varies from question to question is the trainer's business; here is what it is made
of. Needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from podium.assembly import assemble
from podium.config import Settings, load
from podium.config.problems import nearest
from podium.errors import ConfigError, PodiumError, Unavailable
from podium.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.providers import Http
from podium.request import Request, user
from podium.train.recipe import Recipe
from podium.usage import FREE
from podium.worker import Worker

TINY: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""What every worker is asked; vendors allow no fewer tokens than these."""

LONGEST_CHECK: Final = 60.0
"""Seconds in which a worker has to answer it."""


def recipe_pool(recipe: Recipe) -> Pool:
    """The workers of the recipe, all of them, as conductors and estimates know them."""
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
    """The settings of the recipe's pool file, which the recipe's other keys must fit."""
    assert recipe.pool.file is not None, "the études' workers have no file"
    settings = load(Path(recipe.pool.file))
    names, one, subset = settings.pool.names, recipe.prompt.one_worker, recipe.pool.subset
    nested = [worker.name for worker in settings.pool if worker.provider == CONDUCTOR_PROVIDER]
    if nested:
        raise ConfigError(
            f"{settings.source}: {nested[0]} is a conductor, and no runs are nested in training; "
            f"take it out of the pool"
        )
    if one is not None and one not in names:
        raise ConfigError(
            f"prompt.one_worker: {one!r} is not in {settings.source}; {nearest(one, names)}"
        )
    if recipe.prompt.fixed_subtasks and not settings.pool.share_question:
        raise ConfigError(
            f"prompt.fixed_subtasks: the workers of {settings.source} are not shown the question "
            f"(share_question is false), so each needs a subtask of its own"
        )
    if subset is not None and subset.largest > len(names):
        raise ConfigError(
            f"pool.subset.largest is {subset.largest}, but {settings.source} has {len(names)} "
            f"workers"
        )
    return settings


def wants_references(recipe: Recipe, pool: Pool) -> bool:
    """Whether the workers are measured alone before training: as the recipe says, else where
    that costs nothing."""
    if recipe.run.references is not None:
        return recipe.run.references
    return all(worker.price is not None and worker.price.is_free for worker in pool)


async def check_pool(settings: Settings, environment: Mapping[str, str]) -> None:
    """Reach every worker once; `Unavailable` names those that do not answer."""
    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        problems = await asyncio.gather(*(_problem(worker) for worker in assembly.workers))
    told = [problem for problem in problems if problem is not None]
    if told:
        raise Unavailable(f"{settings.source}: no answer from {'; '.join(told)}")


async def _problem(worker: Worker) -> str | None:
    """What keeps the worker from answering, if anything does."""
    try:
        async with asyncio.timeout(LONGEST_CHECK):
            await worker.reply(TINY)
    except TimeoutError:
        return f"{worker.profile.name}: nothing within {LONGEST_CHECK:g} s"
    except PodiumError as error:
        return f"{worker.profile.name}: {error}"
    return None
