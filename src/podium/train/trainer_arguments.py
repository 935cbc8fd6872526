"""What every trainer is told of a recipe, whichever way a model learns: the optimiser and its
schedule, the checkpoints, and where metrics go."""

from __future__ import annotations

from typing import Any

import torch

from podium.train.checkpoints import DIRECTORY
from podium.train.method import OptimiserTable
from podium.train.recipe import Recipe


def trainer_arguments(recipe: Recipe, table: OptimiserTable) -> dict[str, Any]:
    """By the names of transformers' `TrainingArguments`."""
    run = recipe.run
    return {
        "output_dir": str(recipe.output / DIRECTORY),
        "max_steps": table.steps,
        "learning_rate": table.learning_rate,
        "lr_scheduler_type": table.schedule,
        "warmup_steps": round(table.warmup_ratio * table.steps),
        "adam_beta1": table.adam_beta1,
        "adam_beta2": table.adam_beta2,
        "adam_epsilon": table.adam_epsilon,
        "weight_decay": table.weight_decay,
        "use_cpu": not torch.cuda.is_available(),
        "seed": run.seed,
        "save_steps": run.save_every,
        "save_total_limit": run.keep,
        "report_to": sorted(run.log - {"jsonl"}),
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
    }
