"""Second rounds among the rollouts of a question: from what they go on, and with what each is
compared. The policy is one that says what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from podium.conductors import PlanningContext
from podium.conductors.plan import write, write_acceptance
from podium.core.pool import Pool
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from support.harness import FakeWorker
from support.recipes import make_recipe

torch = pytest.importorskip("torch")
rollouts = pytest.importorskip("podium.train.rollouts")
grpo_arguments = pytest.importorskip("podium.train.grpo")
decoding = pytest.importorskip("podium.workers.local.decoding")
score = pytest.importorskip("podium.train.score")

pytestmark = pytest.mark.torch

RECURSION = ["recursion.share=0.5", "prompt.style=trained", "prompt.access=index"]
SOLVER = FakeWorker("solver", lambda request: "42" if "again" in request.text else "41")
POOL = Pool((SOLVER.profile,))
GUESS = write(Workflow((Step("solver", "Guess"),)), POOL)
AGAIN = write(Workflow((Step("solver", "Try again"),)), POOL)
ACCEPT = write_acceptance()


async def is_42(answer: str) -> bool:
    return answer == "42"


TASK = Task(id="t", question="What is six times seven?", grader=is_42)
EXERCISE = Exercise(TASK, PlanningContext(question=TASK.question, pool=POOL))


class Saying:
    """A policy that writes what is said for each prompt, one character a token."""

    def __init__(self, say: Callable[[str, int], str]) -> None:
        self._say = say
        self.asked: list[str] = []

    def encode(self, messages: list[dict[str, str]], opener: str = "") -> list[int]:
        return [ord(c) for c in "\n".join(message["content"] for message in messages) + opener]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def sample(self, prompts: Sequence[Sequence[int]], sampling: Any, copies: int = 1) -> list[Any]:
        texts = [self.decode(prompt) for prompt in prompts for _ in range(copies)]
        self.asked += texts
        return [
            decoding.Completion([ord(c) for c in self._say(text, where)], True)
            for where, text in enumerate(texts)
        ]


def is_second(prompt: str) -> bool:
    return "plan again" in prompt.lower()


def sampled(recipe: Recipe, policy: Saying, count: int, exercise: Exercise = EXERCISE) -> Any:
    """Rollouts whose batch is sampled and scored, on an event loop of its own as in training."""
    made = rollouts.Rollouts(recipe, policy, score.Scorer([SOLVER]))
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        batch = made.collect([exercise] * count, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    return SimpleNamespace(batch=batch.plans, earned=batch.rewards, too_long=made.too_long)


def test_the_second_half_continues_from_the_first_and_shares_its_reward(tmp_path: Path) -> None:
    policy = Saying(lambda prompt, where: AGAIN if is_second(prompt) else GUESS)
    made = sampled(make_recipe(tmp_path, overrides=RECURSION), policy, 4)
    assert [attempt.round for attempt in made.batch] == [0, 0, 1, 1]
    assert made.earned == [0.625, 0.625, 1.0, 1.0]


def test_the_same_plan_is_worth_what_it_continues_from(tmp_path: Path) -> None:
    def say(prompt: str, where: int) -> str:
        return ACCEPT if is_second(prompt) else (GUESS, AGAIN)[where % 2]

    made = sampled(make_recipe(tmp_path, overrides=RECURSION), Saying(say), 4)
    assert [attempt.text for attempt in made.batch[2:]] == [ACCEPT, ACCEPT]
    assert made.earned == [0.5, 1.0, 0.5, 1.0]


def test_a_plan_that_is_graded_itself_has_a_second_round_too(tmp_path: Path) -> None:
    graded = Task(id="p", question="Hello", grader=is_42, plan_grader=lambda plan: len(plan) == 1)
    exercise = Exercise(graded, PlanningContext(question=graded.question, pool=POOL))
    policy = Saying(
        lambda prompt, where: ACCEPT if is_second(prompt) else (GUESS, AGAIN)[where % 2]
    )
    calls = len(SOLVER.asked)
    made = sampled(make_recipe(tmp_path, overrides=RECURSION), policy, 4, exercise)
    assert [attempt.round for attempt in made.batch] == [0, 0, 1, 1]
    assert made.earned == [1.0] * 4
    assert len(SOLVER.asked) == calls + 2
    first_time = sampled(make_recipe(tmp_path, overrides=RECURSION[1:]), policy, 4, exercise)
    assert [attempt.round for attempt in first_time.batch] == [0] * 4
    assert len(SOLVER.asked) == calls + 2, "nothing follows, so nothing is carried out"


def test_malformed_plans_are_sampled_again(tmp_path: Path) -> None:
    policy = Saying(lambda prompt, where: ACCEPT if is_second(prompt) else (GUESS, "?")[where % 2])
    made = sampled(make_recipe(tmp_path, overrides=RECURSION), policy, 4)
    assert [attempt.round for attempt in made.batch] == [0, 0, 1, 0]
    assert made.earned == [0.5, 0.0, 0.5, 0.0]


def test_a_second_round_with_too_long_a_prompt_becomes_a_first_one(tmp_path: Path) -> None:
    policy = Saying(lambda prompt, where: AGAIN if is_second(prompt) else GUESS)
    recipe = make_recipe(tmp_path, overrides=[*RECURSION, "grpo.max_prompt_tokens=80"])
    made = sampled(recipe, policy, 4)
    assert [attempt.round for attempt in made.batch] == [0, 0, 0, 0]
    assert made.too_long == 2
    assert not any(map(is_second, policy.asked))


def test_an_exercise_that_begins_in_its_last_round_does_not_go_on(tmp_path: Path) -> None:
    policy = Saying(lambda prompt, where: AGAIN if is_second(prompt) else GUESS)
    recipe = make_recipe(tmp_path, overrides=RECURSION)
    (first, *_) = sampled(recipe, policy, 4).batch
    rounds = first.score.run.rounds
    begun = Exercise(TASK, PlanningContext(question=TASK.question, pool=POOL, rounds=rounds))
    attempt = rollouts.SampledPlan(begun, [], [], AGAIN, True, first.score)
    made = rollouts.Rollouts(recipe, policy, score.Scorer([SOLVER]))
    assert made._next_exercise(attempt) is begun


def test_prompts_that_are_too_long_are_counted(tmp_path: Path) -> None:
    policy = Saying(lambda prompt, where: GUESS)
    scorer = score.Scorer([SOLVER])
    made = rollouts.Rollouts(make_recipe(tmp_path), policy, scorer)
    length = len(made.prompt_tokens(EXERCISE))
    for longest, fits in ((length, True), (length - 1, False)):
        recipe = make_recipe(tmp_path, overrides=[f"grpo.max_prompt_tokens={longest}"])
        asking = rollouts.Rollouts(recipe, policy, scorer)
        assert asking.fits(EXERCISE) is fits
        assert asking.too_long == (not fits)


# ---- what a rollout is compared with


def trl_advantages(rewards: Sequence[float], scale: str) -> Any:
    """As TRL has them for the rollouts of one question, scaled within it or not at all."""
    numbers = torch.tensor(rewards, dtype=torch.float64)
    spread = 1.0 if scale == "none" else numbers.std() + 1e-4
    return (numbers - numbers.mean()) / spread


@pytest.mark.parametrize("scale", ["group", "none"])
def test_each_round_is_compared_as_if_it_had_been_sampled_alone(scale: str) -> None:
    first, second = [0.5, 1.0, 0.5], [0.0, 1.0]
    found = rollouts.advantages(
        [0.5, 0.0, 1.0, 1.0, 0.5], ["a", "b", "a", "b", "a"], [0, 1, 0, 1, 0], scale
    )
    torch.testing.assert_close(
        torch.tensor([found[0], found[2], found[4]], dtype=torch.float64),
        trl_advantages(first, scale),
    )
    torch.testing.assert_close(
        torch.tensor([found[1], found[3]], dtype=torch.float64), trl_advantages(second, scale)
    )


def test_the_trainer_finds_nothing_left_to_take_off(tmp_path: Path) -> None:
    """It takes the mean of the question off once more, which is 0 by then."""
    rewards = [0.5, None, 1.0, 0.625, 1.0, 1.0, None, 0.5]
    found = rollouts.advantages(rewards, [0, 0, 0, 0, 1, 1, 1, 1], [0] * 4 + [1] * 4, "group")
    assert [value is None for value in found] == [reward is None for reward in rewards]
    assert sum(value for value in found if value is not None) == pytest.approx(0.0, abs=1e-12)


def test_over_a_batch_rounds_have_a_deviation_of_their_own() -> None:
    groups = [("q", 0), ("q", 0), ("p", 0), ("p", 0), ("q", 1), ("q", 1)]
    found = rollouts.advantages([0, 1, 0, 0, 0, 10], groups, [0, 0, 0, 0, 1, 1], "batch")
    assert found == pytest.approx([-0.9998, 0.9998, 0, 0, -0.70710, 0.70710], abs=1e-3)


def test_alone_in_its_round_a_rollout_teaches_nothing() -> None:
    assert rollouts.advantages([1.0, 0.0, 0.5], [0, 1, 1], [0, 1, 1], "group")[0] == 0.0


def test_rounds_are_compared_apart_only_where_the_recipe_says_so(tmp_path: Path) -> None:
    def say(prompt: str, where: int) -> str:
        if is_second(prompt):
            return (AGAIN, ACCEPT)[where % 2]
        return GUESS

    together = make_recipe(tmp_path, overrides=RECURSION)
    apart = make_recipe(tmp_path, overrides=[*RECURSION, "recursion.normalise_per_round=true"])
    assert sampled(together, Saying(say), 4).earned == [0.625, 0.5, 1.0, 0.5]
    earned = sampled(apart, Saying(say), 4).earned
    assert earned == pytest.approx([0.707, -0.707, 0.707, -0.707], abs=2e-3)
    assert grpo_arguments.grpo_config(together).scale_rewards == "group"
    assert grpo_arguments.grpo_config(apart).scale_rewards == "none"
