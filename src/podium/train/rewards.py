"""Rewards: the value of each outcome of a plan, in parts that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from podium.core.errors import ConfigError
from podium.core.request import add
from podium.core.run import StepRecord

_PENALTIES: Final = (
    "per_usd",
    "per_1000_worker_tokens",
    "per_completion_token",
    "per_extra_step",
    "replan_penalty",
    "accept_penalty",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward of each outcome. Everything below `right` is 0 in the paper.

    `milestones` is added to a wrong answer for the intermediate results that were right, in
    proportion. `replan_penalty` is subtracted from a plan that follows a right answer: the same
    plan again would earn as much as accepting it. `accept_penalty` is subtracted for accepting a
    wrong answer. Penalties never make a valid plan worth less than a malformed one: otherwise the
    policy would learn to write no plan.
    """

    malformed: float = 0.0
    wrong: float = 0.5
    right: float = 1.0
    milestones: float = 0.0
    per_usd: float = 0.0
    per_1000_worker_tokens: float = 0.0
    per_completion_token: float = 0.0
    per_extra_step: float = 0.0
    replan_penalty: float = 0.0
    accept_penalty: float = 0.0

    def __post_init__(self) -> None:
        values = (self.malformed, self.wrong, self.right)
        if not all(map(math.isfinite, values)) or not self.malformed <= self.wrong < self.right:
            raise ConfigError(
                f"reward.malformed is {self.malformed:g}, reward.wrong {self.wrong:g} and "
                f"reward.right {self.right:g}; they must ascend, and right must be the highest"
            )
        if not 0 <= self.milestones < self.right - self.wrong:
            raise ConfigError(
                f"reward.milestones is {self.milestones:g}; expected a number from 0 to less than "
                f"{self.right - self.wrong:g}, the difference of right and wrong"
            )
        for name in _PENALTIES:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"reward.{name} is {getattr(self, name)}; expected a number from 0 up, which "
                    f"is subtracted"
                )

    def of_malformed(self, completion_tokens: int = 0) -> Mapping[str, float]:
        """Return the parts of a malformed plan's reward."""
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
        replans_right_answer: bool = False,
        accepts_wrong_answer: bool = False,
    ) -> Mapping[str, float]:
        """Return the parts of a valid plan's reward.

        `cost` is the result of `cost_of`, `reached` the share of milestones that were reached.
        The part `floor` gives back penalties that would go below a malformed plan's reward.
        """
        length = self.per_completion_token * completion_tokens
        length += self.per_extra_step * max(0, steps - 1)
        parts = {
            "format": self.wrong,
            "answer": self.right - self.wrong if right else 0.0,
            "milestones": 0.0 if right else self.milestones * reached,
            "cost": -cost,
            "length": -length,
            "replan_penalty": -self.replan_penalty if replans_right_answer else 0.0,
            "accept_penalty": -self.accept_penalty if accepts_wrong_answer else 0.0,
        }
        parts["floor"] = max(0.0, self.malformed - sum(parts.values()))
        return _nonzero(parts, "format", "answer")

    def cost_of(self, steps: tuple[StepRecord, ...]) -> float | None:
        """Return the penalty for the workers' cost and tokens; None if either is unknown."""
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
    """Return `(1 - discount) * first + discount * second`, the reward of a plan with a next round.

    A dropped rollout is None: without the first there is no reward, without the second the first
    stands alone.
    """
    if not 0 <= discount <= 1:
        raise ConfigError(f"recursion.discount is {discount}; expected a share from 0 to 1")
    if first is None or second is None:
        return first
    return (1 - discount) * first + discount * second


def _nonzero(parts: Mapping[str, float], *always: str) -> Mapping[str, float]:
    return {name: value for name, value in parts.items() if value or name in always}
