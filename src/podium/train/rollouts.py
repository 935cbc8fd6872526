"""Rollouts: plans sampled for a batch of exercises, carried out and scored, round after round.

The trainer asks twice about one batch, first for completions and then for their rewards; a
rollout that goes on with a second round needs the reward in between. So scores are kept until
the batch is over, and nothing is carried out twice.

Of the rollouts of one question some may be second rounds, each of which goes on from a first one.
Where no plan for a question was right, some may make room for plans that nobody wrote
(`podium.train.exploration`): these are taught like the others, and never diagnosed.

The trainer compares all rollouts of a question with each other. Where the recipe wants each round
compared with its like (`recursion.normalise_per_round`), `advantages` does so here, and the
trainer is told to leave the numbers as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, stdev
from typing import Any, Final

from podium.conductors import plan
from podium.core.pool import Pool
from podium.core.workflow import Workflow
from podium.train.ablations import recipe_prompt
from podium.train.diagnostics import Rollout
from podium.train.exercises import Exercise
from podium.train.policy import Policy
from podium.train.recipe import Recipe
from podium.train.rewards import combine_rounds
from podium.train.schema import Scale
from podium.train.score import PlanScorer, Score
from podium.workers.local.decoding import Sampling


def variations(
    workflow: Workflow, pool: Pool, count: int, rng: Random, *, is_later: bool = False
) -> list[Workflow]:
    """So many different ones, or as many as there are; `is_later` says that a round lies behind,
    which a step may read."""
    changes = [
        (place, replace(step, worker=name))
        for place, step in enumerate(workflow.steps)
        for name in pool.names
        if name != step.worker
    ]
    if is_later:
        changes += [
            (place, replace(step, access="all"))
            for place, step in enumerate(workflow.steps)
            if step.access != "all"
        ]
    return [
        Workflow((*workflow.steps[:place], changed, *workflow.steps[place + 1 :]))
        for place, changed in rng.sample(changes, min(count, len(changes)))
    ]


LEAST_DEVIATION: Final = 1e-4
"""Added to what advantages are divided by, as TRL does."""


@dataclass(slots=True)
class SampledPlan:
    """One plan for one exercise: what was asked, what was written, and what it came to."""

    number: int
    exercise: Exercise
    prompt: list[int]
    tokens: list[int]
    text: str
    ended: bool
    score: Score | None = None
    later: SampledPlan | None = None
    is_followed: bool = False
    is_explored: bool = False

    @property
    def round(self) -> int:
        """Which round it plans; 0 is the first."""
        return len(self.exercise.context.rounds)


class PlanPrompts:
    """How the policy is asked for a plan: the recipe's prompt, in the policy's tokens."""

    def __init__(self, recipe: Recipe, policy: Policy) -> None:
        assert recipe.grpo is not None
        self._policy = policy
        self._prompt = recipe_prompt(recipe)
        self._longest = recipe.grpo.max_prompt_tokens
        self.left_out = 0

    def tokens(self, exercise: Exercise) -> list[int]:
        """All that the policy reads before it writes."""
        messages = [
            {"role": message.role, "content": message.text}
            for message in self._prompt.messages(exercise.context)
        ]
        return self._policy.encode(messages, self.opener(exercise))

    def opener(self, exercise: Exercise) -> str:
        """What is written of the reply before the policy goes on with it."""
        return self._prompt.opener(exercise.context) if self._prompt.length == "full" else ""

    def written(self, workflow: Workflow, pool: Pool) -> str:
        """The plan as the policy would write it."""
        return plan.write(workflow, pool, order=self._prompt.order)

    def fits(self, exercise: Exercise) -> bool:
        """Whether the prompt is no longer than the recipe allows; those that are longer are
        counted, and never cut short."""
        if len(self.tokens(exercise)) <= self._longest:
            return True
        self.left_out += 1
        return False


class Rollouts:
    """Samples plans and scores them. `seconds_at_work` is for how long so far plans were carried
    out while others waited to be sampled."""

    def __init__(
        self, recipe: Recipe, policy: Policy, scorer: PlanScorer, exercises: Sequence[Exercise]
    ) -> None:
        assert recipe.grpo is not None
        self._recipe = recipe
        self._grpo = recipe.grpo
        self._policy = policy
        self._scorer = scorer
        self._exercises = exercises
        self._asking = PlanPrompts(recipe, policy)
        self._counts_tokens = bool(recipe.reward.reward().per_completion_token)
        self.seconds_at_work = 0.0
        self.drawn: list[SampledPlan] = []
        self.batch: list[SampledPlan] = []

    def sample(self, numbers: Sequence[int], loop: asyncio.AbstractEventLoop) -> list[SampledPlan]:
        """Plans for the exercises of these numbers, one for each time a number is named; those
        of one exercise stand together. Where the recipe has recursion, the last of each are
        second rounds of the first."""
        groups = _grouped(numbers)
        size = len(numbers) // len(groups)
        second = self._recipe.recursion.later(size) if self._recipe.recursion else 0
        first = self._first_rounds(groups, size - second)
        for group in first:
            for attempt in group[:second]:
                attempt.is_followed = True
        if second or self._grpo.explore:
            self._score_now(first, loop)
        later = self._second_rounds(first, second) if second else [[]] * len(first)
        if self._grpo.explore:
            self._score_now(later, loop)
        tried = [self._tried(*groups) for groups in zip(first, later, strict=True)]
        self._score_now(tried, loop)
        self.drawn, self.batch = [], []
        for group, others, goes_on in zip(first, tried, later, strict=True):
            self.drawn += [*group, *goes_on]
            self.batch += [*self._explored(group, others), *goes_on]
        return self.batch

    @property
    def too_long(self) -> int:
        """How many second rounds there were not, because their prompts would be too long."""
        return self._asking.left_out

    async def rewards(self) -> list[float | None]:
        """What the trainer is to learn from the attempts of the current batch: what each earned,
        or where rounds are normalised apart, how much more than its like."""
        await self._score_all(self.batch)
        earned = [self._reward(attempt) for attempt in self.batch]
        recursion = self._recipe.recursion
        if recursion is None or not recursion.normalise_per_round:
            return earned
        return advantages(
            earned,
            [(attempt.number, attempt.round) for attempt in self.batch],
            [attempt.round for attempt in self.batch],
            self._grpo.scale_rewards,
        )

    def rollouts(self) -> list[Rollout]:
        """What the policy wrote for the current batch, for diagnostics."""
        return _as_rollouts(self.drawn)

    @property
    def found(self) -> int:
        """For how many questions of the current batch only a plan that nobody wrote was right."""
        return len(
            {
                attempt.number
                for attempt in self.batch
                if attempt.is_explored and attempt.score is not None and attempt.score.right
            }
        )

    async def measure(self, exercises: Sequence[Exercise], temperature: float) -> list[Rollout]:
        """One plan for each exercise, scored; nothing of the current batch is touched. There may
        be none at all, where many processes share few."""
        if not exercises:
            return []
        prompts = [self._asking.tokens(exercise) for exercise in exercises]
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

    def _first_rounds(self, groups: Sequence[int], copies: int) -> list[list[SampledPlan]]:
        exercises = [self._exercises[number] for number in groups]
        prompts = [self._asking.tokens(exercise) for exercise in exercises]
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

    def _second_rounds(
        self, first: Sequence[Sequence[SampledPlan]], count: int
    ) -> list[list[SampledPlan]]:
        """For each group as many attempts that go on from its first ones. One whose plan was no
        plan has nothing to go on from, and one may have had its rounds, or have come to so much
        that its prompt would be too long: these are tried again from the beginning."""
        begun = [attempt for group in first for attempt in group[:count]]
        exercises = [self._going_on(attempt) for attempt in begun]
        prompts = [self._asking.tokens(exercise) for exercise in exercises]
        completions = self._policy.sample(prompts, self._sampling)
        later = [
            self._attempt(attempt.number, exercise, prompt, completion)
            for attempt, exercise, prompt, completion in zip(
                begun, exercises, prompts, completions, strict=True
            )
        ]
        for attempt, next_one in zip(begun, later, strict=True):
            attempt.later = next_one if next_one.round > attempt.round else None
        return [later[place : place + count] for place in range(0, len(later), count)]

    def _tried(
        self, group: Sequence[SampledPlan], others: Sequence[SampledPlan]
    ) -> list[SampledPlan]:
        """Variations of the best of a group, where none is right of it or of the others in the
        same round; one whose workers failed says nothing about its plan. Where the best is no
        plan, because it accepts an answer or is malformed, the plan behind that is varied."""
        round_ = group[0].round
        drawn = [*group, *(attempt for attempt in others if attempt.round == round_)]
        if not self._grpo.explore or not all(map(_is_wrong, drawn)):
            return []
        best = max(group, key=_earned)
        assert best.score is not None
        rounds = best.exercise.context.rounds
        workflow = best.score.workflow or (rounds[-1].workflow if rounds else None)
        if workflow is None:
            return []
        rng = Random(f"{self._recipe.run.seed}/explored/{best.number}")  # noqa: S311 - repeatable
        pool = best.exercise.context.pool
        count = self._grpo.explore_tries or self._grpo.explore
        return [
            self._instead(best, self._asking.written(one, pool))
            for one in variations(workflow, pool, count, rng, is_later=bool(rounds))
        ]

    def _explored(
        self, group: Sequence[SampledPlan], tried: Sequence[SampledPlan]
    ) -> list[SampledPlan]:
        """The group, the last of which make room for those that earned most of what was tried.
        Nothing follows these, so that all of the group are compared by their own round alone."""
        if not tried:
            return list(group)
        for attempt in group:
            attempt.later = None
        best = max(group, key=_earned)
        others = [attempt for attempt in group if attempt is not best]
        made = sorted(tried, key=_earned, reverse=True)[: self._grpo.explore]
        return [best, *others[: len(group) - 1 - len(made)], *made]

    def _instead(self, attempt: SampledPlan, text: str) -> SampledPlan:
        tokens = self._policy.tokens_of(text)
        return SampledPlan(
            attempt.number,
            attempt.exercise,
            attempt.prompt,
            tokens,
            text,
            ended=True,
            is_explored=True,
        )

    @property
    def _sampling(self) -> Sampling:
        grpo = self._grpo
        return Sampling(grpo.max_completion_tokens, grpo.temperature, grpo.top_p, grpo.top_k)

    def _going_on(self, attempt: SampledPlan) -> Exercise:
        """The exercise of the next round; the same once more where there cannot be one."""
        recursion, score = self._recipe.recursion, attempt.score
        task, context = attempt.exercise
        if recursion is None or score is None or score.run is None:
            return attempt.exercise
        if attempt.round + 1 >= recursion.rounds:
            return attempt.exercise
        later = Exercise(task, replace(context, rounds=score.run.rounds))
        return later if self._asking.fits(later) else attempt.exercise

    def _attempt(
        self, number: int, exercise: Exercise, prompt: list[int], completion: Any
    ) -> SampledPlan:
        text = self._asking.opener(exercise) + self._policy.decode(completion.tokens)
        return SampledPlan(
            number, exercise, prompt, list(completion.tokens), text, completion.ended
        )

    def _score_now(
        self, groups: Sequence[Sequence[SampledPlan]], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Have all of them scored in that loop, from another thread, and wait for it."""
        began = time.monotonic()
        attempts = [attempt for group in groups for attempt in group]
        if attempts:
            asyncio.run_coroutine_threadsafe(self._score_all(attempts), loop).result()
        self.seconds_at_work += time.monotonic() - began

    async def _score_all(self, attempts: Sequence[SampledPlan]) -> None:
        """Score those that are not scored yet; the same plan for the same exercise only once."""
        waiting = [attempt for attempt in attempts if attempt.score is None]
        followed_last = sorted(waiting, key=lambda attempt: attempt.is_followed)
        different = {self._plan_for(attempt): attempt for attempt in followed_last}
        scores = dict(
            zip(
                different,
                await asyncio.gather(*(self._score(attempt) for attempt in different.values())),
                strict=True,
            )
        )
        for attempt in waiting:
            attempt.score = scores[self._plan_for(attempt)]

    def _plan_for(self, attempt: SampledPlan) -> Hashable:
        """The same for attempts that come to the same: of one plan, for one exercise, and as long
        where length costs. Attempts that were sampled for a question share their exercise, and each
        that goes on has one of its own."""
        tokens = len(attempt.tokens) if self._counts_tokens else 0
        return (attempt.number, id(attempt.exercise), attempt.text, attempt.ended, tokens)

    async def _score(self, attempt: SampledPlan) -> Score:
        task, context = attempt.exercise
        return await self._scorer.score(
            attempt.text,
            task,
            context.pool,
            rounds=context.rounds,
            ended=attempt.ended,
            completion_tokens=len(attempt.tokens),
            is_followed=attempt.is_followed,
        )

    def _reward(self, attempt: SampledPlan) -> float | None:
        assert attempt.score is not None
        earned = attempt.score.reward
        if attempt.later is None or self._recipe.recursion is None:
            return earned
        assert attempt.later.score is not None
        return combine_rounds(earned, attempt.later.score.reward, self._recipe.recursion.discount)


def _is_wrong(attempt: SampledPlan) -> bool:
    return attempt.score is not None and not (attempt.score.right or attempt.score.dropped)


def _earned(attempt: SampledPlan) -> float:
    return 0.0 if attempt.score is None else attempt.score.reward or 0.0


def _as_rollouts(attempts: Sequence[SampledPlan]) -> list[Rollout]:
    return [
        Rollout(
            attempt.number,
            attempt.score,
            len(attempt.tokens),
            attempt.exercise.context.pool,
            attempt.exercise.task.kind,
        )
        for attempt in attempts
        if attempt.score is not None
    ]


def _grouped(numbers: Sequence[int]) -> list[int]:
    """Each number once, in order."""
    return list(dict.fromkeys(numbers))


def advantages(
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    rounds: Sequence[Hashable],
    scale: Scale,
) -> list[float | None]:
    """How much more each earned than the mean of its group, divided by the deviation within its
    group, or within its round of the whole batch, or by nothing. None stays None."""
    means = {group: fmean(values) for group, values in _by(groups, rewards).items()}
    alike = groups if scale == "group" else rounds
    deviations = {
        key: stdev(values) if len(values) > 1 else 0.0
        for key, values in _by(alike, rewards).items()
    }
    return [
        None
        if reward is None
        else (reward - means[group])
        / (1.0 if scale == "none" else deviations[key] + LEAST_DEVIATION)
        for reward, group, key in zip(rewards, groups, alike, strict=True)
    ]


def _by(keys: Sequence[Hashable], rewards: Sequence[float | None]) -> dict[Hashable, list[float]]:
    """The rewards that there are, by key."""
    found: dict[Hashable, list[float]] = {}
    for key, reward in zip(keys, rewards, strict=True):
        if reward is not None:
            found.setdefault(key, []).append(reward)
    return found
