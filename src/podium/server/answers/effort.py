"""How hard to think, as clients say it, in steps and rounds: what a conductor has to spend."""

from __future__ import annotations

from typing import NamedTuple

from podium.request import Effort
from podium.runner import Options


class Extent(NamedTuple):
    """The most steps of a plan, and the most rounds."""

    max_steps: int
    rounds: int


def extent(effort: Effort | None, usual: Options, *, may_plan_again: bool = True) -> Extent:
    """What an effort comes to, where `usual` is what the settings allow.

    Without one, or with a medium one, it is what is usual. `none` and `minimal` leave a single
    step; `low` leaves two, in one round; `high` lets the conductor look at the answer once more
    than usual, and at least once. A conductor that would not plan again has one round.
    """
    match effort:
        case "none" | "minimal":
            steps, rounds = 1, 1
        case "low":
            steps, rounds = min(2, usual.max_steps), 1
        case "high":
            steps, rounds = usual.max_steps, max(2, usual.rounds + 1)
        case _:
            steps, rounds = usual.max_steps, usual.rounds
    return Extent(steps, rounds if may_plan_again else 1)
