"""Reading configuration and pool files, and finding the one that is in force."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium import paths
from podium.config.idle import refuse_idle_keys
from podium.config.problems import form_problem, syntax_problem
from podium.config.resolve import resolve
from podium.config.schema import ConfigFile
from podium.config.settings import Settings
from podium.errors import ConfigError

CONFIG_VARIABLE: Final = "PODIUM_CONFIG"
FILE_NAME: Final = "podium.toml"


def load(path: Path, *, today: datetime.date | None = None) -> Settings:
    """The settings of one configuration or pool file, by itself."""
    return resolve(read(path), str(path), today=today)


def read_tables(path: Path, kind: str = "file") -> dict[str, Any]:
    """The tables of a TOML file, whatever they are about; `kind` is what people call it."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such {kind}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise syntax_problem(path, error) from error


def read(path: Path) -> ConfigFile:
    """A file's tables, of the right form but not yet resolved."""
    tables = read_tables(path)
    try:
        file = ConfigFile.model_validate(tables)
    except ValidationError as error:
        raise form_problem(path, error, ConfigFile) from None
    try:
        refuse_idle_keys(file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return file.anchored(path.absolute().parent)


def find(
    environment: Mapping[str, str], *, config: Path | None = None, directory: Path = Path()
) -> Path | None:
    """The configuration file in force, if there is one: the one named on the command line or by
    `PODIUM_CONFIG`, else that of the directory, else the user's own."""
    named = config or environment.get(CONFIG_VARIABLE, "").strip()
    if named:
        return Path(named).expanduser()
    candidates = (directory / FILE_NAME, paths.config_file())
    return next((path for path in candidates if path.is_file()), None)
