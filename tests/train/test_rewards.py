"""What outcomes are worth."""

from __future__ import annotations

import pytest

from podium.core.errors import ConfigError
from podium.core.request import UNKNOWN_USAGE, Usage
from podium.core.run import Attempt, StepRecord
from podium.train.score import PAPER, RELEASED, Reward, combine_rounds

USED = Usage(600, 400, 0, 0, 0)


def step(usage: Usage = USED, usd: float | None = 0.02) -> StepRecord:
    attempt = Attempt("w", usage, usd, 0.0, 1.0)
    return StepRecord(0, 0, "w", "do it", (), "done", "4", None, 0.0, 1.0, (attempt,))


@pytest.mark.parametrize(("reward", "values"), [(PAPER, (0, 0.5, 1)), (RELEASED, (0, 0.5, 1.5))])
def test_the_presets_are_the_published_ones(reward: Reward, values: tuple[float, ...]) -> None:
    earned = (
        reward.of_malformed(100),
        reward.of_plan(right=False, steps=5, completion_tokens=100),
        reward.of_plan(right=True, steps=5, completion_tokens=100),
    )
    assert tuple(sum(parts.values()) for parts in earned) == values


def test_parts_name_what_each_contributed() -> None:
    assert PAPER.of_plan(right=True, steps=3) == {"format": 0.5, "answer": 0.5}
    assert PAPER.of_plan(right=False, steps=3) == {"format": 0.5, "answer": 0.0}
    assert PAPER.of_malformed() == {"format": 0.0}


def test_every_step_beyond_the_first_and_every_token_of_the_plan_is_taken_off() -> None:
    reward = Reward(penalty_per_extra_step=0.05, penalty_per_completion_token=0.001)
    parts = reward.of_plan(right=True, steps=3, completion_tokens=100)
    assert parts["length"] == pytest.approx(-0.2)
    assert reward.of_plan(right=True, steps=1) == {"format": 0.5, "answer": 0.5}
    assert reward.of_malformed(100)["length"] == pytest.approx(-0.1)


def test_worker_cost_or_tokens_reduce_the_reward() -> None:
    steps = (step(), step())
    assert Reward(penalty_per_usd=2.0).cost_of(steps) == pytest.approx(0.08)
    assert Reward(penalty_per_1000_worker_tokens=0.1).cost_of(steps) == pytest.approx(0.2)
    assert PAPER.cost_of(steps) == 0.0
    assert Reward(penalty_per_usd=2.0).of_plan(right=True, steps=1, cost=0.1)["cost"] == -0.1


def test_an_unknown_cost_is_not_zero() -> None:
    steps = (step(), step(UNKNOWN_USAGE, None))
    assert Reward(penalty_per_usd=1.0).cost_of(steps) is None
    assert Reward(penalty_per_1000_worker_tokens=1.0).cost_of(steps) is None
    assert PAPER.cost_of(steps) == 0.0


def test_an_expensive_plan_is_still_worth_no_less_than_a_malformed_one() -> None:
    parts = Reward(malformed=-0.1, penalty_per_extra_step=1.0).of_plan(right=False, steps=4)
    assert sum(parts.values()) == pytest.approx(-0.1)
    assert parts["floor"] == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wrong": 1.0}, "must ascend"),
        ({"malformed": 0.7}, "must ascend"),
        ({"right": float("inf")}, "must ascend"),
        ({"penalty_per_usd": -1.0}, "reward.penalty_per_usd is -1.0"),
        ({"penalty_per_extra_step": float("nan")}, "reward.penalty_per_extra_step is nan"),
    ],
)
def test_a_reward_that_teaches_the_opposite_is_refused(
    values: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Reward(**values)


def test_a_binary_reward_is_fine() -> None:
    assert Reward(wrong=0.0).of_plan(right=False, steps=1) == {"format": 0.0, "answer": 0.0}


def test_two_rounds_share_the_credit_by_the_discount() -> None:
    assert combine_rounds(0.5, 1.0, 0.25) == pytest.approx(0.625)
    assert combine_rounds(1.0, 0.5, 0.0) == 1.0


def test_a_dropped_round_takes_no_part() -> None:
    assert combine_rounds(None, 1.0, 0.2) is None
    assert combine_rounds(0.5, None, 0.2) == 0.5


def test_a_discount_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"recursion.discount is 1.5"):
        combine_rounds(0.5, 1.0, 1.5)


def test_a_wrong_answer_earns_something_for_the_right_results_on_its_way() -> None:
    reward = Reward(wrong=0.1, milestones=0.4)
    assert reward.of_plan(right=False, steps=3, reached=0.5)["milestones"] == pytest.approx(0.2)
    assert sum(reward.of_plan(right=False, steps=3, reached=1.0).values()) == pytest.approx(0.5)


def test_milestones_add_nothing_to_a_right_answer() -> None:
    reward = Reward(wrong=0.1, milestones=0.4)
    assert sum(reward.of_plan(right=True, steps=3, reached=1.0).values()) == pytest.approx(1.0)
    assert sum(reward.of_plan(right=True, steps=3).values()) == pytest.approx(1.0)


def test_milestones_earn_less_than_a_right_answer() -> None:
    with pytest.raises(ConfigError, match="reward.milestones is 0.5"):
        Reward(milestones=0.5)
