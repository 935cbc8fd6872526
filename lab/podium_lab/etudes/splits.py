"""What is kept for testing.

Phrasings, connectives and descriptions have a list for each split, so they are disjoint by
construction. For the rest, a hash decides: one in five goes to the test split, always the same.

    operands of open skills   the pair of an addition, the items of a list, …: as literals and as
                              results of earlier steps alike
    études of several steps   which operations, on what, in which order: an étude of the test
                              split never occurs in training, in no wording

What is learned by heart cannot be kept apart by value: towns, translations, plurals, the
calendar and the other small tables are the same in both splits. A question of one such skill
differs from all of training in its wording alone.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal

Split = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")

ONE_IN: Final = 5


def split_of(key: str) -> Split:
    """The split to which whatever the key stands for belongs."""
    digest = blake2b(key.encode(), digest_size=4).digest()
    return "test" if int.from_bytes(digest) % ONE_IN == 0 else "train"
