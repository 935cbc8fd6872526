"""Find the settings of this machine: files, else API keys in the environment, else embedded."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium._util import files as paths
from podium.config.environment import discover_workers
from podium.config.problems import validation_problem
from podium.config.resolve import resolve
from podium.config.schema import ConfigFile
from podium.config.settings import Settings
from podium.core.errors import ConfigError
from podium.workers.catalogue import Catalogue

CONFIG_VARIABLE: Final = "PODIUM_CONFIG"
FILE_NAME: Final = "podium.toml"

EMBEDDED_POOL: Final = Path(__file__).with_name("embedded.toml")
"""The pool file of a machine with no API key and no configuration."""


async def discover_settings(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    pool: Path | None = None,
    directory: Path = Path(),
    today: datetime.date | None = None,
) -> Settings:
    """Return the settings in force on this machine.

    Args:
        environment: The environment variables.
        config: The configuration file; by default the one of `PODIUM_CONFIG`, else `podium.toml`
            in the directory, else the user's own.
        pool: A pool file. Each of its tables replaces that of the configuration, but the
            configuration's planner still plans.
        directory: Where `podium.toml` is looked for.
        today: Models that are retired by this date are warned of.

    Returns:
        The settings. Where no file names a worker, the workers come from the API keys in the
        environment, and without any key from the embedded pool.

    Raises:
        ConfigError: A file cannot be read, or its content is not valid.

    """
    files = [path for path in (find(environment, config=config, directory=directory), pool) if path]
    tables, planner = ConfigFile(), None
    for path in files:
        tables = tables.overlay(read(path))
        planner = tables.planner or planner
    router_named = tables.mini.router is not None and pool != EMBEDDED_POOL
    sources = [str(path) for path in files]
    warnings: tuple[str, ...] = ()
    is_embedded = False
    if not tables.worker:
        found = await discover_workers(environment, Catalogue.load())
        if found.workers:
            tables = tables.model_copy(update={"worker": found.workers})
            sources.append(f"the environment ({', '.join(found.variables)})")
        else:
            tables = tables.complete_from(read(EMBEDDED_POOL))
            sources.append("the embedded pool")
            is_embedded = True
        warnings = found.warnings
    settings = resolve(tables, " with ".join(sources), planner=planner, today=today)
    mini = settings.mini
    if mini is not None and not router_named:
        mini = replace(mini, optional=True)
    warnings = (*settings.warnings, *warnings)
    return replace(settings, mini=mini, is_embedded=is_embedded, warnings=warnings)


def load(path: Path | str, *, today: datetime.date | None = None) -> Settings:
    """Load the settings of one configuration or pool file.

    Args:
        path: The file.
        today: Models that are retired by this date are warned of; by default, the current date.

    Returns:
        The settings, complete and checked.

    Raises:
        ConfigError: The file cannot be read, or its content is not valid.

    """
    path = Path(path)
    return resolve(read(path), str(path), today=today)


def find(
    environment: Mapping[str, str], *, config: Path | None = None, directory: Path = Path()
) -> Path | None:
    """Return the configuration file in force, if there is one."""
    named = config or environment.get(CONFIG_VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    candidates = (directory / FILE_NAME, paths.config_file())
    return next((path for path in candidates if path.is_file()), None)


def read(path: Path) -> ConfigFile:
    """Read and validate a file's tables."""
    try:
        file = ConfigFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise validation_problem(path, error, ConfigFile) from None
    return file.with_absolute_paths(path.absolute().parent)


def read_toml(path: Path, kind: str = "file") -> dict[str, Any]:
    """Read a TOML file; `kind` is what messages call it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such {kind}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
