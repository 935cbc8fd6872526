"""What every trainer is told of a recipe, whichever way a model learns: the optimiser and its
schedule, the checkpoints, and where metrics go."""

from __future__ import annotations

from typing import Any

import torch

from podium.routing.seeds import known_seed
from podium.train.checkpoints import DIRECTORY
from podium.train.method import OptimiserTable
from podium.train.recipe import Recipe


def trainer_arguments(recipe: Recipe, optimiser: OptimiserTable) -> dict[str, Any]:
    """By the names of transformers' `TrainingArguments`."""
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
        "seed": known_seed(run.seed),
        "save_steps": run.save_every,
        "save_total_limit": run.keep,
        "report_to": sorted(run.log - {"jsonl"}),
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
    }
