"""The result of a training by evolution: the usable coordinator and its settings.

    left = read_evolved(Path("trained/etudes-evolved"))
    left.coordinator                    # the directory of the coordinator

An interrupted training leaves the coordinator of its last checkpoint. The training cost is in
`summary.json`. Needs no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from podium._util.files import read_json
from podium.conductors.evolved_turns import Description, read_description
from podium.config.problems import validation_problem
from podium.core.errors import ConfigError
from podium.train.preflight import RECIPE_FILE
from podium.train.schema import EvolveTable
from podium.train.training_log import last_checkpoint

COORDINATOR: Final = "coordinator"
"""The directory in which the coordinator lies: below the output, and in every checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolvedResult:
    """A coordinator as a training left it. `settings` is the table `[evolve]` of its recipe, and
    `steps` after how many steps it was kept."""

    coordinator: Path
    described: Description
    settings: EvolveTable
    steps: int

    @property
    def planned(self) -> int:
        return self.settings.steps

    @property
    def parameters(self) -> int:
        """Return how many numbers were searched."""
        return self.described.size_with(self.settings.directions or self.described.width)

    @property
    def is_finished(self) -> bool:
        return self.steps >= self.planned


def read_evolved(output: Path) -> EvolvedResult:
    """Read the result of a training; an error says what is missing or damaged."""
    evolve = _evolve_table(output)
    steps = evolve.steps
    directory = output / COORDINATOR
    if not directory.is_dir():
        kept = last_checkpoint(output)
        if kept is None:
            raise ConfigError(
                f"{output} has neither a coordinator nor a checkpoint of one; have "
                f"`podium lab evolve` make a step at least"
            )
        directory, steps = kept.path / COORDINATOR, kept.step
    return EvolvedResult(
        coordinator=directory,
        described=read_description(directory),
        settings=evolve,
        steps=steps,
    )


def _evolve_table(output: Path) -> EvolveTable:
    """Read the table `evolve` of the recipe."""
    advice = "name the directory of a training by `podium lab evolve`"
    path = output / RECIPE_FILE
    document = read_json(path, advice)
    recipe = document.get("recipe") if isinstance(document, dict) else None
    evolve = recipe.get("evolve") if isinstance(recipe, dict) else None
    if not isinstance(evolve, dict):
        raise ConfigError(f"{path}: nothing was evolved there; {advice}")
    try:
        return EvolveTable.model_validate(evolve)
    except ValidationError as error:
        problem = validation_problem(f"{path}: [evolve]", error, EvolveTable)
        raise ConfigError(f"{problem}; {advice} that is whole") from error
