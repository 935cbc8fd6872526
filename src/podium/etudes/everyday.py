"""Everyday questions: what people ask an assistant that has nothing to do with études.

They have no answer that could be graded, but it is clear what a sensible plan for one of them
looks like: the question goes, unaltered, to one worker who can take it.
"""

from __future__ import annotations

from functools import cache

from podium.etudes.splits import Split
from podium.etudes.values import read_table


@cache
def everyday(split: Split) -> tuple[str, ...]:
    """The questions of that split; none of them is in the other."""
    return tuple(read_table("everyday.toml")[split])
