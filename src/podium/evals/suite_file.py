"""A suite file: a TOML file with the options of an evaluation, so that it can be repeated.

    suite = "tasks.jsonl"               # or a benchmark's name
    strategies = ["conductor", "best-single"]
    pool = "pool.toml"
    limit = 200
    seed = 7

Paths are relative to the file. Command line options take precedence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from podium._util.files import read_toml
from podium.config.problems import validation_problem
from podium.config.workers import Count, Name
from podium.evals.strategies.learned import EVOLVED, LEARNED
from podium.tasks.records import ENDINGS
from podium.workers.catalogue import Dollars, Table

ENDING: Final = ".toml"
PATHS: Final = ("data", "pool", "cache", "output")
"""Keys with a path."""

Said = TypeVar("Said", bound=Table)

Names = Annotated[tuple[Name, ...], Field(min_length=1, strict=False)]


class VariantTable(Table):
    """The variant of the études; only for the suite `etudes`."""

    shapes: Names | None = None
    pool_order: Literal["drawn", "shuffled"] | None = None
    drop_one: bool | None = None
    flaky: Annotated[float, Field(ge=0, le=1)] | None = None


class SuiteFile(Table):
    """The keys of a suite file."""

    suite: Name
    data: Name | None = None
    strategies: Names | None = None
    limit: Count | None = None
    seed: int | None = None
    repeats: Count | None = None
    pool: Name | None = None
    conductor: Name | None = None
    baseline_conductor: Name | None = None
    judge: Name | None = None
    oracle: bool | None = None
    concurrency: Count | None = None
    budget_usd: Dollars | None = None
    cache: Name | None = None
    output: Name | None = None
    etudes: VariantTable = VariantTable()

    def resolve_paths(self, directory: Path) -> SuiteFile:
        """Return the table with paths relative to that directory."""
        paths = [name for name in PATHS if getattr(self, name) is not None]
        if Path(self.suite).suffix in ENDINGS:
            paths.append("suite")
        seen = {name: str(directory / Path(getattr(self, name)).expanduser()) for name in paths}
        named = self.strategies and tuple(
            _resolve_strategy(name, directory) for name in self.strategies
        )
        led = self.conductor and _resolve_strategy(self.conductor, directory)
        return self.model_copy(update={**seen, "strategies": named, "conductor": led})


def _resolve_strategy(strategy: str, directory: Path) -> str:
    """Return the strategy or conductor with its file relative to the directory."""
    first, _, second = strategy.rpartition(":")
    if first in (*LEARNED, EVOLVED):
        return f"{first}:{directory / second}"
    return f"{directory / first}:{second}" if first.endswith(".py") else strategy


def suite_file_for(suite: str) -> SuiteFile:
    """Read the suite file, or make one of a suite's name or a file of tasks."""
    if Path(suite).suffix == ENDING:
        return read_suite_file(Path(suite))
    return SuiteFile(suite=suite)


def override(table: Said, **said: object) -> Said:
    """Return the table with the options that are set: not None, not empty, not False."""
    update = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in said.items()
        if value is not None and value is not False and value != ""
    }
    return table.model_copy(update=update)


def read_suite_file(path: Path) -> SuiteFile:
    """Read the file; errors name the key and what was expected."""
    tables = read_toml(path)
    try:
        return SuiteFile.model_validate(tables).resolve_paths(path.parent)
    except ValidationError as error:
        raise validation_problem(path, error, SuiteFile) from None
