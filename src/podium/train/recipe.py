"""A recipe: one TOML file that says everything about one training, checked as it is read.

    recipe = read_recipe(Path("recipes/etudes.toml"), overrides=["prompt.few_shot=false"])

`podium.train.schema` has its tables. Whether files, disk and pool are there is checked by
`podium.train.preflight`. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from os.path import normpath
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from podium._util.files import read_toml
from podium._util.lab import lab_extra
from podium._util.tables import Table
from podium.config.problems import suggest, validation_problem
from podium.core.errors import ConfigError
from podium.train.data_schema import DataTable
from podium.train.schema import (
    AnswersTable,
    EstimateTable,
    EvolveTable,
    GrpoTable,
    ModelTable,
    PromptTable,
    RecipePoolTable,
    RecursionTable,
    RewardTable,
    RunTable,
    SftTable,
    WorkersTable,
)
from podium.train.score import PAPER

Kind = Literal["sft", "grpo", "evolve"]
AnyTable = TypeVar("AnyTable", bound=Table)

NOT_FOR_SFT: Final = ("reward", "workers", "recursion", "answers", "estimate")
"""Keys without effect where no plan is executed."""

NOT_FOR_TEMPLATES: Final = ("recursion", "answers")
"""The same with templates, which `sft.search_tasks` executes."""

NOT_FOR_DESCRIPTIONS: Final = (
    *("pool.file", "pool.subset", "pool.base", "pool.adapters", "pool.oracle"),
    "pool.shuffle",
    *("prompt.fixed_subtasks", "prompt.max_steps"),
)
"""Keys without effect where pools are only described."""

POOL_KEYS: Final = {"file": ("subset", "shuffle", "descriptions"), "adapters": ("base",)}
ETUDE_POOL_KEYS: Final = ("worker_dropout", "flaky_rate")
"""The keys of `[pool]` that go with each way of naming workers."""

ETUDE_KEYS: Final = {
    "unsure_share": ("specialists",),
    "assigned_share": ("plans",),
    "correct_split_share": ("plans",),
    "correct_access_share": ("plans",),
    "accepted_share": ("plans",),
    "everyday_share": ("plans", "reward"),
    "later_round_share": ("plans", "reward"),
    "nested_phrase_share": ("plans", "decisions", "reward"),
    "stage": ("plans", "decisions", "reward"),
}
"""The keys of `[data.etudes]`, and what teaches by each of them."""

DESCRIBED_POOL_DATASETS: Final = ("plans", "decisions")
NOT_FOR_EVOLUTION: Final = (
    *("prompt", "reward", "recursion", "answers"),
    *("model.adapter", "model.adapters", "model.lora", "model.dtype"),
    "model.gradient_checkpointing",
    *("pool.subset", "pool.shuffle", "pool.worker_dropout"),
    *("data.etudes.everyday_share", "data.etudes.later_round_share"),
    *("run.save_every", "run.max_checkpoints", "run.minutes"),
    *("run.eval_temperature", "run.baselines", "run.log"),
)
"""Keys without effect with `[evolve]`: it writes no plans and no checkpoints."""

FIXED_SUBTASK: Final = "Solve the user question"
"""Every subtask with `prompt.fixed_subtasks`, as in the paper's ablation."""

MAY_CHANGE_ON_RESUME: Final = {
    "run": set(RunTable.model_fields) - {"seed"},
    "estimate": True,
}
"""Keys that may change on resume: none of them changes what is learned."""


class Recipe(Table):
    """A whole recipe."""

    model: ModelTable
    data: DataTable
    sft: SftTable | None = Field(default=None)
    grpo: GrpoTable | None = Field(default=None)
    evolve: EvolveTable | None = Field(default=None)
    pool: RecipePoolTable = RecipePoolTable()
    prompt: PromptTable = PromptTable()
    reward: RewardTable = RewardTable()
    workers: WorkersTable = WorkersTable()
    recursion: RecursionTable | None = Field(default=None)
    answers: AnswersTable | None = Field(default=None)
    run: RunTable
    estimate: EstimateTable = EstimateTable()

    @model_validator(mode="after")
    def _check_tables(self) -> Self:
        if [self.sft, self.grpo, self.evolve].count(None) != 2:
            raise ValueError(
                "a recipe has one of the tables [sft], [grpo] and [evolve], and says so how it "
                "trains"
            )
        for key, reason in keys_without_effect(self):
            if self._is_written(key):
                raise ValueError(f"{key} has no effect {reason}; drop it")
        data, trained = self.data, set(self.sft.adapters) if self.sft is not None else set()
        if data.kind != "etudes" and getattr(data, data.kind) is None:
            raise ValueError(f'data.kind = "{data.kind}" needs a table [data.{data.kind}]')
        if self.model.adapters and self.model.adapters.keys() != trained:
            raise ValueError(
                "model.adapters names all of sft.adapters and nothing else; or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _check_sft(self) -> Self:
        sft, prompt = self.sft, self.prompt
        if sft is None:
            return self
        wanted = {"file": ("file",), "templates": ("mix", "suite")}.get(sft.dataset, ("etudes",))
        if self.data.kind not in wanted:
            raise ValueError(
                f'sft.dataset = "{sft.dataset}" needs data.kind = "{" or ".join(wanted)}"'
            )
        if (sft.dataset == "templates") != (sft.templates is not None):
            raise ValueError('sft.templates is the file for sft.dataset = "templates", and only so')
        if sft.search_tasks and sft.dataset != "templates":
            raise ValueError('sft.search_tasks is for sft.dataset = "templates"; drop it')
        if sft.dataset == "templates" and self.pool.file is None:
            raise ValueError('sft.dataset = "templates" needs a pool.file')
        if (sft.dataset == "specialists") != bool(sft.adapters):
            raise ValueError(
                'sft.adapters names the specialists where sft.dataset = "specialists", and only '
                "there"
            )
        if sft.adapters and self.model.lora is None:
            raise ValueError("sft.adapters needs a table [model.lora]; write one")
        if sft.dataset == "templates" and self.run.eval_every and self.data.kind == "suite":
            raise ValueError(
                f'run.eval_every is {self.run.eval_every}, but with data.kind = "suite" no task is '
                f"held out; drop it"
            )
        names_steps = sft.dataset in (*DESCRIBED_POOL_DATASETS, "templates")
        if names_steps and prompt.access == "binary" and self._is_written("prompt.access"):
            raise ValueError(
                f'{sft.dataset} name the steps that are read; write prompt.access = "index"'
            )
        if sft.dataset in DESCRIBED_POOL_DATASETS and not prompt.mask_names:
            raise ValueError(
                f"{sft.dataset} have no names for workers; write prompt.mask_names = true"
            )
        if sft.dataset == "decisions" and prompt.style != "trained":
            raise ValueError(
                'decisions have the form of trained conductors; write prompt.style = "trained"'
            )
        return self

    @model_validator(mode="after")
    def _check_pool(self) -> Self:
        pool, data = self.pool, self.data
        if self.sft is not None:
            return self
        if [pool.file is not None, bool(pool.adapters), pool.oracle].count(True) != 1:
            raise ValueError(
                "[pool] needs one of these: a file, the études' workers as adapters, or oracle = "
                "true"
            )
        if pool.roles and data.kind != "etudes":
            raise ValueError(
                'pool.adapters and pool.oracle are for the études; they need data.kind = "etudes"'
            )
        if self.run.eval_every and data.kind in ("file", "suite"):
            raise ValueError(
                f'run.eval_every is {self.run.eval_every}, but with data.kind = "{data.kind}" '
                f"every task is trained on and none is held out; drop it, and use podium eval run"
            )
        return self

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        stages, steps = self.data.etudes.stage, self.training.steps
        if self.sft is not None or not stages:
            return self
        if any((stage.steps or 0) % self.steps_per_batch for stage in stages):
            raise ValueError(
                f"data.etudes.stage: {self.steps_per_batch} steps have the same questions "
                f"(grpo.num_iterations); let every stage last a multiple of that"
            )
        lasting = sum(stage.steps or steps for stage in stages)
        if lasting < steps:
            raise ValueError(
                f"data.etudes.stage: the stages last {lasting} steps, and {self.kind}.steps is "
                f"{steps}; leave out the steps of the last one"
            )
        return self

    @model_validator(mode="after")
    def _check_grpo(self) -> Self:
        grpo, model, prompt = self.grpo, self.model, self.prompt
        if grpo is None:
            return self
        if problem := self.group_problem(grpo.rollouts):
            raise ValueError(problem)
        # All catalogued models are GGUF files.
        is_gguf = model.base.endswith(".gguf") or "/" not in model.base
        if grpo.beta and model.lora is None and is_gguf:
            raise ValueError(
                "grpo.beta needs model.base a second time, unchanged, and trainers cannot read "
                "that from GGUF; train an adapter ([model.lora]), or name the directory of the "
                "model"
            )
        if prompt.fixed_subtasks and self.pool.roles:
            raise ValueError(
                "prompt.fixed_subtasks: the études' workers see their subtask and not the "
                "question, so each of them needs one of its own; drop it, or lead the workers of "
                "a pool.file"
            )
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Name an unknown name of the études, with the nearest known one."""
        trained = sorted(self.sft.adapters) if self.sft is not None else []
        if self.data.kind != "etudes" and not self.pool.roles and not trained:
            return self
        with lab_extra():
            from podium_lab.etudes import FAMILIES, ROLES, TEST_ONLY_SHAPES, EtudeShape
        shapes = [shape.value for shape in EtudeShape if shape not in TEST_ONLY_SHAPES]
        for key, names, known in (
            (
                "data.etudes.stage.shapes",
                [shape for stage in self.data.etudes.stage for shape in stage.shapes],
                shapes,
            ),
            ("pool.adapters", [*self.pool.adapters], ROLES),
            ("sft.adapters", trained, [family.value for family in FAMILIES]),
        ):
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"{key}: nothing is called {name!r} here; {suggest(name, known)}"
                    )
        return self

    def group_problem(self, rollouts: int) -> str | None:
        """Return what is wrong with that many rollouts of a question in one process."""
        assert self.grpo is not None
        recursion, explore = self.recursion, self.grpo.explore
        second = recursion.second_round_count(rollouts) if recursion is not None else 0
        first = rollouts - second
        if recursion is not None and not 0 < second <= first:
            return (
                f"recursion.share is {recursion.share:g}, which makes {second} of {rollouts} "
                f"rollouts second rounds; each continues a first one of its own, so there must "
                f"be at least one and at most half"
            )
        if explore < first:
            return None
        which = "rollouts that continue no other" if second else "rollouts"
        return (
            f"grpo.explore is {explore}, and of {first} {which} at least one must stay; "
            f"write {first - 1} or less"
        )

    def _is_written(self, dotted: str) -> bool:
        table: Any = self
        for key in dotted.split("."):
            if table is None or key not in table.model_fields_set:
                return False
            table = getattr(table, key)
        return True

    @cached_property
    def kind(self) -> Kind:
        if self.evolve is not None:
            return "evolve"
        return "sft" if self.sft is not None else "grpo"

    @property
    def executes(self) -> bool:
        """True if the training executes plans with the pool's workers."""
        return self.sft is None or self.sft.search_tasks > 0

    @property
    def command(self) -> str:
        return f"podium {'lab' if self.kind == 'evolve' else 'train'} {self.kind}"

    @cached_property
    def training(self) -> SftTable | GrpoTable | EvolveTable:
        training = self.sft or self.grpo or self.evolve
        assert training is not None, "checked as it was read"
        return training

    @cached_property
    def steps_per_batch(self) -> int:
        """The number of steps over the same questions."""
        return self.grpo.num_iterations if self.grpo is not None else 1

    @cached_property
    def batches(self) -> int:
        return -(-self.training.steps // self.steps_per_batch)

    @cached_property
    def output(self) -> Path:
        return Path(self.run.output)

    @cached_property
    def worker_base(self) -> str:
        return self.pool.base or self.model.base

    @property
    def fingerprint(self) -> str:
        """Equal for recipes of the same training on any machine.

        A key at its default counts as not written, so that a new key does not stop a resume. Files
        count by name, adapters by the name of their training too.
        """
        elsewhere = self._with_paths(
            lambda key, path: "/".join(Path(path).parts[-2 if "adapter" in key else -1 :])
        )
        values = elsewhere.model_dump(
            exclude=MAY_CHANGE_ON_RESUME,  # type: ignore[arg-type]
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
        """Yield the files that must be on this machine, with the key that names each."""
        for key, path in self._paths():
            if key != "run.output":
                yield key, Path(path)

    def resolve_paths(self, directory: Path) -> Recipe:
        return self._with_paths(lambda _, path: normpath(directory / Path(path).expanduser()))

    def _paths(self) -> Iterator[tuple[str, str]]:
        named: dict[str, str | None] = {
            "run.output": self.run.output,
            "model.adapter": self.model.adapter,
            **{f"model.adapters.{name}": path for name, path in self.model.adapters.items()},
            "pool.file": self.pool.file,
            "sft.templates": self.sft.templates if self.sft is not None else None,
            **{f"pool.adapters.{role}": path for role, path in self.pool.adapters.items()},
        }
        for key, name in (("model.base", self.model.base), ("pool.base", self.pool.base)):
            if name is not None and is_path(name):
                yield key, name
        for kind in ("mix", "file", "suite"):
            table = getattr(self.data, kind)
            named[f"data.{kind}.path"] = None if table is None else table.path
        yield from ((key, path) for key, path in named.items() if path)

    def _with_paths(self, at: Callable[[str, str], str]) -> Recipe:
        changed: dict[str, Any] = self.model_dump(exclude_unset=True)
        for dotted, path in self._paths():
            *tables, key = dotted.split(".", 2)
            table = changed
            for name in tables:
                table = table[name]
            table[key] = at(dotted, path)
        return Recipe.model_validate(changed)


def keys_without_effect(recipe: Recipe) -> Iterator[tuple[str, str]]:
    data, sft = recipe.data, recipe.sft
    for kind in ("etudes", "mix", "file", "suite"):
        if kind != data.kind:
            yield f"data.{kind}", f'with data.kind = "{data.kind}"'
    dataset = sft.dataset if sft is not None else "reward"
    for key, teachers in ETUDE_KEYS.items():
        if dataset not in teachers:
            yield f"data.etudes.{key}", f'with sft.dataset = "{dataset}"'
    if sft is not None:
        unused = list(NOT_FOR_TEMPLATES if dataset == "templates" else NOT_FOR_SFT)
        if dataset == "plans":
            unused.append("pool.flaky_rate")
        if dataset != "templates":
            unused += (
                NOT_FOR_DESCRIPTIONS if dataset in DESCRIBED_POOL_DATASETS else ("prompt", "pool")
            )
        yield from ((key, "with [sft]") for key in unused)
        return
    if recipe.evolve is not None:
        yield from ((key, "with [evolve]") for key in NOT_FOR_EVOLUTION)
    if recipe.answers is not None:
        yield from ((key, "with [answers]") for key in ("prompt", "recursion", "grpo.explore"))
    if recipe.grpo is not None:
        if recipe.grpo.max_pass_tokens is not None:
            yield "grpo.micro_batch", "with grpo.max_pass_tokens"
        if recipe.recursion is None and not data.etudes.later_round_share:
            without = "without [recursion] or data.etudes.later_round_share"
            yield from (
                (key, without)
                for key in ("reward.replan_penalty", "reward.accept_penalty", "pool.flaky_rate")
            )
    for other, keys in POOL_KEYS.items():
        if not getattr(recipe.pool, other):
            yield from ((f"pool.{key}", f"without pool.{other}") for key in keys)
    if not recipe.pool.roles:
        yield from ((f"pool.{key}", "with a pool file") for key in ETUDE_POOL_KEYS)


def read_recipe(path: Path, overrides: Sequence[str] = (), *, kind: Kind | None = None) -> Recipe:
    recipe = read_tables(Recipe, path, overrides)
    if kind is not None and recipe.kind != kind:
        raise ConfigError(
            f"{path}: this is a recipe for {recipe.command}: it has no [{kind}] table"
        )
    return recipe.resolve_paths(path.absolute().parent)


def read_tables(form: type[AnyTable], path: Path, overrides: Sequence[str]) -> AnyTable:
    """Read the tables of that file, with `key=value` overrides."""
    document = read_toml(path, "recipe")
    for override in overrides:
        override_in(document, override)
    note = "".join(f" --set {override}" for override in overrides)
    try:
        return form.model_validate(document)
    except ValidationError as error:
        raise validation_problem(f"{path} with{note}" if note else path, error, form) from None


def is_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.endswith(".gguf")


def override_in(document: dict[str, Any], override: str) -> None:
    """Put `table.key=value` into the document; an empty value removes the key."""
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
    """Parse the text as TOML, else return it unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
