"""A recipe: one TOML file that says everything about one training, checked before it begins.

    recipe = read_recipe(Path("recipes/etudes.toml"), overrides=["prompt.few_shot=false"])

`podium.train.schema` has its tables. Whether files, disk and pool are there is checked by
`podium.train.preflight`. Needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from os.path import normpath
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from podium._util.files import read_toml
from podium._util.lab import lab_extra
from podium.config.problems import suggest, validation_problem
from podium.core.errors import ConfigError
from podium.train.rewards import PAPER
from podium.train.schema import (
    DataTable,
    EstimateTable,
    EvolveTable,
    GrpoTable,
    ModelTable,
    PoolTable,
    PromptTable,
    RecursionTable,
    RewardTable,
    RunTable,
    SftTable,
    WorkersTable,
)
from podium.workers.catalogue import Table

Kind = Literal["sft", "grpo", "evolve"]

NOT_FOR_SFT: Final = ("reward", "workers", "recursion", "estimate", "run.ray")
"""Keys without effect where no plan is executed."""

NOT_FOR_DESCRIPTIONS: Final = (
    *("pool.file", "pool.subset", "pool.base", "pool.adapters", "pool.oracle"),
    *("pool.keep_needed", "pool.shuffle"),
    *("prompt.fixed_subtasks", "prompt.one_worker", "prompt.max_steps"),
)
"""Keys without effect where pools are only described."""

POOL_KEYS: Final = {"file": ("subset", "shuffle"), "adapters": ("base",)}
ETUDE_POOL_KEYS: Final = ("drop", "keep_needed", "flaky")
"""The keys of `[pool]` that go with each way of naming workers."""

ETUDE_KEYS: Final = {
    "unsure_share": ("specialists",),
    "assigned_share": ("plans",),
    "true_clauses": ("plans",),
    "true_access": ("plans",),
    "accepted_share": ("plans",),
    "everyday_share": ("plans", "reward"),
    "later_round_share": ("plans", "reward"),
    "nested_share": ("plans", "decisions", "reward"),
    "stage": ("plans", "decisions", "reward"),
}
"""The keys of `[data.etudes]`, and what teaches by each of them."""

DESCRIBED: Final = ("plans", "decisions")
"""What is taught over pools that are only described."""


NOT_FOR_EVOLUTION: Final = (
    *("prompt", "reward", "recursion"),
    *("model.adapter", "model.adapters", "model.lora", "model.dtype"),
    "model.gradient_checkpointing",
    *("pool.subset", "pool.shuffle", "pool.drop", "pool.keep_needed"),
    *("data.etudes.everyday_share", "data.etudes.later_round_share"),
    *("run.save_every", "run.eval_temperature", "run.baselines", "run.ray", "run.log"),
)
"""Keys without effect with `[evolve]`: it writes no plans, and every step leaves a checkpoint."""


def recipe_problems(recipe: Recipe, kind: Kind | None) -> Iterator[str]:
    """Yield contradictions between the tables."""
    if [recipe.sft, recipe.grpo, recipe.evolve].count(None) != 2:
        yield "a recipe has one of the tables [sft], [grpo] and [evolve], and says so how it trains"
        return
    if kind is not None and recipe.kind != kind:
        yield f"this is a recipe for podium train {recipe.kind}: it has no [{kind}] table"
    for key, reason in keys_without_effect(recipe):
        if _is_written(recipe, key):
            yield f"{key} has no effect {reason}; drop it"
    if recipe.model.adapter is not None and recipe.model.lora is None:
        yield "model.adapter needs a table [model.lora]; a whole model to go on from is model.base"
    taught = set(recipe.sft.adapters) if recipe.sft is not None else set()
    if recipe.model.adapters and recipe.model.adapters.keys() != taught:
        yield "model.adapters names all of sft.adapters and nothing else; or leave it out"
    if recipe.model.adapters and recipe.model.adapter is not None:
        yield "model.adapter and model.adapters say the same thing; write one of them"
    yield from _data_misfits(recipe.data)
    if recipe.sft is not None:
        yield from _sft_misfits(recipe, recipe.sft)
    else:
        yield from _reward_misfits(recipe)
    if recipe.grpo is not None:
        yield from _grpo_misfits(recipe, recipe.grpo)
    if recipe.evolve is not None and len({*recipe.evolve.matrices}) < len(recipe.evolve.matrices):
        yield "evolve.matrices names a matrix twice; name it once"
    try:
        recipe.reward.reward()
    except ConfigError as error:
        yield str(error)


def keys_without_effect(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """The keys and tables that have no effect in this recipe, each with the reason."""
    data, sft = recipe.data, recipe.sft
    for kind in ("etudes", "mix", "file", "suite"):
        if kind != data.kind:
            yield f"data.{kind}", f'with data.kind = "{data.kind}"'
    dataset = sft.dataset if sft is not None else "reward"
    for key, teachers in ETUDE_KEYS.items():
        if dataset not in teachers:
            yield f"data.etudes.{key}", f'with sft.dataset = "{dataset}"'
    if sft is not None:
        unused = [*NOT_FOR_SFT, "pool.flaky"] if dataset == "plans" else [*NOT_FOR_SFT]
        unused += NOT_FOR_DESCRIPTIONS if dataset in DESCRIBED else ("prompt", "pool")
        yield from ((key, "with [sft]") for key in unused)
        return
    if recipe.evolve is not None:
        yield from ((key, "with [evolve]") for key in NOT_FOR_EVOLUTION)
    if recipe.grpo is not None:
        if recipe.grpo.max_tokens is not None:
            yield "grpo.micro_batch", "with grpo.max_tokens"
        if recipe.recursion is None and not data.etudes.later_round_share:
            without = "without [recursion] or data.etudes.later_round_share"
            yield from (
                (key, without)
                for key in ("reward.replan_penalty", "reward.accept_penalty", "pool.flaky")
            )
    pool = recipe.pool
    for other, keys in POOL_KEYS.items():
        if not getattr(pool, other):
            yield from ((f"pool.{key}", f"without pool.{other}") for key in keys)
    if not pool.roles:
        yield from ((f"pool.{key}", "with a pool file") for key in ETUDE_POOL_KEYS)


def _is_written(recipe: Recipe, dotted: str) -> bool:
    table: Any = recipe
    for key in dotted.split("."):
        if table is None or key not in table.model_fields_set:
            return False
        table = getattr(table, key)
    return True


def _data_misfits(data: DataTable) -> Iterator[str]:
    if data.kind != "etudes" and getattr(data, data.kind) is None:
        yield f'data.kind = "{data.kind}" needs a table [data.{data.kind}]'
    if any(stage.steps is None for stage in data.etudes.stage[:-1]):
        yield "data.etudes.stage: only the last stage may leave out its steps"
    if any(not sum(stage.shapes.values()) for stage in data.etudes.stage):
        yield "data.etudes.stage: a stage needs a shape with a weight above 0"


def _sft_misfits(recipe: Recipe, sft: SftTable) -> Iterator[str]:
    wanted = "file" if sft.dataset == "file" else "etudes"
    if recipe.data.kind != wanted:
        yield f'sft.dataset = "{sft.dataset}" needs data.kind = "{wanted}"'
    if (sft.dataset == "specialists") != bool(sft.adapters):
        yield 'sft.adapters names the specialists where sft.dataset = "specialists", and only there'
    if sft.adapters and recipe.model.lora is None:
        yield "sft.adapters needs a table [model.lora]; write one"
    if sft.dataset in DESCRIBED:
        if recipe.prompt.access == "binary" and _is_written(recipe, "prompt.access"):
            yield f'{sft.dataset} name the steps that are read; write prompt.access = "index"'
        if not recipe.prompt.mask_names:
            yield f"{sft.dataset} have no names for workers; write prompt.mask_names = true"
    if sft.dataset == "decisions" and recipe.prompt.length != "trained":
        yield 'decisions have the form of trained conductors; write prompt.length = "trained"'


def _reward_misfits(recipe: Recipe) -> Iterator[str]:
    """Yield problems of a recipe that learns from reward."""
    pool, training = recipe.pool, recipe.training
    if [pool.file is not None, bool(pool.adapters), pool.oracle].count(True) != 1:
        yield "[pool] needs one of these: a file, the études' workers as adapters, or oracle = true"
    if pool.roles and recipe.data.kind != "etudes":
        yield 'pool.adapters and pool.oracle are for the études; they need data.kind = "etudes"'
    if pool.subset is not None and pool.subset.smallest > pool.subset.largest:
        yield f"pool.subset.smallest is {pool.subset.smallest}, above largest"
    stages = recipe.data.etudes.stage
    if any((stage.steps or 0) % recipe.steps_a_batch for stage in stages):
        yield (
            f"data.etudes.stage: {recipe.steps_a_batch} steps have the same questions "
            f"(grpo.num_iterations); let every stage last a multiple of that"
        )
    lasting = sum(stage.steps or training.steps for stage in stages)
    if stages and lasting < training.steps:
        yield (
            f"data.etudes.stage: the stages last {lasting} steps, and {recipe.kind}.steps is "
            f"{training.steps}; leave out the steps of the last one"
        )
    if recipe.run.eval_every and recipe.data.kind in ("file", "suite"):
        yield (
            f'run.eval_every is {recipe.run.eval_every}, but with data.kind = "{recipe.data.kind}" '
            f"every task is trained on and none is held out; drop it, and use podium eval run"
        )


def _grpo_misfits(recipe: Recipe, grpo: GrpoTable) -> Iterator[str]:
    if grpo.micro_batch is not None and (grpo.questions * grpo.rollouts) % grpo.micro_batch:
        yield (
            f"grpo.micro_batch is {grpo.micro_batch}; the {grpo.questions} x {grpo.rollouts} "
            f"rollouts of a step cannot be divided by it"
        )
    yield from group_problems(recipe, grpo, grpo.rollouts)
    if grpo.explore_tries is not None and not 0 < grpo.explore <= grpo.explore_tries:
        yield (
            f"grpo.explore_tries is {grpo.explore_tries}, and {grpo.explore} of them are to be "
            f"taken (grpo.explore); write at least one there, and as many or more here"
        )
    if grpo.beta and recipe.model.lora is None and _is_gguf(recipe.model.base):
        yield (
            "grpo.beta needs model.base a second time, unchanged, and trainers cannot read that "
            "from GGUF; train an adapter ([model.lora]), or name the directory of the model"
        )
    if recipe.prompt.fixed_subtasks and recipe.pool.roles:
        yield (
            "prompt.fixed_subtasks: the études' workers see their subtask and not the question, "
            "so each of them needs one of its own; drop it, or lead the workers of a pool.file"
        )
    if recipe.prompt.one_worker is not None and recipe.data.etudes.later_round_share:
        yield (
            "data.etudes.later_round_share: these rounds were played by many workers, and "
            "prompt.one_worker leaves one; write 0"
        )
    recursion = recipe.recursion
    if recursion is not None and recursion.rounds != 2:
        note = "drop [recursion]" if recursion.rounds < 2 else "more are for serving, not training"
        yield f"recursion.rounds is {recursion.rounds}, and rollouts have two; write 2 ({note})"


def group_problems(recipe: Recipe, grpo: GrpoTable, rollouts: int) -> Iterator[str]:
    """Yield what is wrong with that many rollouts of a question in one process."""
    recursion = recipe.recursion
    second = recursion.later(rollouts) if recursion is not None else 0
    if recursion is not None and not 0 < second <= rollouts - second:
        yield (
            f"recursion.share is {recursion.share:g}, which makes {second} of {rollouts} "
            f"rollouts second rounds; each goes on from a first one of its own, so there must be "
            f"at least one and at most half"
        )
    first = rollouts - second
    if grpo.explore >= first > 0:
        which = "rollouts that go on from no other" if second else "rollouts"
        yield (
            f"grpo.explore is {grpo.explore}, and of {first} {which} at least one must stay; "
            f"write {first - 1} or less"
        )


def unknown_names(recipe: Recipe) -> Iterator[str]:
    """Yield a message for each unknown name of the études, with the nearest known one."""
    taught = recipe.sft is not None and recipe.sft.adapters
    if recipe.data.kind != "etudes" and not recipe.pool.roles and not taught:
        return
    with lab_extra():
        from podium_lab.etudes import FAMILIES, ROLES, TEST_ONLY, EtudeShape
    shapes = [shape.value for shape in EtudeShape if shape not in TEST_ONLY]
    families = [family.value for family in FAMILIES]
    named: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
        "data.etudes.stage.shapes": (
            [shape for stage in recipe.data.etudes.stage for shape in stage.shapes],
            shapes,
        ),
        "pool.adapters": (list(recipe.pool.adapters), ROLES),
        "prompt.one_worker": (
            [recipe.prompt.one_worker] if recipe.pool.roles and recipe.prompt.one_worker else [],
            recipe.pool.roles,
        ),
        "sft.adapters": (sorted(recipe.sft.adapters) if recipe.sft else [], families),
    }
    for key, (names, known) in named.items():
        for name in names:
            if name not in known:
                yield f"{key}: nothing is called {name!r} here; {suggest(name, known)}"


def _is_gguf(model: str) -> bool:
    """True if the weights are a GGUF file, as all catalogued ones are."""
    return model.endswith(".gguf") or "/" not in model


FIXED_SUBTASK: Final = "Solve the user question"
"""Every subtask with `prompt.fixed_subtasks`, as in the paper's ablation."""

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
        """The kind of training."""
        if self.evolve is not None:
            return "evolve"
        return "sft" if self.sft is not None else "grpo"

    @property
    def training(self) -> SftTable | GrpoTable | EvolveTable:
        """The table of that kind of training."""
        training = self.sft or self.grpo or self.evolve
        assert training is not None, "checked as it was read"
        return training

    @property
    def steps_a_batch(self) -> int:
        """The number of steps over the same questions."""
        return self.grpo.num_iterations if self.grpo is not None else 1

    @property
    def batches(self) -> int:
        """The number of batches of new questions."""
        return -(-self.training.steps // self.steps_a_batch)

    @property
    def output(self) -> Path:
        """The directory of everything that comes out."""
        return Path(self.run.output)

    @property
    def worker_base(self) -> str:
        """The base of the études' worker adapters."""
        return self.pool.base or self.model.base

    @property
    def fingerprint(self) -> str:
        """Equal for recipes of the same training on any machine.

        A key at its default counts as not written, so that a new key does not stop a resume. Files
        count by name, adapters by the name of their training too.
        """
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
        """Yield the files that must be on this machine, with the key that names each."""
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

    def resolve_paths(self, directory: Path) -> Recipe:
        """Return the recipe with its paths relative to that directory made absolute."""
        return self._with_paths(lambda path: normpath(directory / Path(path).expanduser()))

    def _with_paths(
        self, at: Callable[[str], str], of_adapter: Callable[[str], str] | None = None
    ) -> Recipe:
        """Return the recipe with every path mapped, adapters by `of_adapter`."""
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
    """Read the recipe in that file, with `key=value` overrides, for that kind of training."""
    document = read_toml(path, "recipe")
    for override in overrides:
        override_in(document, override)
    note = "".join(f" --set {override}" for override in overrides)
    source = f"{path} with{note}" if note else str(path)
    try:
        recipe = Recipe.model_validate(document)
    except ValidationError as error:
        raise validation_problem(source, error, Recipe) from None
    for problem in (*recipe_problems(recipe, kind), *unknown_names(recipe)):
        raise ConfigError(f"{source}: {problem}")
    return recipe.resolve_paths(path.absolute().parent)


def is_path(model: str) -> bool:
    """True if a model is named by a path of this machine."""
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
