"""How something is spread over names: each one's share, and how even that is.

For steps over workers and workflows over shapes, in training and in measuring alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Each one's part of the whole, the largest first; who has none is left out."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return {name: count / total for name, count in ordered if count}


def entropy_bits(counts: Mapping[str, float]) -> float:
    """How evenly the counts are spread: 0 for one alone, the logarithm of n for n alike."""
    return sum(-part * math.log2(part) for part in shares(counts).values()) + 0.0
