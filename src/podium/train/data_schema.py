"""The tables of a recipe's `[data]`: where its questions come from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from podium.config.workers import Count, Name
from podium.workers.catalogue import Table

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Names = Annotated[frozenset[Name], Field(strict=False)]


class StageTable(Table):
    """One part of a curriculum."""

    steps: Count | None = Field(
        default=None, description="how many steps it lasts; left out of the last one: to the end"
    )
    shapes: dict[str, Weight] = Field(description="how often each shape is drawn, by its name")

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        if not sum(self.shapes.values()):
            raise ValueError("shapes: a stage needs a shape with a weight above 0")
        return self


class EtudesTable(Table):
    """Études, made as they are needed."""

    stage: tuple[StageTable, ...] = Field(
        default=(), strict=False, description="the curriculum; left out: the études' usual shapes"
    )
    everyday_share: Share = Field(
        default=0.1, description="how many questions are everyday ones, for one worker"
    )
    later_round_share: Share = Field(
        default=0.0, description="how many have an earlier round, to accept or to replan"
    )
    nested_share: Share = Field(
        default=0.25,
        description="how many of several steps are one phrase inside another",
    )
    accepted_share: Share = Field(
        default=0.4, description="`plans`: how many of these accept the answer"
    )
    assigned_share: Share = Field(
        default=0.35, description="`plans`: how many questions say who is to do what"
    )
    true_clauses: Share = Field(
        default=0.65, description="`plans`: how many split a question into its clauses"
    )
    true_access: Share = Field(
        default=0.5, description="`plans`: how many of these have the right access"
    )
    unsure_share: Share = Field(
        default=0.1, description="`specialists`: how many are not for the specialist"
    )

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if any(stage.steps is None for stage in self.stage[:-1]):
            raise ValueError("stage: only the last stage may leave out its steps")
        return self


class MixTable(Table):
    """Problems of several benchmarks in one list, as many of each, none of which is tested on."""

    sources: Names = Field(
        description="the benchmarks, each with its splits where they are wanted: `mmlu:dev+val`"
    )
    per_source: Count | None = Field(
        default=None, description="problems of each; left out: as many as the smallest has"
    )
    train_share: Share | None = Field(
        default=None,
        description="of each, the others are held out; left out: the paper's 60 %, 20 % held out",
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
    """The training data. The table named like `kind` has its options."""

    kind: Literal["etudes", "mix", "file", "suite"] = Field(description="where questions come from")
    etudes: EtudesTable = Field(default=EtudesTable(), description="with `etudes`")
    mix: MixTable | None = Field(default=None, description="with `mix`")
    file: FileTable | None = Field(default=None, description="with `file`")
    suite: SuiteTable | None = Field(default=None, description="with `suite`")
