"""A recipe: one TOML file that says everything about one training, checked before it begins.

    recipe = read_recipe(Path("recipes/etudes.toml"), overrides=["prompt.few_shot=false"])

The form of the file is `schema` and `method`, what its keys mean together `misfits`; here it is
read, and overridden from the command line. Whether the world around it fits (paths, disk, pool)
is `preflight`. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from podium.config.files import read_toml
from podium.config.problems import validation_problem
from podium.core.errors import ConfigError
from podium.train.method import EstimateTable, EvolveTable, GrpoTable, RunTable, SftTable
from podium.train.recipe_checks import Kind, misfits, unknown_names
from podium.train.rewards import PAPER
from podium.train.schema import (
    DataTable,
    ModelTable,
    PoolTable,
    PromptTable,
    RecursionTable,
    RewardTable,
    WorkersTable,
)
from podium.workers.catalogue import Table

FIXED_SUBTASK: Final = "Solve the user question"
"""What every worker is told when subtasks are fixed, as in the paper's ablation."""

NOT_THE_RECIPE: Final = {
    "run": set(RunTable.model_fields) - {"seed"},
    "estimate": True,
}
"""What may change when a training goes on: none of it changes what is learned."""


class Recipe(Table):
    """A whole recipe."""

    model: ModelTable
    data: DataTable
    sft: SftTable | None = Field(default=None)
    grpo: GrpoTable | None = Field(default=None)
    evolve: EvolveTable | None = Field(default=None)
    pool: PoolTable = PoolTable()
    prompt: PromptTable = PromptTable()
    reward: RewardTable = RewardTable()
    workers: WorkersTable = WorkersTable()
    recursion: RecursionTable | None = Field(default=None)
    run: RunTable
    estimate: EstimateTable = EstimateTable()

    @property
    def kind(self) -> Kind:
        """Which way of training it is for."""
        if self.evolve is not None:
            return "evolve"
        return "sft" if self.sft is not None else "grpo"

    @property
    def training(self) -> SftTable | GrpoTable | EvolveTable:
        """The table of that way of training."""
        training = self.sft or self.grpo or self.evolve
        assert training is not None, "checked as it was read"
        return training

    @property
    def steps_a_batch(self) -> int:
        """How many steps go over the same questions."""
        return self.grpo.num_iterations if self.grpo is not None else 1

    @property
    def batches(self) -> int:
        """How often there are new questions."""
        return -(-self.training.steps // self.steps_a_batch)

    @property
    def output(self) -> Path:
        """The directory of everything that comes out."""
        return Path(self.run.output)

    @property
    def worker_base(self) -> str:
        """What the adapters of the études' workers are for."""
        return self.pool.base or self.model.base

    @property
    def fingerprint(self) -> str:
        """The same for two recipes that teach the same in the same way, on whatever machine. A key
        at its default counts as not written: what began before there was such a key goes on. Files
        count by their names, and adapters, many of which have one name, by their training's too."""
        elsewhere = self._with_paths(
            lambda path: Path(path).name, lambda path: "/".join(Path(path).parts[-2:])
        )
        values = elsewhere.model_dump(
            exclude=NOT_THE_RECIPE,  # type: ignore[arg-type]
            exclude_defaults=True,
        )
        values["reward"] = {
            name: value
            for name, value in asdict(self.reward.reward()).items()
            if value != getattr(PAPER, name)
        }  # a preset and its numbers written out are the same reward
        text = json.dumps(values, sort_keys=True, default=sorted)  # sets have no order
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def files(self) -> Iterator[tuple[str, Path]]:
        """Everything that must be on this machine before it begins, by the key that names it."""
        for key, name in (("model.base", self.model.base), ("pool.base", self.pool.base)):
            if name is not None and is_path(name):
                yield key, Path(name)
        if self.model.adapter is not None:
            yield "model.adapter", Path(self.model.adapter)
        for name, path in self.model.adapters.items():
            yield f"model.adapters.{name}", Path(path)
        if self.pool.file is not None:
            yield "pool.file", Path(self.pool.file)
        for role, name in self.pool.adapters.items():
            if name:
                yield f"pool.adapters.{role}", Path(name)
        data = self.data
        for kind in ("mix", "file", "suite"):
            table = getattr(data, kind)
            if table is not None and table.path is not None:
                yield f"data.{kind}.path", Path(table.path)

    def anchored(self, directory: Path) -> Recipe:
        """This recipe with every path in it counted from the directory it lies in."""
        return self._with_paths(lambda path: normpath(directory / Path(path).expanduser()))

    def _with_paths(
        self, at: Callable[[str], str], of_adapter: Callable[[str], str] | None = None
    ) -> Recipe:
        """This recipe with each of its paths put in another way, those of adapters perhaps in one
        of their own."""
        of_adapter = of_adapter or at

        def model(name: str | None) -> str | None:
            return at(name) if name is not None and is_path(name) else name

        changed: dict[str, Any] = self.model_dump(exclude_unset=True)
        changed["model"]["base"] = model(self.model.base)
        changed["run"]["output"] = at(self.run.output)
        if self.model.adapter is not None:
            changed["model"]["adapter"] = of_adapter(self.model.adapter)
        if self.model.adapters:
            begun = {name: of_adapter(path) for name, path in self.model.adapters.items()}
            changed["model"]["adapters"] = begun
        if self.pool.file is not None:
            changed["pool"]["file"] = at(self.pool.file)
        if self.pool.base is not None:
            changed["pool"]["base"] = model(self.pool.base)
        if self.pool.adapters:
            adapters = {
                role: of_adapter(name) if name else "" for role, name in self.pool.adapters.items()
            }
            changed["pool"]["adapters"] = adapters
        for kind in ("mix", "file", "suite"):
            table = getattr(self.data, kind)
            if table is not None and table.path is not None:
                changed["data"][kind]["path"] = at(table.path)
        return Recipe.model_validate(changed)


def read_recipe(path: Path, overrides: Sequence[str] = (), *, kind: Kind | None = None) -> Recipe:
    """The recipe in that file, with `key=value` overrides, for that way of training."""
    document = read_toml(path, "recipe")
    for override in overrides:
        override_in(document, override)
    told = "".join(f" --set {override}" for override in overrides)
    source = f"{path} with{told}" if told else str(path)
    try:
        recipe = Recipe.model_validate(document)
    except ValidationError as error:
        raise validation_problem(source, error, Recipe) from None
    for problem in (*misfits(recipe, kind), *unknown_names(recipe)):
        raise ConfigError(f"{source}: {problem}")
    return recipe.anchored(path.absolute().parent)


def is_path(model: str) -> bool:
    """Whether a model is named by where it lies on this machine."""
    return model.startswith((".", "/", "~")) or model.endswith(".gguf")


# ---- reading


def override_in(document: dict[str, Any], override: str) -> None:
    """Put `table.key=value` into the document; an empty value takes the key out of it."""
    dotted, equals, text = override.partition("=")
    *tables, key = dotted.strip().split(".")
    if not equals or not tables or not all((*tables, key)):
        raise ConfigError(
            f"--set {override}: expected table.key=value, such as prompt.few_shot=false"
        )
    table: Any = document
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(
                f"--set {override}: {name} is no table whose keys can be set one by one; "
                f"change it in the recipe"
            )
    if text.strip():
        table[key] = _value(text.strip())
    else:
        table.pop(key, None)


def _value(text: str) -> Any:
    """What TOML makes of the text; a text that is no TOML is meant as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
