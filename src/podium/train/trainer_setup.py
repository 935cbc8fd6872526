"""A recipe as arguments of transformers' and TRL's trainers, and their shared callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import gather_object
from huggingface_hub import constants
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging
from trl import GRPOConfig

from podium.conductors.routing.arrays import normalize_seed
from podium.core.errors import ConfigError
from podium.train.recipe import Recipe, group_problems
from podium.train.runtime import DIRECTORY, process_count
from podium.train.schema import OptimiserTable
from podium.train.training_log import TrainingLog
from podium.workers.local.pretrained import data_type

# TRL reports every training to the hub otherwise; Podium sends no telemetry.
constants.HF_HUB_DISABLE_TELEMETRY = True


class StopAfterMinutes(TrainerCallback):
    """Stops with a checkpoint once the minutes are over, all processes after the same step."""

    def __init__(self, minutes: float | None, training_log: TrainingLog) -> None:
        self._minutes = minutes
        self._training_log = training_log

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Look at the clock; what one process sees counts for all."""
        if self._minutes is None:
            return control
        is_over = self._training_log.seconds > self._minutes * 60
        if any(gather_object([is_over])):
            control.should_save = True
            control.should_training_stop = True
        return control


@contextmanager
def silence(trainer: Any) -> Iterator[None]:
    """Silence the trainer; the training log prints instead."""
    trainer.remove_callback(PrinterCallback)
    usual = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(usual)


def trainer_arguments(recipe: Recipe, optimiser: OptimiserTable) -> dict[str, Any]:
    """Return arguments of transformers' `TrainingArguments`."""
    run = recipe.run
    return {
        "output_dir": str(recipe.output / DIRECTORY),
        "max_steps": optimiser.steps,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.schedule,
        "warmup_steps": round(optimiser.warmup_ratio * optimiser.steps),
        "adam_beta1": optimiser.adam_beta1,
        "adam_beta2": optimiser.adam_beta2,
        "adam_epsilon": optimiser.adam_epsilon,
        "weight_decay": optimiser.weight_decay,
        "use_cpu": not torch.cuda.is_available(),
        "seed": normalize_seed(run.seed),
        "save_steps": run.save_every,
        "save_total_limit": run.keep,
        "report_to": sorted(run.log - {"jsonl"}),
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
    }


def grpo_config(recipe: Recipe) -> GRPOConfig:
    """Return TRL's configuration for the recipe."""
    grpo = recipe.grpo
    assert grpo is not None
    rows = rows_per_process(grpo.questions, grpo.rollouts)
    micro_batch = grpo.micro_batch or rows
    if grpo.max_tokens is not None and process_count() > 1:
        raise ConfigError(
            "grpo.max_tokens is for one process; with several, drop it and use grpo.micro_batch"
        )
    if rows % micro_batch:
        raise ConfigError(
            f"the {rows} rollouts of a step, on each of {process_count()} processes, cannot be "
            f"divided by {micro_batch}; change grpo.micro_batch"
        )
    together = min(rows, grpo.rollouts)
    if together < grpo.rollouts:
        for problem in group_problems(recipe, grpo, together):
            raise ConfigError(
                f"each of {process_count()} processes has {together} of the {grpo.rollouts} "
                f"rollouts of a question: {problem}"
            )
    recursion = recipe.recursion
    are_compared_by_us = recursion is not None and recursion.normalise_per_round
    if are_compared_by_us and rows % grpo.rollouts:
        raise ConfigError(
            f"recursion.normalise_per_round needs all {grpo.rollouts} rollouts of a question on "
            f"one process; use at most {grpo.questions} of them"
        )
    return GRPOConfig(
        **trainer_arguments(recipe, grpo),
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
        entropy_coef=grpo.entropy,
        loss_type=grpo.loss_type,
        scale_rewards="none" if are_compared_by_us else grpo.scale_rewards,
        mask_truncated_completions=grpo.mask_truncated,
        num_iterations=grpo.num_iterations,
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        bf16=autocast_dtype(recipe) is torch.bfloat16,
        fp16=autocast_dtype(recipe) is torch.float16,
        shuffle_dataset=False,
        data_seed=normalize_seed(recipe.run.seed),
        logging_steps=1,
        logging_strategy="steps",
    )


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


def parameter_dtype(recipe: Recipe) -> torch.dtype:
    """Return the data type of the base model's parameters; adapters always have 32 bits."""
    if recipe.model.lora is None or not torch.cuda.is_available():
        return torch.float32
    return data_type(recipe.model.dtype)


def autocast_dtype(recipe: Recipe) -> torch.dtype | None:
    """Return the data type of mixed-precision computing, if any."""
    dtype = data_type(recipe.model.dtype)
    is_mixed = torch.cuda.is_available() and dtype is not torch.float32
    return dtype if is_mixed else None


def autocast(recipe: Recipe) -> AbstractContextManager[Any]:
    """Return the context in which a wholly trained model computes in mixed precision."""
    dtype = autocast_dtype(recipe)
    if dtype is None or recipe.model.lora is not None:
        return nullcontext()
    return torch.autocast("cuda", dtype)
