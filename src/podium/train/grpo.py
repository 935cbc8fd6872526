"""Learning from reward: GRPO on TRL's trainer, with plans executed by Podium's engine.

One step goes one way:

    exercises (`podium.train.exercises`) -> sample plans (`rollouts`) -> execute, grade and reward
    them (`score`) -> diagnose and log them (`diagnostics`, `training_log`) -> update (TRL)

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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
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
from podium.core.errors import ConfigError
from podium.train.answers import AnswerRollouts
from podium.train.diagnostics import (
    NO_BASELINES,
    Rollout,
    StepDiagnostics,
    diagnose,
    find_baselines,
)
from podium.train.exercises import ExerciseSet, load_exercises
from podium.train.recipe import Recipe
from podium.train.rollouts import ONLY_THE_ADAPTER, Policy, Rollouts
from podium.train.schema import GrpoTable
from podium.train.sft import MODEL
from podium.train.shared_prompts import SharedPromptTrainer, all_finite
from podium.train.trainer_setup import (
    autocast_dtype,
    silence,
    stop_after_minutes,
    trainer_arguments,
)
from podium.train.training_log import (
    TrainingLog,
    explain_out_of_space,
    last_checkpoint,
    process_count,
    wait_for_everyone,
)
from podium.train.worker_set import WorkerSet, connect_workers

T = TypeVar("T")

CONDUCTOR: Final = "conductor"
MEMORY_KEYS: Final = (
    "grpo.micro_batch or grpo.max_pass_tokens for learning, grpo.questions for sampling"
)


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Train the recipe's conductor, from the beginning or from its last checkpoint."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    arguments = grpo_config(recipe)
    torch.backends.cuda.enable_cudnn_sdp(False)  # gradients were not finite under some masks
    wait_for_everyone()  # the main process has checked the output before anything is written
    torch.manual_seed(arguments.seed)
    with (
        explain_out_of_space(recipe.output, memory_keys=MEMORY_KEYS),
    ):
        _train(recipe, arguments, resume=resume)


def _train(recipe: Recipe, arguments: GRPOConfig, *, resume: bool) -> None:
    assert recipe.grpo is not None
    workers = connect_workers(recipe)
    policy = Policy(recipe)
    rollouts = (
        Rollouts(recipe, policy, workers.scorer)
        if recipe.answers is None
        else AnswerRollouts(recipe, policy, workers.scorer, workers.workers)
    )
    exercises = load_exercises(recipe, workers.pool, rollouts.fits)
    begun = last_checkpoint(recipe.output) if resume else None
    with TrainingLog(recipe, after=begun.step if begun else 0) as log:
        run = _GrpoRun(recipe, rollouts, log, exercises)
        trainer = run.make_trainer(policy, arguments)
        if rollouts.too_long:
            log.warn(
                f"{rollouts.too_long} questions were left out and others taken instead: their "
                f"prompts are longer than grpo.max_prompt_tokens = {recipe.grpo.max_prompt_tokens}"
            )
        try:
            run.load_baselines(workers, resume=begun is not None)
            with silence(trainer):
                trainer.train(resume_from_checkpoint=str(begun.path) if begun else None)
        finally:
            run.close(workers)
        if trainer.state.global_step < recipe.grpo.steps:
            log.log_stop(trainer.state.global_step)
            return
        weights = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        if trainer.accelerator.is_main_process:
            name = CONDUCTOR if recipe.model.lora is not None else MODEL
            policy.save(recipe.output / name, weights)
        log.finish(_cache_counts(workers))


def _cache_counts(workers: WorkerSet) -> dict[str, float]:
    if workers.cache is None:
        return {}
    return {"cache_hits": workers.cache.hits, "cache_misses": workers.cache.misses}


class _GrpoRun(TrainerCallback):
    """The callbacks of one training: rollouts of a batch, the end of a step, measurements."""

    def __init__(
        self,
        recipe: Recipe,
        rollouts: Rollouts,
        training_log: TrainingLog,
        exercises: ExerciseSet,
    ) -> None:
        assert recipe.grpo is not None
        self._recipe = recipe
        self._grpo = recipe.grpo
        self._rollouts = rollouts
        self._training_log = training_log
        self._practice = exercises.train
        self._held_out = exercises.held_out
        self._baselines = NO_BASELINES
        self._trainer: Any = None

    def make_trainer(self, policy: Policy, arguments: GRPOConfig) -> GRPOTrainer:
        """Return TRL's trainer.

        A prompt is the number of its exercise: TRL copies prompts, and gathers them from all
        processes.
        """
        max_tokens = self._grpo.max_pass_tokens
        if self._grpo.vllm is not None:
            arguments.generation_kwargs = {"stop_token_ids": list(policy.end_tokens)}
        trainer_class = (
            partial(SharedPromptTrainer, max_tokens=max_tokens) if max_tokens else GRPOTrainer
        )
        self._trainer = trainer_class(
            model=policy.model,
            args=arguments,
            processing_class=policy.tokenizer,
            train_dataset=Dataset.from_dict({"prompt": range(len(self._practice))}),
            rollout_func=self.rollout,
            reward_funcs=self.reward,
            callbacks=[self],
        )
        policy.vllm = getattr(self._trainer, "vllm_generation", None)
        if self._recipe.model.lora is not None:
            # Otherwise a checkpoint would hold the reference too, and transformers, resuming from
            # one with several adapters, does not read the one that is trained.
            policy.model.save_pretrained = partial(policy.model.save_pretrained, **ONLY_THE_ADAPTER)
        return self._trainer

    def load_baselines(self, workers: WorkerSet, *, resume: bool) -> None:
        """Measure the baselines of every step, or read them on resume."""
        if not self._trainer.accelerator.is_main_process:
            return
        questions = self._held_out or self._practice[: self._recipe.run.eval_tasks]
        found = self._await(
            find_baselines(self._recipe, workers.workers, workers.pool, questions, resume=resume)
        )
        if found is not None:
            self._training_log.note(str(found))
            self._baselines = found

    def rollout(self, prompts: list[int], trainer: Any) -> dict[str, Any]:
        """Sample, execute, grade, reward and log the plans of a batch."""
        log, rollouts = self._training_log, self._rollouts
        began, scoring, too_long = time.monotonic(), rollouts.scoring_seconds, rollouts.too_long
        with self._gather_model():
            batch = rollouts.collect([self._practice[n] for n in prompts], trainer.async_loop)
        if rollouts.too_long > too_long:
            log.warn(
                f"{rollouts.too_long - too_long} plans have no second round: its prompt would be "
                f"longer than grpo.max_prompt_tokens = {self._grpo.max_prompt_tokens}"
            )
        scoring = rollouts.scoring_seconds - scoring
        seconds = {"workers": scoring, "sampling": time.monotonic() - began - scoring}
        seen = self._diagnose(gather_object(batch.rollouts))
        log.step(
            seen,
            solved_by_exploring=sum(gather_object([batch.solved_by_exploring])),
            seconds=seconds,
        )
        return {
            "prompt_ids": [one.prompt for one in batch.plans],
            "completion_ids": [one.tokens for one in batch.plans],
            "logprobs": None,
            "plan_reward": batch.rewards,
            "plan_metrics": seen.as_metrics() if trainer.args.report_to else {},
        }

    def _diagnose(self, rollouts: Sequence[Rollout]) -> StepDiagnostics:
        limit = self._grpo.max_completion_tokens
        return diagnose(rollouts, self._baselines, max_tokens=limit)

    async def reward(
        self,
        plan_reward: list[float | None],
        plan_metrics: list[Mapping[str, float]],
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        """Return the rewards that `rollout` has found; TRL passes them on as a column.

        It is async because TRL starts its event loop only for async reward functions.
        """
        for name, value in plan_metrics[0].items():
            log_metric(name, value)
        return plan_reward

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, every = state.global_step, self._recipe.run.eval_every
        self._training_log.end_step(step)
        if every and step % every == 0:
            self._measure(step)
        stop_after_minutes(self._recipe, self._training_log, control)

    def _measure(self, step: int) -> None:
        """Measure the policy on held-out exercises, each process its share of them.

        Everyday questions are logged apart: they say nothing about what is learned.
        """
        accelerator = self._trainer.accelerator
        share = self._held_out[accelerator.process_index :: accelerator.num_processes]
        temperature = self._recipe.run.eval_temperature
        if self._grpo.vllm is not None:
            self._trainer.vllm_generation.sync_weights()
        with self._gather_model():
            measured = self._rollouts.measure(share, temperature, self._trainer.async_loop)
        found = gather_object(measured)
        everyday = [rollout.score.right for rollout in found if rollout.kind == EVERYDAY]
        self._training_log.log_measurement(
            step,
            self._diagnose([one for one in found if one.kind != EVERYDAY]),
            everyday=fmean(everyday) if everyday else None,
        )

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kept: Any) -> None:
        """Skip the update if a gradient is not finite; it would spoil the whole model."""
        if dropped := getattr(self._trainer, "dropped_passes", 0):
            self._training_log.warn(f"{dropped} passes had a gradient that is not finite")
            self._trainer.dropped_passes = 0
        parameters = [p for p in kept["model"].parameters() if p.grad is not None]
        if all_finite([p.grad for p in parameters]):
            return
        self._training_log.warn("a gradient is not finite; the step was left out")
        if self._trainer.accelerator.scaler is None:  # a gradient scaler skips the step itself
            for parameter in parameters:
                parameter.grad = None  # with a zero, momentum would still move the parameter

    def _gather_model(self) -> AbstractContextManager[Any]:
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


def grpo_config(recipe: Recipe) -> GRPOConfig:
    grpo = recipe.grpo
    assert grpo is not None
    rows = rows_per_process(grpo.questions, grpo.rollouts)
    micro_batch = grpo.micro_batch or rows
    if grpo.max_pass_tokens is not None and process_count() > 1:
        raise ConfigError(
            "grpo.max_pass_tokens is for one process; with several, drop it and use "
            "grpo.micro_batch"
        )
    if rows % micro_batch:
        raise ConfigError(
            f"the {rows} rollouts of a step, on each of {process_count()} processes, cannot be "
            f"divided by {micro_batch}; change grpo.micro_batch"
        )
    together = min(rows, grpo.rollouts)
    if together < grpo.rollouts and (problem := recipe.group_problem(together)):
        raise ConfigError(
            f"each of {process_count()} processes has {together} of the {grpo.rollouts} "
            f"rollouts of a question: {problem}"
        )
    recursion = recipe.recursion
    computes_advantages = recursion is not None and recursion.normalise_per_round
    if computes_advantages and rows % grpo.rollouts:
        raise ConfigError(
            f"recursion.normalise_per_round needs all {grpo.rollouts} rollouts of a question on "
            f"one process; use at most {grpo.questions} of them"
        )
    shared = trainer_arguments(recipe, grpo)
    return GRPOConfig(
        **shared,
        **_vllm_arguments(grpo),
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=rows // micro_batch,
        num_generations=grpo.rollouts,
        max_completion_length=grpo.max_completion_tokens,
        temperature=grpo.temperature,
        top_p=grpo.top_p,
        top_k=grpo.top_k,
        max_grad_norm=grpo.max_grad_norm,
        epsilon=grpo.clip,
        epsilon_high=grpo.clip_high,
        beta=grpo.beta,
        loss_type=grpo.loss_type,
        scale_rewards="none" if computes_advantages else grpo.scale_rewards,
        mask_truncated_completions=grpo.mask_truncated,
        num_iterations=grpo.num_iterations,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        bf16=autocast_dtype(recipe) is torch.bfloat16,
        fp16=autocast_dtype(recipe) is torch.float16,
        shuffle_dataset=False,
        data_seed=shared["seed"],
        logging_steps=1,
        logging_strategy="steps",
    )


def _vllm_arguments(grpo: GrpoTable) -> dict[str, Any]:
    """Return TRL's settings of vLLM.

    Plans of exploration have no log-probabilities of vLLM's, so none are compared with its.
    """
    vllm = grpo.vllm
    if vllm is None:
        return {}
    return {
        "use_vllm": True,
        "vllm_mode": vllm.mode,
        "vllm_server_base_url": vllm.url if vllm.mode == "server" else None,
        "vllm_gpu_memory_utilization": vllm.memory,
        "vllm_tensor_parallel_size": vllm.tensor_parallel,
        "vllm_enable_sleep_mode": vllm.sleep,
        "vllm_max_model_length": grpo.max_prompt_tokens + grpo.max_completion_tokens,
        "vllm_importance_sampling_correction": False,
    }


def rows_per_process(questions: int, rollouts: int) -> int:
    """Return the rollouts of a step on each process: whole questions, or equal shares of one."""
    rows, left = divmod(questions * rollouts, process_count())
    if left or not rows or (rows % rollouts and rollouts % rows):
        raise ConfigError(
            f"{questions} questions with {rollouts} rollouts each cannot be divided among "
            f"{process_count()} processes; give every process whole questions, or let several "
            f"share one: change grpo.questions or grpo.rollouts"
        )
    return rows
