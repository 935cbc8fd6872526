"""What is checked before hours are spent: that everything a recipe needs is there.

The recipe itself was checked as it was read. Here it meets the machine: files, the directory for
what comes out, room on the disk, the workers, the tasks. Needs no torch.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium.config.problems import form_problem
from podium.errors import ConfigError, installing
from podium.files import write_whole, writing
from podium.local.adapter_files import read_config
from podium.local.sources import source
from podium.train.checkpoints import last_checkpoint
from podium.train.misfits import Kind, idle_keys
from podium.train.recipe import NOT_THE_RECIPE, Recipe, is_path

RECIPE_FILE: Final = "recipe.json"
"""Lies in the directory of a training, and says whose it is."""

PACKAGES: Final = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
EVOLUTION_PACKAGES: Final = ("torch", "transformers", "gguf", "safetensors", "cmaes")
"""What evolution needs, which has no trainer beneath it."""

TRACKERS: Final[dict[str, tuple[str, ...]]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
}
"""The packages through which metrics go elsewhere, of which one is enough."""

BYTES_A_PARAMETER: Final = 14
"""Of a checkpoint: the weights in 16 bits, and what AdamW keeps in 32."""

BYTES_A_WEIGHT: Final = 2
"""Of a model's files, at least."""

ADAPTED_A_RANK: Final = 0.0025
"""The share of a model's parameters that an adapter has for each of its rank, at most."""

UNKNOWN_PARAMETERS: Final = 1_000_000_000
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s?([BbMm])(?![A-Za-z0-9])")


def require_packages(kind: Kind | None = None) -> None:
    """Refuse to begin without what training in that way needs."""
    needed = EVOLUTION_PACKAGES if kind == "evolve" else PACKAGES
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training needs the extra train, and {', '.join(missing)} cannot be found; "
            f"{installing('train')}"
        )


def require_trackers(recipe: Recipe) -> None:
    """Refuse to begin without what the metrics are to go to."""
    for name in sorted(recipe.run.log):
        packages = TRACKERS.get(name, ())
        if packages and all(importlib.util.find_spec(package) is None for package in packages):
            raise ConfigError(
                f"run.log names {name}, and the package {packages[0]} cannot be found; "
                f"pip install {packages[0]}, or drop it from run.log"
            )


def missing_files(recipe: Recipe) -> Iterator[str]:
    """What the recipe names and this machine does not have, in words."""
    for key, path in recipe.files():
        if not path.exists():
            yield f"{key}: there is no {path}{_maker(path)}"
    for key, name in (("model.base", recipe.model.base), ("pool.base", recipe.pool.base)):
        if name is not None and not is_path(name) and "/" not in name:
            try:
                source(name)
            except ConfigError as error:
                yield f"{key}: {error}"


def _maker(path: Path) -> str:
    """The recipe beside that makes a file, if any: recipes/NAME.toml writes trained/NAME."""
    recipe = path.parent.parent.parent / "recipes" / f"{path.parent.name}.toml"
    return f", which {recipe} makes" if recipe.is_file() else ""


def check_files(recipe: Recipe) -> None:
    """Refuse to begin without the files that the recipe names."""
    first, *others = (*missing_files(recipe), "")
    if first:
        more = f" ({len(others) - 1} more are missing)" if len(others) > 1 else ""
        raise ConfigError(f"{first}; make it first, or name another{more}")


def check_adapters(recipe: Recipe) -> None:
    """Refuse to go on from an adapter that is of another size than the recipe says, or for other
    layers."""
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
        targets = found.said.get("target_modules")
        if isinstance(targets, list) and set(targets) != lora.targets:
            raise ConfigError(
                f"{key}: {adapter} is for {', '.join(sorted(targets))}, but model.lora.targets are "
                f"{', '.join(sorted(lora.targets))}; let them be the same"
            )


def check_output(recipe: Recipe, *, resume: bool) -> None:
    """Refuse a directory that holds something else, or a training that would be overwritten."""
    output = recipe.output
    if not output.exists():
        if resume:
            raise ConfigError(f"there is no {output}, so nothing to resume; begin without --resume")
        return
    if not output.is_dir():
        raise ConfigError(f"{output} is a file; name another directory with --output")
    if not any(output.iterdir()):
        return
    begun = _begun(output)
    if begun.fingerprint != recipe.fingerprint:
        raise ConfigError(
            f"{output} holds the training of another recipe, which differs in "
            f"{_differences(recipe, begun)}; name another directory with --output"
        )
    if has_checkpoint(output) and not resume:
        raise ConfigError(
            f"{output} holds this training already; go on with it by --resume, or name another "
            f"directory with --output"
        )


def claim_output(recipe: Recipe) -> None:
    """Make the directory of the training and write down whose it is; the disk must have room."""
    document = {"recipe": resolved(recipe)}
    with writing(recipe.output, disk_bytes(recipe), option="--output"):
        write_whole(recipe.output / RECIPE_FILE, json.dumps(document, indent=2) + "\n")


def has_checkpoint(output: Path) -> bool:
    """Whether there is something to go on from."""
    return last_checkpoint(output) is not None


def disk_bytes(recipe: Recipe) -> int:
    """About what the training writes at most: replies that are kept, and checkpoints."""
    kept = recipe.run.cache_mb * 1_000_000 if recipe.kind != "sft" else 0
    if recipe.kind == "evolve":
        return kept  # a checkpoint is as small as the coordinator
    parameters = float(_parameters(recipe.model.base))
    if recipe.model.lora is not None:
        adapters = len(recipe.sft.adapters) if recipe.sft and recipe.sft.adapters else 1
        parameters *= min(1.0, ADAPTED_A_RANK * recipe.model.lora.rank) * adapters
    checkpoints = parameters * BYTES_A_PARAMETER * (recipe.run.keep + 1)
    return int(checkpoints) + kept


def _parameters(base: str) -> int:
    """How large a model is by its files, else by its name; a guess where neither says."""
    weights = sum(file.stat().st_size for file in Path(base).glob("*.safetensors"))
    if weights:
        return weights // BYTES_A_WEIGHT
    sizes = _SIZE.findall(Path(base).name) or _SIZE.findall(base)
    if not sizes:
        return UNKNOWN_PARAMETERS
    number, unit = sizes[-1]
    return int(float(number) * (1e9 if unit in "Bb" else 1e6))


def _begun(output: Path) -> Recipe:
    """The recipe that the training in that directory began with."""
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
        problem = form_problem(output / RECIPE_FILE, error, Recipe)
        raise ConfigError(
            f"{problem}; this Podium cannot go on with that training: use the one that it began "
            f"with, or name another directory with --output"
        ) from error


def resolved(recipe: Recipe) -> dict[str, Any]:
    """Every value of the recipe that has an effect, as JSON can hold it."""
    values: dict[str, Any] = json.loads(json.dumps(recipe.model_dump(), default=sorted))
    values["reward"] |= asdict(recipe.reward.reward())
    for key, _ in idle_keys(recipe):
        *tables, last = key.split(".")
        table: Any = values
        for name in tables:
            table = table.get(name) or {}
        table.pop(last, None)
    return values


def _differences(recipe: Recipe, begun: Recipe) -> str:
    """The keys in which the two recipes differ."""
    theirs, ours = flat(resolved(begun)), flat(resolved(recipe))
    keys = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    keys = [key for key in keys if key == "run.seed" or key.split(".")[0] not in NOT_THE_RECIPE]
    return ", ".join(keys[:5]) or "its form"


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every value by its dotted key; lists and empty tables are values."""
    values: dict[str, Any] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping) and value:
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values
