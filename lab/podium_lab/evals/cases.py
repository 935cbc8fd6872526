"""Unseen études as cases of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from podium.core.pool import Pool
from podium.evals.sample import Case, EtudeVariant, check_roles
from podium_lab.etudes import FAMILIES, ROLES, USUAL, Etude, held_out, pool_profiles
from podium_lab.etudes.tasks import etude_task


def make_etude_cases(
    n: int, seed: int, pool: Pool, variant: EtudeVariant | None = None
) -> tuple[Case, ...]:
    """Return unseen études with pools of that pool's workers, which are named by their roles.

    The same seed gives the same études and pools; a variant changes only what it says.
    """
    check_roles(pool)
    variant = variant or EtudeVariant()
    return tuple(_cases(held_out(n, seed, variant.shapes or USUAL), seed, pool, variant))


def _cases(etudes: Iterable[Etude], seed: int, pool: Pool, variant: EtudeVariant) -> Iterator[Case]:
    roles = {family.value: family.value for family in FAMILIES}
    for etude in etudes:
        drawn = _describe(pool, Random(f"{seed}/{etude.id}/pool"))  # noqa: S311 - repeatable
        rng = Random(f"{seed}/{etude.id}/variant")  # noqa: S311
        if variant.drop_one:
            spare = [name for name in drawn.names if name not in etude.families]
            drawn = drawn.without([rng.choice(spare)]) if spare else drawn
        if variant.shuffled:
            drawn = replace(drawn, workers=tuple(rng.sample(drawn.workers, len(drawn))))
        yield Case(etude_task(etude), drawn, etude.ideal(roles))


def _describe(pool: Pool, rng: Random) -> Pool:
    """Return the workers with a role, in an order and with descriptions unseen in training."""
    roles = {role: pool[role].model for role in ROLES if role in pool.names}
    drawn = pool_profiles(rng, roles, split="test")
    workers = tuple(
        replace(pool[worker.name], description=worker.description, fallback=None)
        for worker in drawn
    )
    return replace(drawn, workers=workers)
