"""The tables of a recipe's `[data]`: where its questions come from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from podium._util.tables import Table
from podium.config.workers import Count, Name

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Names = Annotated[frozenset[Name], Field(strict=False)]


class StageTable(Table):
    """One part of a curriculum."""

    steps: Count | None = Field(
        default=None, description="its number of steps; left out of the last one: to the end"
    )
    shapes: dict[str, Weight] = Field(description="weight of each shape, by its name")

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        if not sum(self.shapes.values()):
            raise ValueError("shapes: a stage needs a shape with a weight above 0")
        return self


class EtudesTable(Table):
    """Generated études."""

    stage: tuple[StageTable, ...] = Field(
        default=(), strict=False, description="the curriculum; left out: the études' usual shapes"
    )
    everyday_share: Share = Field(
        default=0.1, description="share of everyday questions, for one worker"
    )
    later_round_share: Share = Field(
        default=0.0, description="share of questions with an earlier round, to accept or to replan"
    )
    nested_phrase_share: Share = Field(
        default=0.25,
        description="share of questions of several steps that nest one phrase in another",
    )
    accepted_share: Share = Field(
        default=0.4, description="`plans`: share of later rounds that accept the answer"
    )
    assigned_share: Share = Field(
        default=0.35, description="`plans`: share of questions that name the worker of each part"
    )
    correct_split_share: Share = Field(
        default=0.65,
        description="`plans`: share of plans that split a question correctly, into its clauses",
    )
    correct_access_share: Share = Field(
        default=0.5, description="`plans`: share of these that also have the correct access"
    )
    unsure_share: Share = Field(
        default=0.1,
        description="`specialists`: share of examples outside its skill, which it declines",
    )

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if any(stage.steps is None for stage in self.stage[:-1]):
            raise ValueError("stage: only the last stage may leave out its steps")
        return self


class MixTable(Table):
    """Equally many problems of several benchmarks, none of them test problems."""

    sources: Names = Field(description="the benchmarks, optionally with splits: `mmlu:dev+val`")
    per_source: Count | None = Field(
        default=None, description="problems of each benchmark; left out: the size of the smallest"
    )
    train_share: Share | None = Field(
        default=None,
        description="share for training; the rest is held out. Default: the paper's split, 60 % "
        "for training and 20 % held out",
    )
    path: Name | None = Field(
        default=None, description="the directory of their files; left out: the hub"
    )
    seed: int = Field(default=42, description="seed of the choice and order of problems")


class FileTable(Table):
    """Your own tasks, or examples for `sft`."""

    path: Name = Field(description="a JSONL or CSV file")
    limit: Count | None = Field(default=None, description="read only this many")


class SuiteTable(Table):
    """One benchmark."""

    name: Name = Field(description="its name, optionally with a split")
    path: Name | None = Field(default=None, description="its file; left out: the hub")
    limit: Count | None = Field(default=None, description="draw only this many, by the seed")


class DataTable(Table):
    """The training data. The table named like `kind` has its options."""

    kind: Literal["etudes", "mix", "file", "suite"] = Field(description="where questions come from")
    etudes: EtudesTable = Field(default=EtudesTable(), description="with `etudes`")
    mix: MixTable | None = Field(default=None, description="with `mix`")
    file: FileTable | None = Field(default=None, description="with `file`")
    suite: SuiteTable | None = Field(default=None, description="with `suite`")
