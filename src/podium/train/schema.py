"""The form of a recipe: the tables and keys of its TOML file, and what each may hold. How the model
learns and how the training is run have their tables in `podium.train.method`.

Only what can be said of one key by itself is checked here; what keys mean together is
`podium.train.misfits`, reading the file and overriding it `podium.train.recipe`. The descriptions
are the documentation: `podium.train.reference` prints them. Needs no torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from podium._util.lab import lab_extra
from podium.config.schema import PromptLength
from podium.config.values import Count, Name
from podium.train.rewards import PAPER, RELEASED, Reward
from podium.workers.catalogue import Table

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Spread = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
"""How far a search draws; farther than that, numbers overflow in it."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Names = Annotated[frozenset[Name], Field(strict=False)]

LORA_TARGETS = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
)
"""Every linear layer of a Llama or Qwen2 model."""


class LoraTable(Table):
    """A low-rank adapter; without this table every parameter is trained."""

    rank: Count = Field(default=8, description="the adapter's rank")
    alpha: Positive = Field(default=16.0, description="its strength is `alpha / rank`")
    targets: Names = Field(default=LORA_TARGETS, description="the layers that it changes")
    dropout: Share = Field(default=0.0, description="the share of its inputs dropped in training")


class ModelTable(Table):
    """What is trained."""

    base: Name = Field(
        description="a model on the hub (`owner/name`), one from `podium models list`, a "
        "directory or a GGUF file; a path begins with `.`, `/` or `~`, or ends with `.gguf`"
    )
    adapter: Name | None = Field(
        default=None, description="the directory of an adapter to go on from; with `lora`"
    )
    adapters: dict[str, Name] = Field(
        default_factory=dict,
        description="the same by name, where `sft.adapters` are several; all of them or none",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="bfloat16",
        description="how wide numbers are on a graphics card; those that are trained are held in "
        "32 bits all the same",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="compute activations twice instead of keeping them"
    )
    lora: LoraTable | None = Field(default=None, description="train an adapter")


class StageTable(Table):
    """One part of a curriculum."""

    steps: Count | None = Field(
        default=None, description="how many steps it lasts; left out of the last one: to the end"
    )
    shapes: dict[str, Weight] = Field(description="how often each shape is drawn, by its name")


class EtudesTable(Table):
    """Études, made as they are needed."""

    stage: tuple[StageTable, ...] = Field(
        default=(), strict=False, description="the curriculum; left out: the études' usual shapes"
    )
    everyday_share: Share = Field(
        default=0.1, description="how many questions are everyday ones, for one worker"
    )
    later_round_share: Share = Field(
        default=0.0, description="how many have a round behind them, to accept or to mend"
    )
    nested_share: Share = Field(
        default=0.25,
        description="how many of several steps are one phrase inside another",
    )
    accepted_share: Share = Field(
        default=0.4, description="openings: how many of these accept the answer"
    )
    assigned_share: Share = Field(
        default=0.35, description="openings: how many questions say who is to do what"
    )
    true_clauses: Share = Field(
        default=0.65, description="openings: how many split a question into its clauses"
    )
    true_access: Share = Field(
        default=0.5, description="openings: how many of these have the right access"
    )
    unsure_share: Share = Field(
        default=0.1, description="lessons: how many are not for the specialist"
    )


class MixTable(Table):
    """Problems of several benchmarks in one list, as many of each, none of which is tested on."""

    sources: Names = Field(
        description="the benchmarks, each with a split where one is wanted: `mmlu:auxiliary_train`"
    )
    each: Count | None = Field(
        default=None, description="problems of each; left out: as many as the smallest has"
    )
    path: Name | None = Field(
        default=None, description="the directory of their files; left out: from the hub"
    )
    seed: int = Field(default=42, description="decides which problems, and in which order")


class FileTable(Table):
    """Tasks, or examples for `sft`, of your own."""

    path: Name = Field(description="a JSONL or CSV file")
    limit: Count | None = Field(default=None, description="only the first so many")


class SuiteTable(Table):
    """One benchmark."""

    name: Name = Field(description="its name, with a split where one is wanted")
    path: Name | None = Field(default=None, description="its file; left out: from the hub")
    limit: Count | None = Field(default=None, description="only so many, drawn by the seed")


class DataTable(Table):
    """What it is trained on. The table of the same name as `kind` says more."""

    kind: Literal["etudes", "mix", "file", "suite"] = Field(description="where questions come from")
    etudes: EtudesTable = Field(default=EtudesTable(), description="with `etudes`")
    mix: MixTable | None = Field(default=None, description="with `mix`")
    file: FileTable | None = Field(default=None, description="with `file`")
    suite: SuiteTable | None = Field(default=None, description="with `suite`")


class SubsetTable(Table):
    """How many workers of the pool a question may have."""

    smallest: Count = Field(description="at least so many")
    largest: Count = Field(description="at most so many")


class PoolTable(Table):
    """Who is led: the workers of a pool file, or the études' own as adapters over one base."""

    file: Name | None = Field(default=None, description="a pool file, as for `podium ask --pool`")
    subset: SubsetTable | None = Field(
        default=None, description="each question has a random subset of the pool, of random size"
    )
    base: Name | None = Field(
        default=None, description="what the adapters are for; left out: `model.base`"
    )
    adapters: dict[str, str] = Field(
        default={},
        description="the études' workers: an adapter's directory by role; an empty text is the "
        "base without one",
    )
    oracle: bool = Field(
        default=False,
        description="études: perfect specialists that no model has to stand for, to try a recipe "
        "with nothing trained",
    )
    drop: Share = Field(
        default=0.2, description="études: the chance that a worker is left out of a pool"
    )
    keep_needed: bool = Field(
        default=True, description="études: never leave out a worker that the question needs"
    )
    flaky: Share = Field(
        default=0.0,
        description="études: how often a worker, by a hash of its request, says that it does not "
        "know; with `[grpo]` only after a first round",
    )
    shuffle: bool = Field(
        default=False, description="the workers of a pool file in another order for each question"
    )

    @property
    def forgetful(self) -> float:
        """How often a worker did not know in the first rounds that études come with, though the
        workers themselves may always know."""
        with lab_extra():
            from podium_lab.etudes.later import FLAKY
        return self.flaky or FLAKY

    @property
    def roles(self) -> tuple[str, ...]:
        """The études' workers that the pool has; none where it is a file."""
        if not self.oracle:
            return tuple(self.adapters)
        with lab_extra():
            from podium_lab.etudes import ROLES
        return ROLES


class PromptTable(Table):
    """How the conductor is asked. The paper's ablations are switches here."""

    length: PromptLength = Field(
        default="full", description="`full` is the paper's structure, `trained` for small models"
    )
    few_shot: bool = Field(default=True, description="show worked examples")
    fixed_subtasks: bool = Field(
        default=False,
        description='every worker is told "Solve the user question", whatever subtasks a plan has',
    )
    one_worker: Name | None = Field(
        default=None,
        description="this worker of the pool stands in every place of it, described alike",
    )
    access: Literal["binary", "index"] = Field(
        default="binary",
        description="`binary`: a step reads all before it or nothing, and a plan that names steps "
        "is malformed; `index`: chosen steps",
    )
    mask_names: bool = Field(default=True, description="hide the workers' names")
    max_steps: Count = Field(default=5, description="the most steps that a plan may have")


class RewardTable(Table):
    """What an outcome is worth."""

    preset: Literal["paper", "released"] = Field(
        default="paper",
        description="`paper`: 0, 0.5 and 1 for malformed, wrong and right; `released`: 0, 0.5, 1.5",
    )
    malformed: Finite | None = Field(default=None, description="instead of the preset's")
    wrong: Finite | None = Field(default=None, description="instead of the preset's")
    right: Finite | None = Field(default=None, description="instead of the preset's")
    milestones: Weight = Field(
        default=0.0,
        description="added to a wrong answer for the right results on the way to it, in proportion",
    )
    per_usd: Weight = Field(default=0.0, description="taken off for each dollar of the workers")
    per_1000_worker_tokens: Weight = Field(
        default=0.0, description="taken off for each 1,000 tokens of the workers"
    )
    per_completion_token: Weight = Field(
        default=0.0, description="taken off for each token that the conductor writes"
    )
    per_extra_step: Weight = Field(
        default=0.0, description="taken off for each step beyond the first"
    )
    needless: Weight = Field(
        default=0.0, description="taken off for another plan where the answer there is is right"
    )
    hasty: Weight = Field(
        default=0.0, description="taken off for accepting the answer there is where it is wrong"
    )

    def reward(self) -> Reward:
        """The same as scoring takes it."""
        preset = PAPER if self.preset == "paper" else RELEASED
        outcomes = {
            name: getattr(preset if said is None else self, name)
            for name in ("malformed", "wrong", "right")
            for said in (getattr(self, name),)
        }
        return Reward(**outcomes, **self.model_dump(exclude={"preset", *outcomes}))


class WorkersTable(Table):
    """How workers are asked while a conductor is trained."""

    max_tokens: Count = Field(default=4096, description="the most tokens of a reply")
    temperature: Temperature = Field(
        default=0.2, description="sent where the worker accepts it; 0 is greedy"
    )


class RecursionTable(Table):
    """Some rollouts are later rounds: the conductor sees a result, and accepts it or replans."""

    rounds: Count = Field(default=2, description="the most rounds of a rollout; 2 are supported")
    share: Share = Field(
        default=0.5,
        description="how many rollouts go on from another one of the same question; half at most",
    )
    discount: Share = Field(
        default=0.25,
        description="g in `(1 - g) r0 + g r1`, the reward of a round that another one followed",
    )
    normalise_per_round: bool = Field(
        default=False,
        description="a rollout is compared with those of its question in the same round, not with "
        "all of its question",
    )

    def later(self, rollouts: int) -> int:
        """How many of a question's rollouts go on from others."""
        return round(rollouts * self.share)
