"""A recipe as arguments of transformers' and TRL's trainers, and their shared callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from accelerate.utils import gather_object
from huggingface_hub import constants
from transformers import PrinterCallback
from transformers.utils import logging

from podium.train.recipe import Recipe
from podium.train.schema import OptimiserTable
from podium.train.training_log import CHECKPOINTS, TrainingLog
from podium.workers.local.pretrained import data_type

# TRL reports every training to the hub otherwise; Podium sends no telemetry.
constants.HF_HUB_DISABLE_TELEMETRY = True


def stop_after_minutes(recipe: Recipe, training_log: TrainingLog, control: Any) -> None:
    """Stop with a checkpoint once the minutes are over; what one process sees counts for all."""
    minutes = recipe.run.minutes
    if minutes is not None and any(gather_object([training_log.seconds > minutes * 60])):
        control.should_save = control.should_training_stop = True


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
    run = recipe.run
    return {
        "output_dir": str(recipe.output / CHECKPOINTS),
        "max_steps": optimiser.steps,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": optimiser.schedule,
        "warmup_steps": round(optimiser.warmup_ratio * optimiser.steps),
        "adam_beta1": optimiser.adam_beta1,
        "adam_beta2": optimiser.adam_beta2,
        "adam_epsilon": optimiser.adam_epsilon,
        "weight_decay": optimiser.weight_decay,
        "use_cpu": not torch.cuda.is_available(),
        "seed": run.seed,
        "save_steps": run.save_every,
        "save_total_limit": run.max_checkpoints,
        "report_to": sorted(run.log - {"jsonl"}),
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
    }


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
