"""Rollouts: plans sampled for a batch of exercises, executed, graded and rewarded.

    batch = rollouts.sample([0, 0, 1, 1], loop)     # two plans for each of two exercises
    rewards = await rollouts.reward(batch)

With `[recursion]` some plans of a question are second rounds. With `grpo.explore`, where no plan
of a question was right, variations of the best one replace some: the policy learns from these, and
diagnostics leave them out. With `recursion.normalise_per_round` rewards are already advantages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, stdev
from typing import Final

from podium.conductors import plan
from podium.core.pool import Pool
from podium.core.workflow import Workflow
from podium.train.diagnostics import Rollout
from podium.train.exercises import Exercise, recipe_prompt
from podium.train.policy import Policy
from podium.train.recipe import Recipe
from podium.train.rewards import combine_rounds
from podium.train.schema import Scale
from podium.train.score import PlanScorer, Score
from podium.workers.local.decoding import Completion, Sampling

LEAST_DEVIATION: Final = 1e-4
"""Added to the divisor of advantages, as TRL does."""


@dataclass(slots=True)
class SampledPlan:
    """One plan for one exercise: its prompt, its completion and its score.

    `later` is the second round that went on from it; `is_followed` says that one may.
    """

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
        """The index of the round that it plans."""
        return len(self.exercise.context.rounds)

    @property
    def reward(self) -> float:
        """The reward of this plan alone; 0 if it was dropped or is not scored."""
        return 0.0 if self.score is None else self.score.reward or 0.0

    @property
    def is_wrong(self) -> bool:
        """True if it was scored, not dropped, and its answer was wrong."""
        return self.score is not None and not (self.score.right or self.score.dropped)


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """The plans of one batch: `plans` train the policy, `sampled` are all that it wrote."""

    plans: list[SampledPlan]
    sampled: list[SampledPlan]

    def rollouts(self) -> list[Rollout]:
        """Return what the policy wrote, for diagnostics."""
        return _as_rollouts(self.sampled)

    @property
    def found(self) -> int:
        """The number of questions for which only a variation was right."""
        return len(
            {one.number for one in self.plans if one.is_explored and one.score and one.score.right}
        )


class PlanPrompts:
    """The recipe's prompt in the policy's tokens. `left_out` counts exercises that do not fit."""

    def __init__(self, recipe: Recipe, policy: Policy) -> None:
        assert recipe.grpo is not None
        self._policy = policy
        self._prompt = recipe_prompt(recipe)
        self._longest = recipe.grpo.max_prompt_tokens
        self.left_out = 0

    def tokens(self, exercise: Exercise) -> list[int]:
        """Return everything that the policy reads before it writes."""
        messages = [
            {"role": message.role, "content": message.text}
            for message in self._prompt.messages(exercise.context)
        ]
        return self._policy.encode(messages, self.opener(exercise))

    def opener(self, exercise: Exercise) -> str:
        """Return the beginning of the reply that is given to the policy."""
        return self._prompt.opener(exercise.context) if self._prompt.length == "full" else ""

    def render_plan(self, workflow: Workflow, pool: Pool) -> str:
        """Return the plan as the policy would write it."""
        return plan.write(workflow, pool, order=self._prompt.order)

    def fits(self, exercise: Exercise) -> bool:
        """Return whether the prompt is within `grpo.max_prompt_tokens`; prompts are never cut."""
        if len(self.tokens(exercise)) <= self._longest:
            return True
        self.left_out += 1
        return False


class Rollouts:
    """Samples plans and rewards them. `seconds_at_work` is the time that scoring took so far."""

    def __init__(
        self, recipe: Recipe, policy: Policy, scorer: PlanScorer, exercises: Sequence[Exercise]
    ) -> None:
        assert recipe.grpo is not None
        self._recipe = recipe
        self._grpo = recipe.grpo
        self._policy = policy
        self._scorer = scorer
        self._exercises = exercises
        self._prompts = PlanPrompts(recipe, policy)
        self._counts_tokens = bool(recipe.reward.reward().per_completion_token)
        self._sampling = Sampling(
            self._grpo.max_completion_tokens,
            self._grpo.temperature,
            self._grpo.top_p,
            self._grpo.top_k,
        )
        self.seconds_at_work = 0.0

    @property
    def too_long(self) -> int:
        """The number of second rounds skipped because their prompts would be too long."""
        return self._prompts.left_out

    # ---- one batch: sample, execute and grade, reward

    def sample(self, numbers: Sequence[int], loop: asyncio.AbstractEventLoop) -> RolloutBatch:
        """Sample a plan for each number of an exercise; equal numbers stand together.

        Plans that second rounds or variations depend on are scored on `loop`, which must run in
        another thread.
        """
        groups = list(dict.fromkeys(numbers))
        size = len(numbers) // len(groups)
        second = self._recipe.recursion.later(size) if self._recipe.recursion else 0
        first = self._sample_first_rounds(groups, size - second, followed=second)
        later: list[list[SampledPlan]] = [[] for _ in first]
        if second or self._grpo.explore:
            self._score_in(loop, first)
        if second:
            later = self._sample_second_rounds(first, second)
        plans = first
        if self._grpo.explore:
            self._score_in(loop, later)
            varied = [self._vary(*pair) for pair in zip(first, later, strict=True)]
            self._score_in(loop, varied)
            plans = [self._explore(*pair) for pair in zip(first, varied, strict=True)]
        return RolloutBatch(plans=_join(plans, later), sampled=_join(first, later))

    async def reward(self, batch: RolloutBatch) -> list[float | None]:
        """Score the batch's plans and return their rewards; None drops a plan.

        With `recursion.normalise_per_round` these are advantages.
        """
        began = time.monotonic()
        await self._score_all(batch.plans)
        self.seconds_at_work += time.monotonic() - began
        rewards = [self._reward(one) for one in batch.plans]
        recursion = self._recipe.recursion
        if recursion is None or not recursion.normalise_per_round:
            return rewards
        return advantages(
            rewards,
            [(one.number, one.round) for one in batch.plans],
            [one.round for one in batch.plans],
            self._grpo.scale_rewards,
        )

    async def measure(self, exercises: Sequence[Exercise], temperature: float) -> list[Rollout]:
        """Sample and score one plan for each exercise; there may be none."""
        if not exercises:
            return []
        prompts = [self._prompts.tokens(exercise) for exercise in exercises]
        sampling = Sampling(self._grpo.max_completion_tokens, temperature)
        completions = await asyncio.to_thread(self._policy.sample, prompts, sampling)
        plans = [
            self._read(number, exercise, prompt, completion)
            for number, (exercise, prompt, completion) in enumerate(
                zip(exercises, prompts, completions, strict=True)
            )
        ]
        await self._score_all(plans)
        return _as_rollouts(plans)

    # ---- sampling

    def _sample_first_rounds(
        self, groups: Sequence[int], copies: int, *, followed: int
    ) -> list[list[SampledPlan]]:
        exercises = [self._exercises[number] for number in groups]
        prompts = [self._prompts.tokens(exercise) for exercise in exercises]
        completions = iter(self._policy.sample(prompts, self._sampling, copies))
        plans = [
            [self._read(number, exercise, prompt, next(completions)) for _ in range(copies)]
            for number, exercise, prompt in zip(groups, exercises, prompts, strict=True)
        ]
        for group in plans:
            for one in group[:followed]:
                one.is_followed = True
        return plans

    def _sample_second_rounds(
        self, first: Sequence[Sequence[SampledPlan]], count: int
    ) -> list[list[SampledPlan]]:
        """Go on from the first `count` plans of each group.

        A plan that cannot be followed is tried again from the beginning instead.
        """
        begun = [one for group in first for one in group[:count]]
        exercises = [self._next_exercise(one) for one in begun]
        prompts = [self._prompts.tokens(exercise) for exercise in exercises]
        completions = self._policy.sample(prompts, self._sampling)
        later = []
        for one, exercise, prompt, completion in zip(
            begun, exercises, prompts, completions, strict=True
        ):
            follower = self._read(one.number, exercise, prompt, completion)
            one.later = follower if follower.round > one.round else None
            later.append(follower)
        return [later[at : at + count] for at in range(0, len(later), count)]

    def _next_exercise(self, one: SampledPlan) -> Exercise:
        """Return the exercise of the next round, or the same one where none can follow.

        None can after a malformed plan, after the last round, or if the prompt would be too long.
        """
        recursion, score = self._recipe.recursion, one.score
        task, context = one.exercise
        if recursion is None or score is None or score.run is None:
            return one.exercise
        if one.round + 1 >= recursion.rounds:
            return one.exercise
        later = Exercise(task, replace(context, rounds=score.run.rounds))
        return later if self._prompts.fits(later) else one.exercise

    def _read(
        self, number: int, exercise: Exercise, prompt: list[int], completion: Completion
    ) -> SampledPlan:
        text = self._prompts.opener(exercise) + self._policy.decode(completion.tokens)
        return SampledPlan(
            number, exercise, prompt, list(completion.tokens), text, completion.ended
        )

    # ---- exploring

    def _vary(
        self, group: Sequence[SampledPlan], others: Sequence[SampledPlan]
    ) -> list[SampledPlan]:
        """Vary the group's best plan if all plans of the question in this round were wrong.

        Where the best one is no plan (malformed, or an acceptance), the plan before it is varied.
        """
        if not all(one.is_wrong for one in (*group, *others) if one.round == group[0].round):
            return []
        best = max(group, key=lambda one: one.reward)
        assert best.score is not None
        rounds = best.exercise.context.rounds
        workflow = best.score.workflow or (rounds[-1].workflow if rounds else None)
        if workflow is None:
            return []
        rng = Random(f"{self._recipe.run.seed}/explored/{best.number}")  # noqa: S311 - repeatable
        pool = best.exercise.context.pool
        count = self._grpo.explore_tries or self._grpo.explore
        texts = [
            self._prompts.render_plan(one, pool)
            for one in variations(workflow, pool, count, rng, is_later=bool(rounds))
        ]
        return [
            replace(
                best,
                tokens=self._policy.tokens_of(text),
                text=text,
                ended=True,
                score=None,
                later=None,
                is_followed=False,
                is_explored=True,
            )
            for text in texts
        ]

    def _explore(
        self, group: Sequence[SampledPlan], varied: Sequence[SampledPlan]
    ) -> list[SampledPlan]:
        """Replace the last plans of the group by the variations with the highest rewards.

        Nothing follows a variation, so every plan of the group counts its own round alone.
        """
        if not varied:
            return list(group)
        for one in group:
            one.later = None
        best = max(group, key=lambda one: one.reward)
        others = [one for one in group if one is not best]
        made = sorted(varied, key=lambda one: one.reward, reverse=True)[: self._grpo.explore]
        return [best, *others[: len(group) - 1 - len(made)], *made]

    # ---- scoring

    def _score_in(
        self, loop: asyncio.AbstractEventLoop, groups: Sequence[Sequence[SampledPlan]]
    ) -> None:
        began = time.monotonic()
        plans = [one for group in groups for one in group]
        if plans:
            asyncio.run_coroutine_threadsafe(self._score_all(plans), loop).result()
        self.seconds_at_work += time.monotonic() - began

    async def _score_all(self, plans: Sequence[SampledPlan]) -> None:
        """Score plans that have no score; equal plans for one exercise are executed once."""
        waiting = [one for one in plans if one.score is None]
        followed_last = sorted(waiting, key=lambda one: one.is_followed)
        different = {self._identity(one): one for one in followed_last}
        found = await asyncio.gather(*(self._score(one) for one in different.values()))
        scores = dict(zip(different, found, strict=True))
        for one in waiting:
            one.score = scores[self._identity(one)]

    def _identity(self, one: SampledPlan) -> Hashable:
        tokens = len(one.tokens) if self._counts_tokens else 0
        return (one.number, id(one.exercise), one.text, one.ended, tokens)

    async def _score(self, one: SampledPlan) -> Score:
        task, context = one.exercise
        return await self._scorer.score(
            one.text,
            task,
            context.pool,
            rounds=context.rounds,
            ended=one.ended,
            completion_tokens=len(one.tokens),
            is_followed=one.is_followed,
        )

    def _reward(self, one: SampledPlan) -> float | None:
        assert one.score is not None
        if one.later is None or self._recipe.recursion is None:
            return one.score.reward
        assert one.later.score is not None
        return combine_rounds(
            one.score.reward, one.later.score.reward, self._recipe.recursion.discount
        )


def variations(
    workflow: Workflow, pool: Pool, count: int, rng: Random, *, is_later: bool = False
) -> list[Workflow]:
    """Return `count` workflows, or as many as there are, that differ in one step.

    The step has another worker or, in a later round, reads everything.
    """
    changes = [
        (position, replace(step, worker=name))
        for position, step in enumerate(workflow.steps)
        for name in pool.names
        if name != step.worker
    ]
    if is_later:
        changes += [
            (position, replace(step, access="all"))
            for position, step in enumerate(workflow.steps)
            if step.access != "all"
        ]
    return [
        Workflow((*workflow.steps[:position], changed, *workflow.steps[position + 1 :]))
        for position, changed in rng.sample(changes, min(count, len(changes)))
    ]


def advantages(
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    rounds: Sequence[Hashable],
    scale: Scale,
) -> list[float | None]:
    """Subtract the group's mean and divide by the deviation of the group, the round or nothing."""
    means = {group: fmean(values) for group, values in _by_key(groups, rewards).items()}
    alike = groups if scale == "group" else rounds
    deviations = {
        key: stdev(values) if len(values) > 1 else 0.0
        for key, values in _by_key(alike, rewards).items()
    }
    return [
        None
        if reward is None
        else (reward - means[group])
        / (1.0 if scale == "none" else deviations[key] + LEAST_DEVIATION)
        for reward, group, key in zip(rewards, groups, alike, strict=True)
    ]


def _by_key(
    keys: Sequence[Hashable], rewards: Sequence[float | None]
) -> dict[Hashable, list[float]]:
    found: dict[Hashable, list[float]] = {}
    for key, reward in zip(keys, rewards, strict=True):
        if reward is not None:
            found.setdefault(key, []).append(reward)
    return found


def _join(
    first: Sequence[Sequence[SampledPlan]], later: Sequence[Sequence[SampledPlan]]
) -> list[SampledPlan]:
    return [one for pair in zip(first, later, strict=True) for group in pair for one in group]


def _as_rollouts(plans: Sequence[SampledPlan]) -> list[Rollout]:
    return [
        Rollout(
            one.number,
            one.score,
            len(one.tokens),
            one.exercise.context.pool,
            one.exercise.task.kind,
        )
        for one in plans
        if one.score is not None
    ]
