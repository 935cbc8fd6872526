"""What a rollout earns: by its outcome, less what it cost.

    PAPER       0 for a malformed plan, 0.5 for a well-formed one that was wrong, 1 for a right one
    RELEASED    0 / 0.5 / 1.5, as the paper's authors released their code

Only numbers live here. How a plan comes to its outcome is `podium.train.score`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from podium.core.errors import ConfigError
from podium.core.run import StepRecord
from podium.core.usage import add

_COSTS: Final = (
    "per_usd",
    "per_1000_worker_tokens",
    "per_completion_token",
    "per_extra_step",
    "needless",
    "hasty",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The value of each outcome, what is added for coming near, and what is taken off.

    `milestones` is what a plan with a wrong answer earns for all the results that lie on the way
    to the right one, and in proportion for some of them; 0 in the paper. It must not make a
    wrong answer worth as much as a right one.
    `per_usd` and `per_1000_worker_tokens` are taken off for what the workers used,
    `per_completion_token` for the length of what the conductor wrote, and `per_extra_step` for
    every step beyond the first. `needless` is taken off for a plan that follows a right answer:
    where workers answer the same request alike, the same plan once more comes to the same answer,
    and nothing else tells it from accepting. `hasty` is taken off for accepting a wrong answer:
    to mend one succeeds now and then, and otherwise trying would be worth no more than giving up.
    All of these are 0 in the paper. What is taken off never makes a well-formed plan worth less
    than a malformed one: otherwise a dear plan would teach the conductor to write none.
    """

    malformed: float = 0.0
    wrong: float = 0.5
    right: float = 1.0
    milestones: float = 0.0
    per_usd: float = 0.0
    per_1000_worker_tokens: float = 0.0
    per_completion_token: float = 0.0
    per_extra_step: float = 0.0
    needless: float = 0.0
    hasty: float = 0.0

    def __post_init__(self) -> None:
        values = (self.malformed, self.wrong, self.right)
        if not all(map(math.isfinite, values)) or not self.malformed <= self.wrong < self.right:
            raise ConfigError(
                f"the reward is {self.malformed:g} for a malformed plan, {self.wrong:g} for a "
                f"wrong answer and {self.right:g} for a right one; they must ascend, and a right "
                f"answer must earn the most"
            )
        if not 0 <= self.milestones < self.right - self.wrong:
            raise ConfigError(
                f"reward.milestones is {self.milestones:g}; it must be from 0 up, and less than "
                f"the {self.right - self.wrong:g} that lie between a wrong answer and a right one"
            )
        for name in _COSTS:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"reward.{name} is {getattr(self, name)}; it is what is taken off, "
                    f"so give a number from 0 up"
                )

    def of_malformed(self, completion_tokens: int = 0) -> Mapping[str, float]:
        """What a text earns that is no plan, part by part."""
        return _nonzero(
            {"format": self.malformed, "length": -self.per_completion_token * completion_tokens},
            "format",
        )

    def of_plan(
        self,
        *,
        right: bool,
        steps: int,
        cost: float = 0.0,
        completion_tokens: int = 0,
        reached: float = 0.0,
        is_needless: bool = False,
        is_hasty: bool = False,
    ) -> Mapping[str, float]:
        """What a well-formed plan earns, part by part; `cost` is what `cost_of` made of it,
        `reached` the share of the milestones that it came by. `is_needless` says that the answer
        there was is right and the plan does not accept it, and `is_hasty` that it is wrong and
        the plan does.

        `format` is for being a plan at all, `answer` for being right, `milestones` for coming
        near, `cost`, `length`, `needless` and `hasty` are what is taken off, and `floor` gives
        back what would be too much of that.
        """
        length = self.per_completion_token * completion_tokens
        length += self.per_extra_step * max(0, steps - 1)
        answer = self.right - self.wrong if right else 0.0
        near = 0.0 if right else self.milestones * reached
        needless = self.needless if is_needless else 0.0
        hasty = self.hasty if is_hasty else 0.0
        total = self.wrong + answer + near - cost - length - needless - hasty
        return _nonzero(
            {
                "format": self.wrong,
                "answer": answer,
                "milestones": near,
                "cost": -cost,
                "length": -length,
                "needless": -needless,
                "hasty": -hasty,
                "floor": max(0.0, self.malformed - total),
            },
            "format",
            "answer",
        )

    def cost_of(self, steps: tuple[StepRecord, ...]) -> float | None:
        """What is taken off for the workers' part in these steps; None where that is unknown."""
        total: float | None = 0.0
        for step in steps:
            if self.per_usd:
                cost = step.cost_usd
                total = add(total, None if cost is None else self.per_usd * cost)
            if self.per_1000_worker_tokens:
                tokens = step.usage.total_tokens
                taken = None if tokens is None else self.per_1000_worker_tokens * tokens / 1000
                total = add(total, taken)
        return total


PAPER: Final = Reward()
"""The rewards of the paper."""

RELEASED: Final = Reward(right=1.5)
"""The rewards of the code that the paper's authors released."""


def combine_rounds(first: float | None, second: float | None, discount: float) -> float | None:
    """What a plan earns that another round followed: `(1 - discount) * first + discount * second`.

    A rollout that was dropped (None) teaches nothing: without the first there is no reward, and
    without the second the first stands as it is.
    """
    if not 0 <= discount <= 1:
        raise ConfigError(f"the discount is {discount}; it is a share, from 0 to 1")
    if first is None or second is None:
        return first
    return (1 - discount) * first + discount * second


def _nonzero(parts: Mapping[str, float], *always: str) -> Mapping[str, float]:
    """The parts that contribute something, and those that are always told."""
    return {name: value for name, value in parts.items() if value or name in always}
