"""A suite file: one TOML file that says what to measure, so that a command can be repeated.

    suite = "tasks.jsonl"               # or a benchmark's name
    strategies = ["conductor", "best-single"]
    pool = "pool.toml"
    limit = 200
    seed = 7

Paths are as seen from the file. What the command line says as well, the command line decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from podium.config.problems import validation_problem
from podium.config.sources import read_toml
from podium.config.workers import Count, Name
from podium.evals.strategies.learned import EVOLVED, LEARNED
from podium.tasks.records import ENDINGS
from podium.workers.catalogue import Dollars, Table

ENDING: Final = ".toml"
PATHS: Final = ("data", "pool", "cache", "output")
"""The keys that name a file or a directory."""

Said = TypeVar("Said", bound=Table)

Names = Annotated[tuple[Name, ...], Field(min_length=1, strict=False)]


class VariantTable(Table):
    """What is changed about the études; for the suite `etudes` alone."""

    shapes: Names | None = None
    pool_order: Literal["drawn", "shuffled"] | None = None
    drop_one: bool | None = None
    flaky: Annotated[float, Field(ge=0, le=1)] | None = None


class SuiteFile(Table):
    """The keys of a suite file. What is left out is as usual."""

    suite: Name
    data: Name | None = None
    strategies: Names | None = None
    limit: Count | None = None
    seed: int | None = None
    repeats: Count | None = None
    pool: Name | None = None
    conductor: Name | None = None
    untrained: Name | None = None
    judge: Name | None = None
    oracle: bool | None = None
    concurrency: Count | None = None
    budget_usd: Dollars | None = None
    cache: Name | None = None
    output: Name | None = None
    etudes: VariantTable = VariantTable()

    def anchored(self, directory: Path) -> SuiteFile:
        """The same with paths as seen from that directory."""
        paths = [name for name in PATHS if getattr(self, name) is not None]
        if Path(self.suite).suffix in ENDINGS:
            paths.append("suite")
        seen = {name: str(directory / Path(getattr(self, name)).expanduser()) for name in paths}
        named = self.strategies and tuple(_anchored(name, directory) for name in self.strategies)
        led = self.conductor and _anchored(self.conductor, directory)
        return self.model_copy(update={**seen, "strategies": named, "conductor": led})


def _anchored(strategy: str, directory: Path) -> str:
    """The strategy, or the conductor, with the file that it was fitted to or is in as seen from the
    directory."""
    first, _, second = strategy.rpartition(":")
    if first in (*LEARNED, EVOLVED):
        return f"{first}:{directory / second}"
    return f"{directory / first}:{second}" if first.endswith(".py") else strategy


def suite_file_for(suite: str) -> SuiteFile:
    """What the suite file of that path says; a suite by its name, or a file of tasks, is one that
    says nothing else."""
    if Path(suite).suffix == ENDING:
        return read_suite_file(Path(suite))
    return SuiteFile(suite=suite)


def override(table: Said, **said: object) -> Said:
    """The table with what the command line says instead; a value of it that is None, empty text
    or a flag left out says nothing."""
    update = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in said.items()
        if value is not None and value is not False and value != ""
    }
    return table.model_copy(update=update)


def read_suite_file(path: Path) -> SuiteFile:
    """Read the file; an error names the key, what was expected and what came."""
    tables = read_toml(path)
    try:
        return SuiteFile.model_validate(tables).anchored(path.parent)
    except ValidationError as error:
        raise validation_problem(path, error, SuiteFile) from None
