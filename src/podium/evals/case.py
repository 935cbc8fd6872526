"""A case: a task as it is put to every strategy, over a pool of its own.

The études are asked over pools that change from question to question: the same workers, bound
by their roles, described in other words and standing in another order. Other suites are asked
over the pool as it is configured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Final

from podium.errors import UsageError
from podium.etudes import (
    FAMILIES,
    GENERALIST,
    ROLES,
    USUAL,
    Etude,
    EtudeShape,
    held_out,
    pool_profiles,
)
from podium.pool import Pool
from podium.task import Suite, Task
from podium.tasks import etude_task
from podium.tasks.everyday import EVERYDAY
from podium.tasks.suites import ETUDES
from podium.workflow import Workflow

_NEEDED: Final = MappingProxyType(
    {ETUDES: tuple(family.value for family in FAMILIES), EVERYDAY: (GENERALIST,)}
)

FAMILY_ROLES: Final = MappingProxyType({family.value: family.value for family in FAMILIES})
"""Each family's worker is named as the family is."""


@dataclass(frozen=True, slots=True)
class Case:
    """A task, the pool that it is asked over, and its ideal plan where that is known."""

    task: Task
    pool: Pool
    ideal: Workflow | None = None

    @property
    def skills(self) -> int | None:
        """How many skills the task needs, one for each step of its ideal plan."""
        return len(self.ideal) if self.ideal is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is changed about the études' test set.

    `shapes` are the shapes to draw and their weights. With `shuffled` each pool stands in yet
    another order than it was drawn in; with `drop_one` each lacks a worker that its étude does
    not need. `flaky` is the share of requests that a capable worker declines to answer: the
    workers are made so where they are connected, it is kept here to be told with the results.
    """

    shapes: Mapping[EtudeShape, float] = field(default_factory=lambda: USUAL)
    shuffled: bool = False
    drop_one: bool = False
    flaky: float = 0.0

    def document(self) -> dict[str, object]:
        """The variant as it is written into tables."""
        return {
            "shapes": None if self.shapes == USUAL else [shape.value for shape in self.shapes],
            "pool_order": "shuffled" if self.shuffled else "drawn",
            "drop_one": self.drop_one,
            "flaky": self.flaky,
        }


def suite_cases(suite: Suite, pool: Pool) -> tuple[Case, ...]:
    """The tasks of any suite, all over the configured pool."""
    return tuple(Case(task, pool) for task in suite)


def etude_cases(n: int, seed: int, pool: Pool, variant: Variant | None = None) -> tuple[Case, ...]:
    """Unseen études over the workers of that pool, which are known by the names of their roles.

    The same seed gives the same études over the same pools; a variant changes only what it says.
    """
    check_roles(pool)
    variant = variant or Variant()
    return tuple(_cases(held_out(n, seed, variant.shapes), seed, pool, variant))


def needs_roles(suite: str) -> bool:
    """Whether the suite is about workers of certain roles, and not about any pool."""
    return suite in _NEEDED


def check_roles(pool: Pool, suite: str = ETUDES) -> None:
    """Refuse a pool in which a worker is missing whose role the suite cannot do without."""
    needed = _NEEDED.get(suite, ())
    missing = [role for role in needed if role not in pool.names]
    if missing:
        raise UsageError(
            f"the suite {suite!r} needs a worker named {missing[0]!r}, and the pool has "
            f"{', '.join(pool.names)}; give a pool whose workers are named by their roles "
            f"({', '.join(ROLES)}) with --pool, or have perfect ones with --oracle"
        )


def _cases(etudes: Iterable[Etude], seed: int, pool: Pool, variant: Variant) -> Iterator[Case]:
    for etude in etudes:
        drawn = _described(pool, Random(f"{seed}/{etude.id}/pool"))  # noqa: S311 - repeatable
        rng = Random(f"{seed}/{etude.id}/variant")  # noqa: S311
        if variant.drop_one:
            spare = [name for name in drawn.names if name not in etude.families]
            drawn = drawn.without([rng.choice(spare)]) if spare else drawn
        if variant.shuffled:
            drawn = replace(drawn, workers=tuple(rng.sample(drawn.workers, len(drawn))))
        yield Case(etude_task(etude), drawn, etude.ideal(FAMILY_ROLES))


def _described(pool: Pool, rng: Random) -> Pool:
    """The workers that have a role, in words and in an order that no training has seen."""
    roles = {role: pool[role].model for role in ROLES if role in pool.names}
    drawn = pool_profiles(rng, roles, split="test")
    workers = tuple(
        replace(pool[worker.name], description=worker.description, fallback=None)
        for worker in drawn
    )
    return replace(drawn, workers=workers)
