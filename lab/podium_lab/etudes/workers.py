"""The workers of études: descriptions in words, oracles, and workers that sometimes decline.

A worker's name is its role, hidden from the conductor: only the description says what it can do.
For training, besides written lines, descriptions are composed of the worker's skills, since a
conductor that memorised a few lines cannot read another.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from itertools import product
from random import Random
from typing import Any, Final

from podium._util.lab import ORACLE
from podium.core.errors import UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import FREE, NO_USAGE, Delta, Reply, Request, Usage
from podium.core.worker import Worker
from podium_lab.etudes.composition import Split
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.values import UNSURE, read_table

_PARTS: Final = 2**32


class FlakyWorker:
    """A worker that says it does not know in a share of all cases, instead of being asked."""

    def __init__(self, worker: Worker, share: float, seed: int = 0) -> None:
        if not 0 <= share <= 1:
            raise UsageError(f"a worker cannot fail in a share of {share}; give one from 0 to 1")
        self.profile = worker.profile
        self._worker = worker
        self._share = share
        self._seed = seed

    async def reply(self, request: Request) -> Reply:
        if self._fails(request):
            return Reply(UNSURE, NO_USAGE, model=self.profile.model)
        return await self._worker.reply(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        if self._fails(request):
            yield Delta(UNSURE)
            yield await self.reply(request)
            return
        async for piece in self._worker.stream(request):
            yield piece

    def _fails(self, request: Request) -> bool:
        return is_declined(self.profile.name, request.text, self._share, self._seed)


def is_declined(worker: str, text: str, share: float, seed: int) -> bool:
    digest = blake2b(f"{seed}\0{worker}\0{text}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) < share * _PARTS


GENERALIST: Final = "generalist"
MISLEADING: Final = "misleading"
ROLES: Final = (*(family.value for family in FAMILIES), GENERALIST, MISLEADING)

COMPOSED_DESCRIPTIONS: Final = 600
"""How many descriptions of each specialist are composed for training."""


@cache
def descriptions(role: str, split: Split, *, composed: bool = True) -> tuple[str, ...]:
    """Return the lines that may describe the worker of that role; for training, those that are
    composed of its skills too."""
    if role not in ROLES:
        raise UsageError(f"no worker of the études is a {role!r}; there is {', '.join(ROLES)}")
    lines = []
    for line in read_table("descriptions.toml")[role][split]:
        parts = [part.split("|") for part in re.split(r"[{}]", line)]  # "{one|another} line"
        lines += ["".join(chosen) for chosen in product(*parts)]
    if composed and split == "train" and role in FAMILIES:
        tested = frozenset(descriptions(role, "test"))
        trades = read_table("trades.toml")
        lines += [line for line in _compose_lines(role, trades) if line not in tested]
    return tuple(dict.fromkeys(lines))


def _compose_lines(role: str, trades: Mapping[str, Any]) -> Iterator[str]:
    trade, rng = trades[role], Random(role)  # noqa: S311 - the same lines every time
    for _ in range(COMPOSED_DESCRIPTIONS):
        parts = trade["parts"]
        named = rng.sample(parts, rng.randint(len(parts) // 2 + 1, len(parts)))
        *first, last = [rng.choice(ways) for ways in named]
        joint = rng.choice((", ", " and "))
        form = rng.choice(trades["forms"])
        yield form.format(title=rng.choice(trade["titles"]), list=", ".join(first) + joint + last)


def pool_profiles(
    rng: Random,
    models: Mapping[str, str],
    *,
    split: Split = "train",
    keep: Collection[str] = (),
    drop: float = 0.0,
    composed: bool = True,
) -> Pool:
    """Return a pool of workers, whose models are given by role: described at random, shuffled, and
    each left out with the chance `drop`, unless it is to be kept."""
    roles = [role for role in models if role in keep or rng.random() >= drop]
    roles = roles or [rng.choice(list(models))]
    rng.shuffle(roles)
    return Pool(
        tuple(
            WorkerProfile(
                name=role,
                description=rng.choice(descriptions(role, split, composed=composed)),
                model=models[role],
                price=FREE,
            )
            for role in roles
        ),
        share_question=False,
        mask_names=True,
    )


MISLEADING_REPLY: Final = "7"
"""What the misleading worker always says, with confidence and without reading."""


class OracleWorker(Worker):
    """The worker of one role of the études as it would be if it never erred.

    A specialist does what is of its family and does not know the rest; the generalist knows
    nothing of what specialists do; the misleading one is as sure as it is wrong. Tokens are
    counted as words.
    """

    def __init__(self, role: str) -> None:
        self.profile = WorkerProfile(name=role, provider=ORACLE, model=role, price=FREE)

    async def reply(self, request: Request) -> Reply:
        text = self._answer(request.messages[-1].text)
        return Reply(text, Usage(len(request.text.split()), len(text.split()), 0, 0, 0))

    def _answer(self, message: str) -> str:
        role = self.profile.name
        if role == MISLEADING:
            return MISLEADING_REPLY
        return UNSURE if role == GENERALIST else oracle_reply(role, message)


def oracle_workers() -> tuple[OracleWorker, ...]:
    return tuple(OracleWorker(role) for role in ROLES)
