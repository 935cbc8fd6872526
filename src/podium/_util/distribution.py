"""Shares and entropy of counts."""

from __future__ import annotations

import math
from collections.abc import Mapping


def shares(counts: Mapping[str, float]) -> dict[str, float]:
    """Return each count's part of the whole, largest first, without zeros."""
    total = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return {name: count / total for name, count in ordered if count}


def entropy_bits(counts: Mapping[str, float]) -> float:
    """Return the entropy in bits: 0 for one count alone, log2(n) for n equal ones."""
    return sum(-part * math.log2(part) for part in shares(counts).values()) + 0.0
