"""Pools in words: who the workers are, said differently every time, in any order.

A worker's name is its role here, and hidden from the conductor: only the description tells who
can do what. For training, besides whole lines, descriptions are put together of what a worker does:
whoever learns a few lines by heart is at a loss before another one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Final

from podium.core.errors import UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.usage import FREE
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.splits import Split
from podium_lab.etudes.values import read_table

GENERALIST: Final = "generalist"
MISLEADING: Final = "misleading"
ROLES: Final = (*(family.value for family in FAMILIES), GENERALIST, MISLEADING)

PUT_TOGETHER: Final = 600
"""How many descriptions of each specialist are put together for training."""


@cache
def descriptions(role: str, split: Split, *, put_together: bool = True) -> tuple[str, ...]:
    """The lines that may describe the worker of that role, those that are put together for
    training among them or not."""
    if role not in ROLES:
        raise UsageError(f"no worker of the études is a {role!r}; there is {', '.join(ROLES)}")
    table = read_table("descriptions.toml")[role]
    lines = [line for alternatives in table[split] for line in _spelled_out(alternatives)]
    if put_together and split == "train" and role in FAMILIES:
        tested = frozenset(descriptions(role, "test"))
        lines += [line for line in _put_together(role) if line not in tested]
    return tuple(dict.fromkeys(lines))


def _spelled_out(line: str) -> Iterator[str]:
    """Every line that "{one|another} line" stands for."""
    parts = [part.split("|") for part in re.split(r"[{}]", line)]
    return ("".join(chosen) for chosen in product(*parts))


def _put_together(role: str) -> Iterator[str]:
    """Descriptions that name some of what the worker does, most often nearly all of it."""
    table = read_table("trades.toml")
    trade, rng = table[role], Random(role)  # noqa: S311 - the same lines every time
    for _ in range(PUT_TOGETHER):
        parts = trade["parts"]
        told = rng.sample(parts, rng.randint(len(parts) // 2 + 1, len(parts)))
        *first, last = [rng.choice(ways) for ways in told]
        joint = rng.choice((", ", " and "))
        form = rng.choice(table["forms"])
        yield form.format(title=rng.choice(trade["titles"]), list=", ".join(first) + joint + last)


def pool_profiles(
    rng: Random,
    models: Mapping[str, str],
    *,
    split: Split = "train",
    keep: Collection[str] = (),
    drop: float = 0.0,
    put_together: bool = True,
    provider: str = "",
    mask_names: bool = True,
) -> Pool:
    """A pool of the workers whose models are given by role: described at random, shuffled, and
    each of them left out with the chance `drop`, unless it is to be kept."""
    roles = [role for role in models if role in keep or rng.random() >= drop]
    roles = roles or [rng.choice(list(models))]
    rng.shuffle(roles)
    return Pool(
        tuple(
            WorkerProfile(
                name=role,
                description=rng.choice(descriptions(role, split, put_together=put_together)),
                provider=provider,
                model=models[role],
                price=FREE,
            )
            for role in roles
        ),
        share_question=False,
        mask_names=mask_names,
    )
