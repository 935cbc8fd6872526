"""Checks before hours are spent: everything that a recipe needs is there.

The recipe itself was checked as it was read. Here it meets the machine: files, the directory for
what comes out, room on the disk, the workers, the tasks. Needs no torch.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium._util.files import explain_write_errors, write_atomically
from podium.config.problems import validation_problem
from podium.core.errors import ConfigError, install_command
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Usage
from podium.train.diagnostics import needs_baselines
from podium.train.recipe import MAY_CHANGE_ON_RESUME, Kind, Recipe, is_path, keys_without_effect
from podium.train.schema import EvolveTable, GrpoTable, SftTable
from podium.train.templates import count_runs
from podium.train.training_log import last_checkpoint
from podium.workers.local.sources import parse_source, read_config

ASSUMED_POPULATION: Final = 32
"""Assumed candidates of a step of evolution: the default for the paper's 10,240 parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The sums over a whole training.

    `candidates` are those of one step of evolution. Memory, for each GPU, and hours are those of
    `compute`; None is unknown. `usd` is None if some workers are `unpriced`; `usd_priced` is for
    the calls to the others. `exploration_plans` are the most plans of exploring, which only
    `usd_max` includes: the cost if the most expensive worker got every call.
    """

    steps: int
    examples: int = 0
    questions: int = 0
    candidates: int = 0
    rollouts: int = 0
    exploration_plans: int = 0
    evaluation_plans: int = 0
    worker_calls: int = 0
    worker_input_tokens: int = 0
    worker_output_tokens: int = 0
    conductor_tokens: int = 0
    gpu_gb: float | None = None
    sampling_hours: float | None = None
    update_hours: float | None = None
    usd: float | None = 0.0
    usd_priced: float = 0.0
    usd_max: float = 0.0
    unpriced: tuple[str, ...] = ()


def estimate(recipe: Recipe, pool: Pool | None = None) -> Estimate:
    """Estimate calls, tokens and cost of a training; `sft` needs no pool without a search."""
    match recipe.training:
        case SftTable() as sft:
            examples = sft.steps * sft.batch * max(1, len(sft.adapters))
            runs = count_runs(recipe, pool) if pool is not None else 0
            calls = round(runs * recipe.estimate.calls_per_run)
            taken = (
                _estimate_calls(recipe, list(pool), calls) if pool and runs else Estimate(steps=0)
            )
            return replace(taken, steps=sft.steps, examples=examples, rollouts=runs)
        case GrpoTable() as grpo:
            assert pool is not None, "plans need workers"
            return _of_grpo(recipe, grpo, pool)
        case EvolveTable() as evolve:
            assert pool is not None, "a coordinator needs workers"
            return _of_evolve(recipe, evolve, pool)


def calls_per_run(recipe: Recipe) -> float:
    """Return the assumed calls of one run, at most the turns that it may have."""
    evolve = recipe.evolve
    if evolve is None:
        return recipe.estimate.calls_per_run
    return min(recipe.estimate.calls_per_run, evolve.turns) if evolve.roles else evolve.turns


def _of_grpo(recipe: Recipe, grpo: GrpoTable, pool: Pool) -> Estimate:
    questions = recipe.batches * grpo.questions
    rollouts, measured = questions * grpo.rollouts, _count_measured(recipe)
    tried = questions * (grpo.explore_tries or grpo.explore)
    workers = list(pool)
    calls = round((rollouts + measured) * recipe.estimate.calls_per_run)
    if recipe.answers is not None:
        calls = (questions + measured) * len(recipe.answers.earlier_steps)
    if needs_baselines(recipe, pool):
        calls += recipe.run.eval_tasks * len(workers)
    return replace(
        _estimate_calls(recipe, workers, calls, more=round(tried * recipe.estimate.calls_per_run)),
        steps=grpo.steps,
        questions=questions,
        rollouts=rollouts,
        exploration_plans=tried,
        evaluation_plans=measured,
        conductor_tokens=(rollouts + measured) * grpo.max_completion_tokens,
        gpu_gb=gpu_gigabytes(recipe, grpo, count_parameters(recipe.model.base)),
        sampling_hours=sampling_hours(recipe, rollouts + measured),
        update_hours=update_hours(recipe, grpo, rollouts),
    )


VOCABULARY: Final = 152_000
"""Tokens of Qwen2.5's vocabulary, which decides what logits take."""

LOGIT_BYTES: Final = 20
"""Bytes of a logit during an update: half and single precision, and their gradients."""

PARAMETER_TOKENS_PER_SECOND: Final = 5.2e13
"""Measured on an H200: 29,300 tokens/s of a model with 1.78 billion parameters, 256 rows."""

FLOPS: Final = 2.1e14
"""Measured on an H200: a LoRA update of that model at 20,200 tokens/s."""


def gpu_gigabytes(recipe: Recipe, grpo: GrpoTable, parameters: int) -> float:
    """Estimate the memory of each GPU in a step; docs/reference/training.md has the formulas."""
    lora, gpus = recipe.model.lora, recipe.estimate.gpus
    trained = parameters * (1.0 if lora is None else min(1.0, ADAPTER_SHARE_PER_RANK * lora.rank))
    states = 16 * trained / gpus  # weights, gradients and AdamW's two, in 32 bits
    copies = 0.0 if lora is None else 1.0 + (grpo.vllm is None)
    if grpo.vllm is not None and grpo.vllm.mode == "colocate":
        copies += 1 / grpo.vllm.tensor_parallel
    rows = grpo.micro_batch or grpo.questions * grpo.rollouts / gpus
    plans = min(rows * grpo.max_completion_tokens, grpo.max_pass_tokens or math.inf)
    read = grpo.max_pass_tokens or rows * (
        recipe.estimate.policy_input_tokens + grpo.max_completion_tokens
    )
    width = (128 * parameters / 12) ** (1 / 3)  # of a model with a layer for every 128 of it
    layers = width / 128
    is_recomputed = recipe.model.gradient_checkpointing or grpo.max_pass_tokens is not None
    kept = 2 * layers + 34 if is_recomputed else 34 * layers
    activations = read * width * kept + plans * VOCABULARY * LOGIT_BYTES
    return float(states + copies * BYTES_PER_WEIGHT * parameters + activations) / 1e9


def sampling_hours(recipe: Recipe, plans: int) -> float:
    tokens = plans * recipe.estimate.policy_output_tokens
    speed = PARAMETER_TOKENS_PER_SECOND * recipe.estimate.gpus
    return tokens * count_parameters(recipe.model.base) / speed / 3600


def update_hours(recipe: Recipe, grpo: GrpoTable, rollouts: int) -> float:
    assumed, is_shared = recipe.estimate, grpo.max_pass_tokens is not None
    prompt = assumed.policy_input_tokens / (grpo.rollouts if is_shared else 1)
    tokens = rollouts * grpo.num_iterations * (prompt + assumed.policy_output_tokens)
    products = 4 + 2 * (recipe.model.lora is None)
    products += 2 * (recipe.model.gradient_checkpointing or is_shared)
    work = tokens * products * count_parameters(recipe.model.base)
    return work / (FLOPS * assumed.gpus) / 3600


def _of_evolve(recipe: Recipe, evolve: EvolveTable, pool: Pool) -> Estimate:
    questions = evolve.steps * evolve.questions
    candidates = evolve.population or ASSUMED_POPULATION
    rollouts, measured = questions * candidates, _count_measured(recipe)
    calls = round((rollouts + measured) * calls_per_run(recipe))
    return replace(
        _estimate_calls(recipe, list(pool), calls),
        steps=evolve.steps,
        questions=questions,
        candidates=candidates,
        rollouts=rollouts,
        evaluation_plans=measured,
    )


def _count_measured(recipe: Recipe) -> int:
    every = recipe.run.eval_every
    return recipe.training.steps // every * recipe.run.eval_tasks if every else 0


def _estimate_calls(
    recipe: Recipe, workers: Sequence[WorkerProfile], calls: int, *, more: int = 0
) -> Estimate:
    """Return the cost of that many calls to these workers, and perhaps as many `more`."""
    assumed = recipe.estimate
    costs = [_cost_per_call(recipe, worker) for worker in workers]
    known = [cost for cost in costs if cost is not None]
    usd_priced = calls * sum(known) / len(workers)
    return Estimate(
        steps=0,
        worker_calls=calls,
        worker_input_tokens=calls * assumed.worker_input_tokens,
        worker_output_tokens=calls * assumed.worker_output_tokens,
        usd=usd_priced if len(known) == len(workers) else None,
        usd_priced=usd_priced,
        usd_max=(calls + more) * max(known, default=0.0),
        unpriced=tuple(worker.name for worker in workers if worker.price is None),
    )


def _cost_per_call(recipe: Recipe, worker: WorkerProfile) -> float | None:
    assumed = recipe.estimate
    usage = Usage(assumed.worker_input_tokens, assumed.worker_output_tokens, 0, 0, 0)
    return worker.price.cost(usage) if worker.price is not None else None


RECIPE_FILE: Final = "recipe.json"
PACKAGES: Final = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
EVOLUTION_PACKAGES: Final = ("torch", "transformers", "gguf", "safetensors", "cmaes")

TRACKERS: Final[dict[str, tuple[str, ...]]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
}
"""Packages of experiment trackers; one of each is enough."""

BYTES_PER_PARAMETER: Final = 14
"""Of a checkpoint: weights in 16 bits, and AdamW's state in 32."""

BYTES_PER_WEIGHT: Final = 2
ADAPTER_SHARE_PER_RANK: Final = 0.0025
"""An adapter's share of a model's parameters for each rank, at most."""

UNKNOWN_PARAMETERS: Final = 1_000_000_000
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s?([BbMm])(?![A-Za-z0-9])")


def require_packages(kind: Kind | None = None) -> None:
    needed = EVOLUTION_PACKAGES if kind == "evolve" else PACKAGES
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training needs the extra train, and {', '.join(missing)} cannot be found; "
            f"{install_command('train')}"
        )


def require_trackers(recipe: Recipe) -> None:
    """Raise `ConfigError` if vLLM or the package of a tracker in `run.log` is missing."""
    vllm = recipe.grpo.vllm if recipe.grpo is not None else None
    if vllm is not None and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "grpo.vllm needs the package vllm, which cannot be found; pip install 'trl[vllm]', or "
            "drop the table"
        )
    for name in sorted(recipe.run.log):
        packages = TRACKERS.get(name, ())
        if packages and all(importlib.util.find_spec(package) is None for package in packages):
            raise ConfigError(
                f"run.log names {name}, and the package {packages[0]} cannot be found; "
                f"pip install {packages[0]}, or drop it from run.log"
            )


def missing_files(recipe: Recipe) -> Iterator[str]:
    for key, path in recipe.files():
        if not path.exists():
            yield f"{key}: there is no {path}{_producing_recipe(path)}"
    for key, name in (("model.base", recipe.model.base), ("pool.base", recipe.pool.base)):
        if name is not None and not is_path(name) and "/" not in name:
            try:
                parse_source(name)
            except ConfigError as error:
                yield f"{key}: {error}"


def _producing_recipe(path: Path) -> str:
    """Name the recipe that makes the file, if any: recipes/NAME.toml writes trained/NAME."""
    recipe = path.parent.parent.parent / "recipes" / f"{path.parent.name}.toml"
    return f", which {recipe} makes" if recipe.is_file() else ""


def check_files(recipe: Recipe) -> None:
    first, *others = (*missing_files(recipe), "")
    if first:
        more = f" ({len(others) - 1} more are missing)" if len(others) > 1 else ""
        raise ConfigError(f"{first}; make it first, or name another{more}")


def check_adapters(recipe: Recipe) -> None:
    """Raise `ConfigError` if an adapter to start from has another rank, alpha or layers."""
    lora = recipe.model.lora
    if lora is None:
        return
    for key, adapter in recipe.files():
        if not key.startswith("model.adapter"):
            continue
        found = read_config(adapter)
        if (found.rank, found.alpha) != (lora.rank, lora.alpha):
            raise ConfigError(
                f"{key}: {adapter} has rank {found.rank} and alpha {found.alpha:g}, but the "
                f"recipe says {lora.rank} and {lora.alpha:g}; let them be the same"
            )
        targets = found.raw.get("target_modules")
        if isinstance(targets, list) and set(targets) != lora.targets:
            raise ConfigError(
                f"{key}: {adapter} is for {', '.join(sorted(targets))}, but model.lora.targets are "
                f"{', '.join(sorted(lora.targets))}; let them be the same"
            )


def check_output(recipe: Recipe, *, resume: bool) -> None:
    """Raise `ConfigError` if the output holds something else, or would be overwritten."""
    output = recipe.output
    if not output.exists():
        if resume:
            raise ConfigError(f"there is no {output}, so nothing to resume; begin without --resume")
        return
    if not output.is_dir():
        raise ConfigError(f"{output} is a file; name another directory with --output")
    if not any(output.iterdir()):
        return
    begun = _read_claim(output)
    if begun.fingerprint != recipe.fingerprint:
        raise ConfigError(
            f"{output} holds the training of another recipe, which differs in "
            f"{_differences(recipe, begun)}; name another directory with --output"
        )
    if recipe.kind == "evolve" and (output / "coordinator").exists():
        raise ConfigError(f"{output} holds a coordinator; name another directory with --output")
    if has_checkpoint(output) and not resume:
        raise ConfigError(
            f"{output} holds this training already; continue it with --resume, or name another "
            f"directory with --output"
        )


def claim_output(recipe: Recipe) -> None:
    """Make the output directory and write the recipe there; the disk must have room."""
    document = {"recipe": effective_values(recipe)}
    with explain_write_errors(recipe.output, disk_bytes(recipe), option="--output"):
        write_atomically(recipe.output / RECIPE_FILE, json.dumps(document, indent=2) + "\n")


def has_checkpoint(output: Path) -> bool:
    return last_checkpoint(output) is not None


def disk_bytes(recipe: Recipe) -> int:
    """Estimate the disk space of the reply cache and the checkpoints."""
    kept = recipe.run.cache_mb * 1_000_000 if recipe.executes else 0
    if recipe.kind == "evolve":
        return kept  # evolution keeps no checkpoints
    parameters = float(count_parameters(recipe.model.base))
    if recipe.model.lora is not None:
        adapters = len(recipe.sft.adapters) if recipe.sft and recipe.sft.adapters else 1
        parameters *= min(1.0, ADAPTER_SHARE_PER_RANK * recipe.model.lora.rank) * adapters
    checkpoints = parameters * BYTES_PER_PARAMETER * (recipe.run.max_checkpoints + 1)
    return int(checkpoints) + kept


def count_parameters(base: str) -> int:
    """Return a model's size by its files, else by its name, else a guess."""
    weights = sum(file.stat().st_size for file in Path(base).glob("*.safetensors"))
    if weights:
        return weights // BYTES_PER_WEIGHT
    sizes = _SIZE.findall(Path(base).name) or _SIZE.findall(base)
    if not sizes:
        return UNKNOWN_PARAMETERS
    number, unit = sizes[-1]
    return int(float(number) * (1e9 if unit in "Bb" else 1e6))


def _read_claim(output: Path) -> Recipe:
    try:
        claim = json.loads((output / RECIPE_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        claim = None
    kept = claim.get("recipe") if isinstance(claim, dict) else None
    if not isinstance(kept, dict):
        raise ConfigError(
            f"{output} holds something that is no training; name another directory with --output"
        )
    try:
        return Recipe.model_validate(kept)
    except ValidationError as error:
        problem = validation_problem(output / RECIPE_FILE, error, Recipe)
        raise ConfigError(
            f"{problem}; this Podium cannot resume that training: use the one that it began "
            f"with, or name another directory with --output"
        ) from error


def effective_values(recipe: Recipe) -> dict[str, Any]:
    """Return the values of the recipe that have an effect, as JSON."""
    values: dict[str, Any] = json.loads(json.dumps(recipe.model_dump(), default=sorted))
    values["reward"] |= asdict(recipe.reward.reward())
    for key, _ in keys_without_effect(recipe):
        *tables, last = key.split(".")
        table: Any = values
        for name in tables:
            table = table.get(name) or {}
        table.pop(last, None)
    return values


def _differences(recipe: Recipe, begun: Recipe) -> str:
    theirs, ours = flat(effective_values(begun)), flat(effective_values(recipe))
    keys = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    keys = [
        key for key in keys if key == "run.seed" or key.split(".")[0] not in MAY_CHANGE_ON_RESUME
    ]
    return ", ".join(keys[:5]) or "its form"


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return values by dotted key; lists and empty tables are values."""
    values: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values
