"""Learning from reward: group-relative policy optimisation, on TRL's trainer.

TRL samples no plans and knows no workers here: it asks `Rollouts` for completions and then, in
one asynchronous reward, for what they earned once our engine has carried out the whole batch.
What is left to it is the loss, the optimiser, many devices through accelerate, and checkpoints.

With `grpo.beta`, TRL holds the policy to a reference: the policy as it was when training began.
For an adapter that is a copy of it beside the one that is trained, made anew from the recipe
each time a training goes on, and written nowhere.

Where this departs from the paper, a recipe says so: the loss (`grpo.loss_type`), the reward
(`reward`), which pools are asked (`pool`), and whether an adapter or all parameters are trained
(`model.lora`).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from statistics import fmean
from typing import Any, Final, TypeVar

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import shutdown_event_loop_in_daemon

from podium._util.lab import EVERYDAY
from podium.conductors.routing.arrays import normalize_seed
from podium.core.pool import Pool
from podium.train.ablations import recipe_scorer
from podium.train.baselines import (
    Baselines,
    measure_baselines,
    plain_scorer,
    read_baselines,
    write_baselines,
)
from podium.train.cluster import RayScorer, ray_scorer
from podium.train.diagnostics import StepBaselines, diagnose
from podium.train.exercises import (
    Exercise,
    everyday_exercises,
    exercises,
    held_out_exercises,
    needs_baselines,
)
from podium.train.policy import ONLY_THE_ADAPTER, Policy
from podium.train.recipe import Recipe
from podium.train.rollouts import PlanPrompts, Rollouts
from podium.train.runtime import (
    explain_out_of_space,
    is_main_process,
    last_checkpoint,
    process_count,
    process_index,
    wait_for_everyone,
)
from podium.train.score import PlanScorer
from podium.train.sft import MODEL
from podium.train.shared_prompts import SharedPromptTrainer
from podium.train.trainer_setup import StopAfterMinutes, grpo_config, silence
from podium.train.training_log import TrainingLog
from podium.train.worker_set import WorkerSet, connect_workers
from podium.workers import Http

T = TypeVar("T")

CONDUCTOR: Final = "conductor"
"""The directory below the output in which the adapter of the trained conductor lies."""

FEWER: Final = "grpo.micro_batch or grpo.max_tokens for learning, grpo.questions for sampling"
"""What needs less memory where it is lower."""

ONE_SKILL: Final = frozenset({"one", EVERYDAY})
"""The kinds of étude that one step can do."""


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Train the recipe's conductor, from the beginning or from its last checkpoint."""
    assert recipe.grpo is not None, "checked as it was read"
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    arguments = grpo_config(recipe)
    wait_for_everyone()  # the first one has made sure of the output before anybody writes
    torch.manual_seed(normalize_seed(recipe.run.seed))
    with (
        explain_out_of_space(recipe.output, fewer=FEWER),
        nullcontext() if recipe.run.ray is None else ray_scorer(recipe) as cluster,
    ):
        _train(recipe, arguments, cluster, resume=resume)


def _train(
    recipe: Recipe, arguments: GRPOConfig, cluster: RayScorer | None, *, resume: bool
) -> None:
    """Train, with plans scored on the cluster where there is one, and else in this process."""
    assert recipe.grpo is not None
    cast = connect_workers(recipe, Http())
    policy = Policy(recipe)
    asking = PlanPrompts(recipe, policy)
    practice = exercises(recipe, cast.pool, asking.fits)
    scorer = cluster or recipe_scorer(recipe, cast.workers, cast.flaky_workers)
    rollouts = Rollouts(recipe, policy, scorer, practice)
    begun = last_checkpoint(recipe.output) if resume else None
    with TrainingLog(recipe, after=begun.step if begun else 0) as training_log:
        loop = _Loop(recipe, rollouts, training_log, held_out_exercises(recipe, cast.pool))
        trainer = loop.trainer(policy, practice, arguments)
        if asking.left_out:
            training_log.warn(_left_out(asking.left_out, recipe))
        try:
            plain = cluster.plain if cluster else plain_scorer(recipe, cast.workers)
            loop.find_references(plain, cast.pool, practice, resume=begun is not None)
            with silence(trainer):
                trainer.train(resume_from_checkpoint=str(begun.path) if begun else None)
        finally:
            loop.close(cast)
        if trainer.state.global_step < recipe.grpo.steps:
            training_log.stopped(trainer.state.global_step)
            return
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if is_main_process():
            name = CONDUCTOR if recipe.model.lora is not None else MODEL
            policy.save(recipe.output / name, weights)
        training_log.finish(_kept(cast, cluster))


def _left_out(count: int, recipe: Recipe) -> str:
    assert recipe.grpo is not None
    return (
        f"{count} questions were left out and others taken instead, since their prompts are longer "
        f"than grpo.max_prompt_tokens = {recipe.grpo.max_prompt_tokens}"
    )


def _kept(cast: WorkerSet, cluster: RayScorer | None) -> dict[str, float]:
    if cast.cache is None:
        return {}
    asked = Counter(hits=cast.cache.hits, misses=cast.cache.misses)
    asked.update(cluster.replies if cluster is not None else {})
    return {"cache_hits": asked["hits"], "cache_misses": asked["misses"]}


class _Loop:
    """What TRL calls back: for completions, for rewards, and at the end of a step."""

    def __init__(
        self,
        recipe: Recipe,
        rollouts: Rollouts,
        training_log: TrainingLog,
        held_out: list[Exercise],
    ) -> None:
        assert recipe.grpo is not None
        self._recipe = recipe
        self._grpo = recipe.grpo
        self._rollouts = rollouts
        self._training_log = training_log
        self._held_out = held_out
        self._everyday = everyday_exercises(recipe)
        self._references = self._held_against(Baselines(0, {}))
        self._trainer: Any = None
        self._is_scored = False

    def trainer(
        self, policy: Policy, practice: list[Exercise], arguments: GRPOConfig
    ) -> GRPOTrainer:
        """TRL's trainer for this recipe."""
        rows = [
            {"prompt": f"exercise {number}", "number": number} for number in range(len(practice))
        ]
        most_tokens = self._grpo.max_tokens
        made = partial(SharedPromptTrainer, most_tokens=most_tokens) if most_tokens else GRPOTrainer
        self._trainer = made(
            model=policy.model,
            args=arguments,
            processing_class=policy.tokenizer,
            train_dataset=Dataset.from_list(rows),
            reward_funcs=self.reward,
            rollout_func=self.completions,
            callbacks=[
                _EachStep(self),
                StopAfterMinutes(self._recipe.run.minutes, self._training_log),
            ],
        )
        if self._recipe.model.lora is not None:
            # Otherwise a checkpoint would hold the reference too, and transformers, going on from
            # one with several adapters, does not read the one that is trained.
            policy.model.save_pretrained = partial(policy.model.save_pretrained, **ONLY_THE_ADAPTER)
        return self._trainer

    def find_references(
        self, scorer: PlanScorer, pool: Pool, practice: Sequence[Exercise], *, resume: bool
    ) -> None:
        """Measure what every step is held against, or read it where a training goes on."""
        if not needs_baselines(self._recipe, pool) or not is_main_process():
            return
        found = read_baselines(self._recipe.output) if resume else None
        if found is None:
            asked = self._held_out or practice[: self._recipe.run.eval_tasks]
            found = self._await(measure_baselines(self._recipe, scorer, pool, asked))
            write_baselines(self._recipe.output, found)
        self._training_log.note(str(found))
        self._references = self._held_against(found)

    def _held_against(self, measured: Baselines) -> StepBaselines:
        kinds = {exercise.task.kind for exercise in self._held_out}
        return measured.references(
            kinds - ONE_SKILL if self._recipe.data.kind == "etudes" else None,
            self._grpo.max_completion_tokens,
        )

    def _whole_model(self) -> AbstractContextManager[Any]:
        """For as long as plans are sampled, all of the model on every device, where DeepSpeed has
        spread it over them; everywhere else, the model as it is."""
        trainer = self._trainer
        whole: AbstractContextManager[Any] = unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        )
        return whole

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine comes to on the trainer's event loop, where all workers live."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._trainer.async_loop).result()

    def close(self, cast: WorkerSet) -> None:
        """End the event loop that TRL has started, whatever still runs there, and let go of what
        the workers held."""
        thread, loop = self._trainer.async_loop_thread, self._trainer.async_loop
        self._await(_give_up_the_rest())
        self._await(cast.close())
        atexit.unregister(shutdown_event_loop_in_daemon)
        shutdown_event_loop_in_daemon(thread, loop)
        loop.close()

    def completions(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Plans for a batch. A prompt is only the number of its exercise."""
        began, at_work = time.monotonic(), self._rollouts.seconds_at_work
        numbers = [int(prompt.rpartition(" ")[2]) for prompt in prompts]
        too_long = self._rollouts.too_long
        with self._whole_model():
            attempts = self._rollouts.sample(numbers, trainer.async_loop)
        if self._rollouts.too_long > too_long:
            self._training_log.warn(
                f"{self._rollouts.too_long - too_long} plans have no second round: its prompt "
                f"would be longer than grpo.max_prompt_tokens = {self._grpo.max_prompt_tokens}"
            )
        at_work = self._rollouts.seconds_at_work - at_work
        self._training_log.spent("workers", at_work)
        self._training_log.spent("sampling", time.monotonic() - began - at_work)
        return {
            "prompt_ids": [attempt.prompt for attempt in attempts],
            "completion_ids": [attempt.tokens for attempt in attempts],
            "logprobs": None,
        }

    async def reward(
        self, log_metric: Callable[[str, float], None], **_: Any
    ) -> list[float | None]:
        """What the plans of the batch earned, once all of them were carried out."""
        began = time.monotonic()
        rewards = await self._rollouts.rewards()
        self._training_log.spent("workers", time.monotonic() - began)
        self._is_scored = True
        if self._trainer.args.report_to:
            seen = diagnose(self._rollouts.rollouts(), self._references)
            for name, value in seen.as_metrics().items():
                log_metric(name, value)
        return rewards

    @property
    def leaves_out_by_itself(self) -> bool:
        """Whether gradients are scaled, by who leaves out steps in which that went wrong."""
        return self._trainer.accelerator.scaler is not None

    def warn(self, words: str) -> None:
        """Tell whoever watches."""
        self._training_log.warn(words)

    def ended(self, step: int) -> None:
        """Write down what the rollouts of the step showed, those of all processes together; a
        step that goes over the same rollouts again shows nothing new."""
        if self._is_scored:
            rollouts = gather_object(self._rollouts.rollouts())
            found = sum(gather_object([self._rollouts.found]))
            self._training_log.step(diagnose(rollouts, self._references), found=found)
            self._is_scored = False
        self._training_log.updated(step)

    def measure(self, step: int) -> None:
        """How the policy does on what it is not trained on, each process with its share of it.
        Everyday questions stand by themselves: they say nothing of what was to be learned."""
        share = [*self._held_out, *self._everyday][process_index() :: process_count()]
        temperature = self._recipe.run.eval_temperature
        with self._whole_model():
            measured = self._await(self._rollouts.measure(share, temperature))
        found = gather_object(measured)
        left_alone = [rollout.score.right for rollout in found if rollout.kind == EVERYDAY]
        asked = [rollout for rollout in found if rollout.kind != EVERYDAY]
        self._training_log.measured(
            step,
            diagnose(asked, self._references),
            everyday=fmean(left_alone) if left_alone else None,
        )

    def is_due(self, step: int) -> bool:
        """Whether a measurement comes after that step."""
        every = self._recipe.run.eval_every
        return bool(every) and step % every == 0


async def _give_up_the_rest() -> None:
    """Cancel what is under way on this event loop: after Ctrl-C, whole workflows are."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


class _EachStep(TrainerCallback):
    def __init__(self, loop: _Loop) -> None:
        self._loop = loop

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
        """One bad number in a gradient would spoil the whole model: such a step teaches nothing."""
        parameters = [p for p in kept["model"].parameters() if p.grad is not None]
        if not all_finite([p.grad for p in parameters]):
            self._loop.warn("a gradient is not finite; the step was left out")
            if self._loop.leaves_out_by_itself:
                return
            for parameter in parameters:
                parameter.grad = None  # of a zero, momentum would still make a movement

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loop.ended(state.global_step)
        if self._loop.is_due(state.global_step):
            self._loop.measure(state.global_step)


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no number in them is infinite or none at all."""
    sums = [tensor.sum() for tensor in tensors]
    return bool(torch.stack(sums).isfinite().all()) if sums else True
