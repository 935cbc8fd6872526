"""The tasks that a recipe names: a mix of benchmarks, one benchmark, or a user's own file.

Études are not here: they are made as they are needed, without end. Needs no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from podium.errors import ConfigError
from podium.tasks import TaskRecord, load_source, paper_mix, read_records
from podium.tasks.mix import rank
from podium.train.recipe import Recipe


class Problems(NamedTuple):
    """What is trained on, and what was kept apart to measure by, where anything was."""

    train: tuple[TaskRecord, ...]
    held_out: tuple[TaskRecord, ...] = ()


def problems(recipe: Recipe) -> Problems:
    """The tasks of the recipe, each of which is known to have an answer that can be graded."""
    data = recipe.data
    if data.mix is not None:
        path = Path(data.mix.path) if data.mix.path else None
        sources = sorted(data.mix.sources)
        mix = paper_mix(sources, data=path, each=data.mix.each, seed=data.mix.seed)
        return Problems(_graded(mix.train), mix.validation)
    if data.suite is not None:
        path = Path(data.suite.path) if data.suite.path else None
        records = load_source(data.suite.name, path)
        drawn = sorted(records, key=lambda record: rank(record.id, recipe.run.seed))
        return Problems(_graded(drawn[: data.suite.limit]))
    if data.file is not None:
        return Problems(tuple(read_records(Path(data.file.path))[: data.file.limit]))
    raise ConfigError(
        'data.kind = "etudes": études are made as they are needed, and there is no list of them; '
        "python -m podium.etudes --sample 5 shows some"
    )


def _graded(records: list[TaskRecord] | tuple[TaskRecord, ...]) -> tuple[TaskRecord, ...]:
    """The records, once each was made a task; an error names the one that cannot be."""
    for record in records:
        try:
            record.to_task()
        except ConfigError as error:
            raise ConfigError(f"task {record.id}: {error}") from error
    return tuple(records)
