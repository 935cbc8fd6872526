"""Rollouts: plans sampled for a batch of exercises, carried out and scored, round after round.

The trainer asks twice about one batch, first for completions and then for their rewards; a
rollout that goes on with a second round needs the reward in between. So scores are kept until
the batch is over, and nothing is carried out twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from podium.conductor.prompt import Prompt
from podium.local.decoding import Sampling
from podium.train.diagnostics import Rollout
from podium.train.exercises import Exercise
from podium.train.policy import Policy
from podium.train.recipe import Recipe
from podium.train.rewards import combine_rounds
from podium.train.score import Score, Scorer


@dataclass(slots=True)
class Attempt:
    """One plan for one exercise: what was asked, what was written, and what it came to."""

    number: int
    exercise: Exercise
    prompt: list[int]
    tokens: list[int]
    text: str
    ended: bool
    score: Score | None = None
    later: Attempt | None = None

    @property
    def is_later(self) -> bool:
        """Whether it is a second round."""
        return bool(self.exercise.situation.rounds)


class Rollouts:
    """Samples plans and scores them."""

    def __init__(
        self, recipe: Recipe, policy: Policy, scorer: Scorer, exercises: Sequence[Exercise]
    ) -> None:
        assert recipe.grpo is not None
        self._recipe = recipe
        self._grpo = recipe.grpo
        self._policy = policy
        self._scorer = scorer
        self._exercises = exercises
        self._prompt = Prompt(
            length=recipe.prompt.length, form="lists", few_shot=recipe.prompt.few_shot
        )
        self.batch: list[Attempt] = []

    def sample(self, numbers: Sequence[int], loop: asyncio.AbstractEventLoop) -> list[Attempt]:
        """Plans for the exercises of these numbers, one for each time a number is named; those
        of one exercise stand together. Where the recipe has recursion, the last of each are
        second rounds of the first."""
        groups = _grouped(numbers)
        size = len(numbers) // len(groups)
        second = round(size * self._recipe.recursion.share) if self._recipe.recursion else 0
        first = self._first_rounds(groups, size - second)
        if not second:
            self.batch = [attempt for group in first for attempt in group]
            return self.batch
        begun = [attempt for group in first for attempt in group]
        asyncio.run_coroutine_threadsafe(self._score_all(begun), loop).result()
        self.batch = []
        for group, goes_on in zip(first, self._second_rounds(first, second), strict=True):
            self.batch += [*group, *goes_on]
        return self.batch

    async def rewards(self) -> list[float | None]:
        """What the attempts of the current batch earned."""
        await self._score_all(self.batch)
        return [self._reward(attempt) for attempt in self.batch]

    def rollouts(self) -> list[Rollout]:
        """The current batch, for diagnostics."""
        return _as_rollouts(self.batch)

    async def measure(self, exercises: Sequence[Exercise], temperature: float) -> list[Rollout]:
        """One plan for each exercise, scored; nothing of the current batch is touched."""
        prompts = [self._asked(exercise) for exercise in exercises]
        sampling = Sampling(self._grpo.max_completion_tokens, temperature)
        completions = await asyncio.to_thread(self._policy.sample, prompts, sampling)
        attempts = [
            self._attempt(number, exercise, prompt, completion)
            for number, (exercise, prompt, completion) in enumerate(
                zip(exercises, prompts, completions, strict=True)
            )
        ]
        await self._score_all(attempts)
        return _as_rollouts(attempts)

    def _first_rounds(self, groups: Sequence[int], copies: int) -> list[list[Attempt]]:
        exercises = [self._exercises[number] for number in groups]
        prompts = [self._asked(exercise) for exercise in exercises]
        completions = self._policy.sample(prompts, self._sampling, copies)
        return [
            [
                self._attempt(number, exercise, prompt, completion)
                for completion in completions[place * copies : (place + 1) * copies]
            ]
            for place, (number, exercise, prompt) in enumerate(
                zip(groups, exercises, prompts, strict=True)
            )
        ]

    def _second_rounds(self, first: Sequence[Sequence[Attempt]], count: int) -> list[list[Attempt]]:
        """For each group as many attempts that go on from its first ones; one whose plan was no
        plan has nothing to go on from, and is tried again from the beginning."""
        begun = [attempt for group in first for attempt in group[:count]]
        exercises = [_going_on(attempt) for attempt in begun]
        prompts = [self._asked(exercise) for exercise in exercises]
        completions = self._policy.sample(prompts, self._sampling)
        later = [
            self._attempt(attempt.number, exercise, prompt, completion)
            for attempt, exercise, prompt, completion in zip(
                begun, exercises, prompts, completions, strict=True
            )
        ]
        for attempt, next_one in zip(begun, later, strict=True):
            attempt.later = next_one if next_one.is_later else None
        return [later[place : place + count] for place in range(0, len(later), count)]

    @property
    def _sampling(self) -> Sampling:
        grpo = self._grpo
        return Sampling(grpo.max_completion_tokens, grpo.temperature, grpo.top_p, grpo.top_k)

    def _asked(self, exercise: Exercise) -> list[int]:
        situation = exercise.situation
        messages = [
            {"role": message.role, "content": message.text}
            for message in self._prompt.messages(situation)
        ]
        return self._policy.encode(messages, self._opener(exercise))

    def _opener(self, exercise: Exercise) -> str:
        if self._recipe.prompt.length == "full":
            return self._prompt.opener(exercise.situation)
        return ""

    def _attempt(
        self, number: int, exercise: Exercise, prompt: list[int], completion: Any
    ) -> Attempt:
        text = self._opener(exercise) + self._policy.decode(completion.tokens)
        return Attempt(number, exercise, prompt, list(completion.tokens), text, completion.ended)

    async def _score_all(self, attempts: Sequence[Attempt]) -> None:
        """Score those that are not scored yet; the same plan for the same exercise only once."""
        waiting = [attempt for attempt in attempts if attempt.score is None]
        different = {
            (attempt.number, attempt.is_later and id(attempt), attempt.text, attempt.ended): attempt
            for attempt in waiting
        }
        scores = dict(
            zip(
                different,
                await asyncio.gather(*(self._score(attempt) for attempt in different.values())),
                strict=True,
            )
        )
        for attempt in waiting:
            key = (attempt.number, attempt.is_later and id(attempt), attempt.text, attempt.ended)
            attempt.score = scores[key]

    async def _score(self, attempt: Attempt) -> Score:
        task, situation = attempt.exercise
        return await self._scorer.score(
            attempt.text,
            task,
            situation.pool,
            rounds=situation.rounds,
            ended=attempt.ended,
            completion_tokens=len(attempt.tokens),
        )

    def _reward(self, attempt: Attempt) -> float | None:
        assert attempt.score is not None
        earned = attempt.score.reward
        if attempt.later is None or self._recipe.recursion is None:
            return earned
        assert attempt.later.score is not None
        return combine_rounds(earned, attempt.later.score.reward, self._recipe.recursion.discount)


def _as_rollouts(attempts: Sequence[Attempt]) -> list[Rollout]:
    return [
        Rollout(
            attempt.number,
            attempt.score,
            len(attempt.tokens),
            attempt.exercise.situation.pool,
            attempt.exercise.task.kind,
        )
        for attempt in attempts
        if attempt.score is not None
    ]


def _going_on(attempt: Attempt) -> Exercise:
    """The exercise of the next round; the same once more where there was no plan."""
    score = attempt.score
    if score is None or score.run is None:
        return attempt.exercise
    task, situation = attempt.exercise
    return Exercise(task, replace(situation, rounds=score.run.rounds))


def _grouped(numbers: Sequence[int]) -> list[int]:
    """Each number once, in order."""
    return list(dict.fromkeys(numbers))
