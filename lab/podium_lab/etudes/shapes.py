"""The shapes of études: how their operations depend on each other.

Every shape has one or more branches, a join if there are several, and perhaps a step after it:

    one           o              join-2        o─┐            join-step     o─┐
    chain-3       o─o─o                        o─o                          o─o─o
    chain-join    o─o─┐          chains-join   o─o─┐          join-3        three branches
                    o─o                        o─o─o
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

Split = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")

ONE_IN: Final = 5


def split_of(key: str) -> Split:
    """Return the split of a key."""
    digest = blake2b(key.encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest) % ONE_IN == 0 else "train"


class EtudeShape(StrEnum):
    """The shape of an étude, finer than the topology of its workflow."""

    ONE = "one"
    CHAIN_2 = "chain-2"
    CHAIN_3 = "chain-3"
    CHAIN_4 = "chain-4"
    CHAIN_5 = "chain-5"
    JOIN_2 = "join-2"
    JOIN_3 = "join-3"
    JOIN_STEP = "join-step"
    CHAIN_JOIN = "chain-join"
    CHAINS_JOIN = "chains-join"


class Skeleton(NamedTuple):
    """The lengths of the branches, and how many steps follow where they join."""

    branches: tuple[int, ...]
    after: int = 0

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return sum(self.branches) + (len(self.branches) > 1) + self.after


SKELETONS: Final = MappingProxyType(
    {
        EtudeShape.ONE: Skeleton((1,)),
        EtudeShape.CHAIN_2: Skeleton((2,)),
        EtudeShape.CHAIN_3: Skeleton((3,)),
        EtudeShape.CHAIN_4: Skeleton((4,)),
        EtudeShape.CHAIN_5: Skeleton((5,)),
        EtudeShape.JOIN_2: Skeleton((1, 1)),
        EtudeShape.JOIN_3: Skeleton((1, 1, 1)),
        EtudeShape.JOIN_STEP: Skeleton((1, 1), after=1),
        EtudeShape.CHAIN_JOIN: Skeleton((2, 1)),
        EtudeShape.CHAINS_JOIN: Skeleton((2, 2)),
    }
)

TEST_ONLY: Final = frozenset({EtudeShape.CHAIN_5})
"""Longer than anything in training."""

USUAL: Final = MappingProxyType(
    {
        EtudeShape.ONE: 0.16,
        EtudeShape.CHAIN_2: 0.16,
        EtudeShape.CHAIN_3: 0.14,
        EtudeShape.CHAIN_4: 0.10,
        EtudeShape.JOIN_2: 0.16,
        EtudeShape.JOIN_3: 0.08,
        EtudeShape.JOIN_STEP: 0.07,
        EtudeShape.CHAIN_JOIN: 0.07,
        EtudeShape.CHAINS_JOIN: 0.06,
    }
)
"""How often each shape is drawn unless one says otherwise."""
