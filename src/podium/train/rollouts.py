"""Rollouts: plans sampled for a batch of exercises, executed, graded and rewarded.

    batch = rollouts.collect([first, first, second, second], loop)     # two plans for each
    batch.plans, batch.rewards

With `[recursion]` some plans of a question are second rounds. With `grpo.explore`, where no plan
of a question was right, variations of the best one replace some: the policy learns from these, and
diagnostics leave them out. With `recursion.normalise_per_round` rewards are already advantages.

The policy is the trained model. With an adapter, plans are sampled from a copy of the base with the
adapter merged in, which is updated before each use: that halves the work for every token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any, Final

import torch
from accelerate.utils import gather_object
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

from podium._util.files import replace_directory
from podium.conductors import plan
from podium.core.pool import Pool
from podium.core.workflow import Workflow
from podium.train.diagnostics import Rollout
from podium.train.exercises import Exercise, recipe_prompt
from podium.train.preflight import check_adapters
from podium.train.recipe import Recipe
from podium.train.schema import Scale
from podium.train.score import Score, Scorer, combine_rounds
from podium.train.trainer_setup import autocast, parameter_dtype
from podium.workers.local import pretrained
from podium.workers.local.captured import GROUPED_ATTENTION
from podium.workers.local.decoding import Completion, Decoder, Sampling
from podium.workers.local.pretrained import silence_progress_bars

MIN_DEVIATION: Final = 1e-4
"""Added to the divisor of advantages, as TRL does."""


@dataclass(slots=True)
class SampledPlan:
    """One plan for one exercise: its prompt, its completion and its score.

    `second_round` is the plan that followed it; `may_continue` says that one may follow.
    """

    exercise: Exercise
    prompt: list[int]
    tokens: list[int]
    text: str
    ended: bool
    score: Score | None = None
    second_round: SampledPlan | None = None
    may_continue: bool = False
    is_explored: bool = False

    @property
    def round(self) -> int:
        return len(self.exercise.context.rounds)

    @property
    def reward(self) -> float:
        """The reward of this plan alone; 0 if it was dropped or is not scored."""
        return 0.0 if self.score is None else self.score.reward or 0.0

    @property
    def is_wrong(self) -> bool:
        """True if it was scored, not dropped, and its answer was wrong."""
        return self.score is not None and self.score.reward is not None and not self.score.right


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """A scored batch: `plans` train the policy by `rewards`, `rollouts` are all that it wrote.

    A reward of None drops a plan. `solved_by_exploring` questions were answered right by a
    variation alone.
    """

    plans: list[SampledPlan]
    rewards: list[float | None]
    rollouts: list[Rollout]
    solved_by_exploring: int


class Rollouts:
    """Samples plans, scores and rewards them.

    `scoring_seconds` is the time that scoring took so far; `too_long` counts the exercises whose
    prompts did not fit.
    """

    def __init__(self, recipe: Recipe, policy: Policy, scorer: Scorer) -> None:
        assert recipe.grpo is not None
        self._grpo = grpo = recipe.grpo
        self._recursion = recipe.recursion
        self._seed = recipe.run.seed
        self._policy = policy
        self._scorer = scorer
        self._prompt = recipe_prompt(recipe)
        self._counts_tokens = bool(recipe.reward.penalty_per_completion_token)
        self._sampling = Sampling(
            grpo.max_completion_tokens, grpo.temperature, grpo.top_p, grpo.top_k
        )
        self.scoring_seconds = 0.0
        self.too_long = 0

    def collect(
        self, exercises: Sequence[Exercise], loop: asyncio.AbstractEventLoop
    ) -> RolloutBatch:
        """Sample, score and reward a plan for each exercise; equal ones stand together.

        Plans are scored on `loop`, which must run in another thread.
        """
        groups = list({exercise.number: exercise for exercise in exercises}.values())
        size = len(exercises) // len(groups)
        second = self._recursion.second_round_count(size) if self._recursion is not None else 0
        first = _split(self._sample(groups, self._sampling, size - second), size - second)
        for group in first:
            for one in group[:second]:
                one.may_continue = True
        self._score(_flat(first), loop)
        second_rounds = self._sample_second_rounds(first, second)
        self._score(_flat(second_rounds), loop)
        trained = first
        if self._grpo.explore:
            varied = [self._vary(*pair) for pair in zip(first, second_rounds, strict=True)]
            self._score(_flat(varied), loop)
            trained = [self._explore(*pair) for pair in zip(first, varied, strict=True)]
        plans = _flat(group for pair in zip(trained, second_rounds, strict=True) for group in pair)
        sampled = _flat(group for pair in zip(first, second_rounds, strict=True) for group in pair)
        explored = [one for one in plans if one.is_explored and one.score and one.score.right]
        solved_by_exploring = len({one.exercise.number for one in explored})
        return RolloutBatch(plans, self._rewards(plans), _as_rollouts(sampled), solved_by_exploring)

    def measure(
        self, exercises: Sequence[Exercise], temperature: float, loop: asyncio.AbstractEventLoop
    ) -> list[Rollout]:
        """Sample and score one plan for each exercise; there may be none."""
        plans = self._sample(exercises, Sampling(self._grpo.max_completion_tokens, temperature))
        self._score(plans, loop)
        return _as_rollouts(plans)

    def fits(self, exercise: Exercise) -> bool:
        """Return whether the prompt is within `grpo.max_prompt_tokens`; prompts are never cut."""
        if len(self.prompt_tokens(exercise)) <= self._grpo.max_prompt_tokens:
            return True
        self.too_long += 1
        return False

    def prompt_tokens(self, exercise: Exercise) -> list[int]:
        messages = self._prompt.chat(exercise.context)
        return self._policy.encode(messages, self._prompt_prefix(exercise))

    def _prompt_prefix(self, exercise: Exercise) -> str:
        """Return the beginning of the reply that is given to the policy."""
        return self._prompt.opener(exercise.context) if self._prompt.style == "full" else ""

    def _sample(
        self, exercises: Sequence[Exercise], sampling: Sampling, copies: int = 1
    ) -> list[SampledPlan]:
        prompts = [self.prompt_tokens(exercise) for exercise in exercises]
        completions = self._policy.sample(prompts, sampling, copies)
        pairs = [pair for pair in zip(exercises, prompts, strict=True) for _ in range(copies)]
        return [
            SampledPlan(
                exercise,
                prompt,
                list(completion.tokens),
                self._prompt_prefix(exercise) + self._policy.decode(completion.tokens),
                completion.ended,
            )
            for (exercise, prompt), completion in zip(pairs, completions, strict=True)
        ]

    def _sample_second_rounds(
        self, first: Sequence[Sequence[SampledPlan]], count: int
    ) -> list[list[SampledPlan]]:
        """Continue the first `count` plans of each group.

        A plan that cannot be followed is tried again from the beginning instead.
        """
        if not count:
            return [[] for _ in first]
        begun = [one for group in first for one in group[:count]]
        second_rounds = self._sample([self._next_exercise(one) for one in begun], self._sampling)
        for one, follower in zip(begun, second_rounds, strict=True):
            one.second_round = follower if follower.round > one.round else None
        return _split(second_rounds, count)

    def _next_exercise(self, one: SampledPlan) -> Exercise:
        """Return the exercise of the next round, or the same one where none can follow.

        None can after a malformed plan, after the last round, or if the prompt would be too long.
        """
        recursion, score = self._recursion, one.score
        if recursion is None or score is None or score.run is None:
            return one.exercise
        if one.round + 1 >= recursion.rounds:
            return one.exercise
        context = replace(one.exercise.context, rounds=score.run.rounds)
        following = one.exercise._replace(context=context)
        return following if self.fits(following) else one.exercise

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
        rounds, pool = best.exercise.context.rounds, best.exercise.context.pool
        workflow = best.score.workflow or (rounds[-1].workflow if rounds else None)
        if workflow is None:
            return []
        rng = Random(f"{self._seed}/explored/{best.exercise.number}")  # noqa: S311 - repeatable
        count = self._grpo.explore_tries or self._grpo.explore
        texts = [
            plan.write(one, pool, layout=self._prompt.layout)
            for one in variations(workflow, pool, count, rng, is_later=bool(rounds))
        ]
        return [
            SampledPlan(
                best.exercise,
                best.prompt,
                self._policy.tokens_of(text),
                text,
                ended=True,
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
            one.second_round = None
        best = max(group, key=lambda one: one.reward)
        others = [one for one in group if one is not best]
        made = sorted(varied, key=lambda one: one.reward, reverse=True)[: self._grpo.explore]
        return [best, *others[: len(group) - 1 - len(made)], *made]

    def _score(self, plans: Sequence[SampledPlan], loop: asyncio.AbstractEventLoop) -> None:
        """Score the plans; equal plans for one exercise are executed once."""
        if not plans:
            return
        began = time.monotonic()
        followed_last = sorted(plans, key=lambda one: one.may_continue)
        different = {self._identity(one): one for one in followed_last}

        async def score_all() -> list[Score]:
            return await asyncio.gather(*(self._score_one(one) for one in different.values()))

        found = asyncio.run_coroutine_threadsafe(score_all(), loop).result()
        scores = dict(zip(different, found, strict=True))
        for one in plans:
            one.score = scores[self._identity(one)]
        self.scoring_seconds += time.monotonic() - began

    def _identity(self, one: SampledPlan) -> Hashable:
        tokens = len(one.tokens) if self._counts_tokens else 0
        # A second round has an exercise of its own, with the plan that it continues.
        return (one.exercise.number, id(one.exercise), one.text, one.ended, tokens)

    async def _score_one(self, one: SampledPlan) -> Score:
        task, context, _ = one.exercise
        return await self._scorer.score(
            one.text,
            task,
            context.pool,
            rounds=context.rounds,
            ended=one.ended,
            completion_tokens=len(one.tokens),
            may_continue=one.may_continue,
        )

    def _rewards(self, plans: Sequence[SampledPlan]) -> list[float | None]:
        """Return the rewards, or with `recursion.normalise_per_round` the advantages."""
        rewards = [self._reward(one) for one in plans]
        if self._recursion is None or not self._recursion.normalise_per_round:
            return rewards
        rounds = [one.round for one in plans]
        groups = [(one.exercise.number, one.round) for one in plans]
        return advantages(rewards, groups, rounds, self._grpo.scale_rewards)

    def _reward(self, one: SampledPlan) -> float | None:
        assert one.score is not None
        if one.second_round is None or self._recursion is None:
            return one.score.reward
        assert one.second_round.score is not None
        return combine_rounds(
            one.score.reward, one.second_round.score.reward, self._recursion.discount
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
        else (reward - means[group]) / (1.0 if scale == "none" else deviations[key] + MIN_DEVIATION)
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


def _split(plans: Sequence[SampledPlan], size: int) -> list[list[SampledPlan]]:
    return [list(plans[start : start + size]) for start in range(0, len(plans), size)]


def _flat(groups: Iterable[Sequence[SampledPlan]]) -> list[SampledPlan]:
    return [one for group in groups for one in group]


def _as_rollouts(plans: Sequence[SampledPlan]) -> list[Rollout]:
    return [
        Rollout(
            one.exercise.number,
            one.score,
            len(one.tokens),
            one.exercise.context.pool,
            one.exercise.task.kind,
        )
        for one in plans
        if one.score is not None
    ]


ADAPTER: Final = "default"
"""peft's name of the trained adapter."""

ONLY_THE_ADAPTER: Final[Mapping[str, Any]] = {
    "selected_adapters": [ADAPTER],
    "save_embedding_layers": False,
}
"""Have peft write neither the reference nor embeddings, about which it would ask the hub."""

INSIDE_PEFT: Final = "base_model.model."


class Policy:
    """A conductor in training."""

    def __init__(self, recipe: Recipe) -> None:
        held = parameter_dtype(recipe)
        loaded = pretrained.load(recipe.model.base, dtype=held)
        self._loaded = loaded
        self.tokenizer: Any = loaded.tokenizer
        self.end_tokens = loaded.end_tokens
        loaded.model.generation_config.eos_token_id = list(loaded.end_tokens)  # TRL asks there
        self._is_adapter = recipe.model.lora is not None
        self.vllm: Any = None
        self._merged_model: Any = None
        if self._is_adapter and recipe.grpo is not None and recipe.grpo.vllm is None:
            self._merged_model = deepcopy(loaded.model)
            self._merged_model.config._attn_implementation = GROUPED_ATTENTION
        self.model: Any = _trainable(loaded.model, recipe)
        sampled = self._merged_model if self._merged_model is not None else self.model
        self._decoder = Decoder(
            sampled,
            end_tokens=self.end_tokens,
            padding=self.tokenizer.pad_token_id,
            seed=None,
        )
        self._autocast = partial(autocast, recipe)

    def encode(self, messages: list[dict[str, str]], opener: str = "") -> list[int]:
        return self._loaded.encode(messages, opener)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._loaded.decode(tokens)

    def tokens_of(self, plan: str) -> list[int]:
        """Encode a whole plan, with the token that ends it."""
        return self._loaded.encode_reply(plan)

    def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, copies: int = 1
    ) -> list[Completion]:
        """Sample `copies` completions of each prompt from the current policy.

        TRL gives vLLM the weights of each step before it asks for rollouts.
        """
        if self.vllm is not None:
            return self._sample_by_vllm(prompts, sampling, copies)
        if not prompts:
            return []
        if self._merged_model is not None:
            self._merge_adapter()
        was_training = self._decoder.model.training
        self._decoder.model.eval()
        with self._select_gpu(), self._autocast():
            completions = self._decoder.complete(
                prompts,
                [sampling] * len(prompts),
                copies=copies,
                captured=self._merged_model is not None,
            )
        self._decoder.model.train(was_training)
        return completions

    def _sample_by_vllm(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, copies: int
    ) -> list[Completion]:
        rows = [list(prompt) for prompt in prompts for _ in range(copies)]
        most = max(gather_object([len(rows)]))  # vLLM's server divides rows equally by processes
        self.vllm.temperature = sampling.temperature
        self.vllm.max_completion_length = sampling.max_tokens
        if not most:
            return []
        padding = rows[-1:] or [list(self.end_tokens[:1])]
        padded = rows + padding * (most - len(rows))
        _, completions, *_ = self.vllm.generate(padded, None, copies)
        ends = set(self.end_tokens)
        return [
            Completion(tuple(tokens), bool(tokens) and tokens[-1] in ends)
            for tokens in completions[: len(rows)]
        ]

    def save(self, directory: Path, weights: Mapping[str, torch.Tensor]) -> None:
        with replace_directory(directory) as draft:
            if self._is_adapter:
                self.model.save_pretrained(draft, state_dict=weights, **ONLY_THE_ADAPTER)
                return
            with silence_progress_bars():
                self.model.save_pretrained(draft, state_dict=weights)
            self.tokenizer.save_pretrained(draft)

    def _select_gpu(self) -> AbstractContextManager[Any]:
        """Select the model's GPU: each thread has a current device of its own."""
        device = self._decoder.model.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    @torch.no_grad()
    def _merge_adapter(self) -> None:
        for path, layer in self.model.named_modules():
            if isinstance(layer, LoraLayer):
                target = self._merged_model.get_submodule(path.removeprefix(INSIDE_PEFT))
                weight = layer.get_base_layer().weight.float()
                target.weight.copy_(weight + layer.get_delta_weight(ADAPTER).float())


def _trainable(model: Any, recipe: Recipe) -> Any:
    lora = recipe.model.lora
    if lora is None:
        return model
    if recipe.model.adapter is not None:
        check_adapters(recipe)
        config = PeftConfig.from_pretrained(recipe.model.adapter)
        config.lora_dropout = lora.dropout  # the adapter may have been trained with another
        adapted: Any = PeftModel.from_pretrained(
            model, recipe.model.adapter, is_trainable=True, config=config
        )
    else:
        config = LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=sorted(lora.targets),
            lora_dropout=lora.dropout,
            task_type="CAUSAL_LM",
        )
        adapted = get_peft_model(model, config)
    # The recipe's name of the base: its path differs from machine to machine.
    adapted.peft_config[ADAPTER].base_model_name_or_path = recipe.model.base
    return adapted
