"""What a trained coordinator says of itself, settled with the pool that it is to lead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from podium.conductor.evolved.description import Description, read_description
from podium.config.schema import ConductorTable
from podium.config.settings import ConductorSettings
from podium.errors import ConfigError
from podium.pool import Pool


def evolved_settings(
    settings: ConductorSettings, table: ConductorTable, pool: Pool
) -> ConductorSettings:
    """The settings with the coordinator that the table names; `ConfigError` where it cannot lead
    this pool."""
    if table.coordinator is None:
        raise ConfigError(
            'conductor.coordinator is missing; kind = "evolved" needs the directory that '
            "`podium train evolve` wrote"
        )
    described = read_description(Path(table.coordinator))
    notice = described.narrowed_to(pool) if table.pool_changed == "narrow" else ""
    if table.pool_changed == "refuse":
        described.check(
            pool,
            otherwise='set conductor.pool_changed = "narrow" to have it choose among the workers '
            "that both have",
        )
    rounds = table.rounds if "rounds" in table.model_fields_set else described.turns
    return replace(settings, coordinator=Path(table.coordinator), rounds=rounds, notice=notice)


def led_by_coordinator(
    settings: ConductorSettings, directory: Path, described: Description
) -> ConductorSettings:
    """The settings with that coordinator in place of whoever leads."""
    return replace(
        settings,
        kind="evolved",
        worker=None,
        coordinator=directory,
        notice="",
        rounds=described.turns,
    )
