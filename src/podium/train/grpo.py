"""Learning from reward: GRPO on TRL's trainer, with plans executed by Podium's engine.

One step goes one way:

    exercises (`podium.train.exercises`) -> sample plans (`rollouts`, `policy`)
      -> execute and grade them (`score`) -> reward (`rewards`) -> update (TRL)

TRL asks for the rollouts of a batch (`rollout_func`); `_GrpoRun.rollout` answers with prompts,
completions and their rewards, and the reward function hands TRL that last column. The loss, the
optimiser, many devices and checkpoints are TRL's and accelerate's.

With `grpo.beta` TRL keeps a reference: the policy as training began, for an adapter a copy beside
the trained one, made again from the recipe on resume. A recipe states where it departs from the
paper: `grpo.loss_type`, `reward`, `pool` and `model.lora`.
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
from podium.train.baselines import (
    Baselines,
    measure_baselines,
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
from podium.train.rollouts import PlanPrompts, RolloutBatch, Rollouts
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
from podium.train.worker_set import WorkerSet, connect_workers, plain_scorer, recipe_scorer
from podium.workers import Http

T = TypeVar("T")

CONDUCTOR: Final = "conductor"
"""The directory of the trained adapter, below the output."""

FEWER: Final = "grpo.micro_batch or grpo.max_tokens for learning, grpo.questions for sampling"
"""Keys that need less memory when they are lower."""

ONE_SKILL: Final = frozenset({"one", EVERYDAY})
"""Kinds of étude that need one step."""


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Train the recipe's conductor, from the beginning or from its last checkpoint."""
    assert recipe.grpo is not None, "checked as it was read"
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    arguments = grpo_config(recipe)
    wait_for_everyone()  # the main process has checked the output before anything is written
    torch.manual_seed(normalize_seed(recipe.run.seed))
    with (
        explain_out_of_space(recipe.output, fewer=FEWER),
        nullcontext() if recipe.run.ray is None else ray_scorer(recipe) as cluster,
    ):
        _train(recipe, arguments, cluster, resume=resume)


def _train(
    recipe: Recipe, arguments: GRPOConfig, cluster: RayScorer | None, *, resume: bool
) -> None:
    """Train, with plans scored on the cluster if there is one, else in this process."""
    assert recipe.grpo is not None
    workers = connect_workers(recipe, Http())
    policy = Policy(recipe)
    prompts = PlanPrompts(recipe, policy)
    practice = exercises(recipe, workers.pool, prompts.fits)
    scorer = cluster or recipe_scorer(recipe, workers.workers, workers.flaky_workers)
    rollouts = Rollouts(recipe, policy, scorer, practice)
    begun = last_checkpoint(recipe.output) if resume else None
    with TrainingLog(recipe, after=begun.step if begun else 0) as log:
        run = _GrpoRun(recipe, rollouts, log, held_out_exercises(recipe, workers.pool))
        trainer = run.make_trainer(policy, len(practice), arguments)
        if prompts.left_out:
            log.warn(
                f"{prompts.left_out} questions were left out and others taken instead: their "
                f"prompts are longer than grpo.max_prompt_tokens = {recipe.grpo.max_prompt_tokens}"
            )
        try:
            plain = cluster.plain if cluster else plain_scorer(recipe, workers.workers)
            run.load_baselines(plain, workers.pool, practice, resume=begun is not None)
            with silence(trainer):
                trainer.train(resume_from_checkpoint=str(begun.path) if begun else None)
        finally:
            run.close(workers)
        if trainer.state.global_step < recipe.grpo.steps:
            log.log_stop(trainer.state.global_step)
            return
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if is_main_process():
            name = CONDUCTOR if recipe.model.lora is not None else MODEL
            policy.save(recipe.output / name, weights)
        log.finish(_cache_counts(workers, cluster))


def _cache_counts(workers: WorkerSet, cluster: RayScorer | None) -> dict[str, float]:
    if workers.cache is None:
        return {}
    counts = Counter(hits=workers.cache.hits, misses=workers.cache.misses)
    counts.update(cluster.replies if cluster is not None else {})
    return {"cache_hits": counts["hits"], "cache_misses": counts["misses"]}


class _GrpoRun(TrainerCallback):
    """The callbacks of one training: rollouts of a batch, the end of a step, measurements."""

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
        self._baselines = self._step_baselines(Baselines(0, {}))
        self._batch: RolloutBatch | None = None
        self._trainer: Any = None

    def make_trainer(self, policy: Policy, count: int, arguments: GRPOConfig) -> GRPOTrainer:
        """Return TRL's trainer for so many exercises.

        TRL hands only the column `prompt` to the rollout function: here an exercise's index.
        """
        most_tokens = self._grpo.max_tokens
        made = partial(SharedPromptTrainer, most_tokens=most_tokens) if most_tokens else GRPOTrainer
        self._trainer = made(
            model=policy.model,
            args=arguments,
            processing_class=policy.tokenizer,
            train_dataset=Dataset.from_dict({"prompt": range(count)}),
            rollout_func=self.rollout,
            reward_funcs=self.reward,
            callbacks=[self, StopAfterMinutes(self._recipe.run.minutes, self._training_log)],
        )
        if self._recipe.model.lora is not None:
            # Otherwise a checkpoint would hold the reference too, and transformers, resuming from
            # one with several adapters, does not read the one that is trained.
            policy.model.save_pretrained = partial(policy.model.save_pretrained, **ONLY_THE_ADAPTER)
        return self._trainer

    def load_baselines(
        self, scorer: PlanScorer, pool: Pool, practice: Sequence[Exercise], *, resume: bool
    ) -> None:
        """Measure the baselines of every step, or read them on resume."""
        if not needs_baselines(self._recipe, pool) or not is_main_process():
            return
        found = read_baselines(self._recipe.output) if resume else None
        if found is None:
            asked = self._held_out or practice[: self._recipe.run.eval_tasks]
            found = self._await(measure_baselines(self._recipe, scorer, pool, asked))
            write_baselines(self._recipe.output, found)
        self._training_log.note(str(found))
        self._baselines = self._step_baselines(found)

    def _step_baselines(self, measured: Baselines) -> StepBaselines:
        kinds = {exercise.task.kind for exercise in self._held_out}
        return measured.references(
            kinds - ONE_SKILL if self._recipe.data.kind == "etudes" else None,
            self._grpo.max_completion_tokens,
        )

    # ---- one step

    def rollout(self, prompts: list[int], trainer: Any) -> dict[str, Any]:
        """Sample, execute, grade and reward the plans of a batch."""
        log, rollouts = self._training_log, self._rollouts
        began, at_work, too_long = time.monotonic(), rollouts.seconds_at_work, rollouts.too_long
        with self._whole_model():
            batch = rollouts.sample(prompts, trainer.async_loop)
        rewards = self._await(rollouts.reward(batch))
        if rollouts.too_long > too_long:
            log.warn(
                f"{rollouts.too_long - too_long} plans have no second round: its prompt would be "
                f"longer than grpo.max_prompt_tokens = {self._grpo.max_prompt_tokens}"
            )
        at_work = rollouts.seconds_at_work - at_work
        log.add_seconds("workers", at_work)
        log.add_seconds("sampling", time.monotonic() - began - at_work)
        self._batch = batch
        return {
            "prompt_ids": [one.prompt for one in batch.plans],
            "completion_ids": [one.tokens for one in batch.plans],
            "logprobs": None,
            "plan_reward": rewards,
        }

    async def reward(
        self, plan_reward: list[float | None], log_metric: Callable[[str, float], None], **_: Any
    ) -> list[float | None]:
        """Return the rewards that `rollout` has found; TRL passes them on as a column.

        It is async because TRL starts its event loop only for async reward functions.
        """
        if self._trainer.args.report_to and self._batch is not None:
            seen = diagnose(self._batch.rollouts(), self._baselines)
            for name, value in seen.as_metrics().items():
                log_metric(name, value)
        return plan_reward

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the rollouts of all processes; a step that uses a batch again logs nothing new."""
        step = state.global_step
        if self._batch is not None:
            rollouts = gather_object(self._batch.rollouts())
            found = sum(gather_object([self._batch.found]))
            self._training_log.step(diagnose(rollouts, self._baselines), found=found)
            self._batch = None
        self._training_log.end_step(step)
        every = self._recipe.run.eval_every
        if every and step % every == 0:
            self._measure(step)

    def _measure(self, step: int) -> None:
        """Measure the policy on held-out exercises, each process its share of them.

        Everyday questions are logged apart: they say nothing about what is learned.
        """
        share = [*self._held_out, *self._everyday][process_index() :: process_count()]
        temperature = self._recipe.run.eval_temperature
        with self._whole_model():
            measured = self._await(self._rollouts.measure(share, temperature))
        found = gather_object(measured)
        everyday = [rollout.score.right for rollout in found if rollout.kind == EVERYDAY]
        self._training_log.log_measurement(
            step,
            diagnose([one for one in found if one.kind != EVERYDAY], self._baselines),
            everyday=fmean(everyday) if everyday else None,
        )

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
        """Skip the update if a gradient is not finite; it would spoil the whole model."""
        parameters = [p for p in kept["model"].parameters() if p.grad is not None]
        if all_finite([p.grad for p in parameters]):
            return
        self._training_log.warn("a gradient is not finite; the step was left out")
        if self._trainer.accelerator.scaler is None:  # a gradient scaler skips the step itself
            for parameter in parameters:
                parameter.grad = None  # with a zero, momentum would still move the parameter

    # ---- the trainer's model and event loop

    def _whole_model(self) -> AbstractContextManager[Any]:
        """Gather a model that DeepSpeed has partitioned, for as long as plans are sampled."""
        trainer = self._trainer
        whole: AbstractContextManager[Any] = unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        )
        return whole

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on TRL's event loop, where all workers live."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._trainer.async_loop).result()

    def close(self, workers: WorkerSet) -> None:
        """Cancel what still runs, close the workers and end TRL's event loop."""
        thread, loop = self._trainer.async_loop_thread, self._trainer.async_loop
        self._await(_cancel_rest())
        self._await(workers.close())
        atexit.unregister(shutdown_event_loop_in_daemon)
        shutdown_event_loop_in_daemon(thread, loop)
        loop.close()


async def _cancel_rest() -> None:
    """Cancel every other task of this event loop: after Ctrl-C whole workflows still run."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether all elements are finite."""
    sums = [tensor.sum() for tensor in tensors]
    return bool(torch.stack(sums).isfinite().all()) if sums else True
