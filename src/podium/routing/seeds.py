"""Seeds: people may name any whole number, and the generators of numpy and cmaes know fewer."""

from __future__ import annotations

from typing import Final

SEEDS: Final = 2**32


def known_seed(seed: int) -> int:
    """The seed itself where generators know it, else one that stands for it."""
    return seed % SEEDS
