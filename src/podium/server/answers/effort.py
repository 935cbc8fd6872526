"""How hard to think, as clients say it, in steps and rounds: what a conductor has to spend."""

from __future__ import annotations

from typing import Final, NamedTuple

from podium.request import Effort
from podium.runner import Options

LOW_THINKING: Final = 4_096
HIGH_THINKING: Final = 16_384
"""Tokens: a budget for thinking below the first is low effort, from the second on high."""


class Extent(NamedTuple):
    """The most steps of a plan, and the most rounds."""

    max_steps: int
    rounds: int


def extent(effort: Effort | None, usual: Options) -> Extent:
    """What an effort comes to, where `usual` is what the settings allow.

    Without one, or with a medium one, it is what is usual. `none` and `minimal` leave a single
    step; `low` leaves two, in one round; `high` lets the conductor look at the answer once more
    than usual, and at least once.
    """
    match effort:
        case "none" | "minimal":
            return Extent(1, 1)
        case "low":
            return Extent(min(2, usual.max_steps), 1)
        case "high":
            return Extent(usual.max_steps, max(2, usual.rounds + 1))
        case _:
            return Extent(usual.max_steps, usual.rounds)


def effort_of_thinking(tokens: int | None) -> Effort | None:
    """The effort that a budget for thinking stands for."""
    if tokens is None:
        return None
    if tokens < LOW_THINKING:
        return "low"
    return "medium" if tokens < HIGH_THINKING else "high"
