"""Reading configuration and pool files, and finding the one that is in force."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium._util import files as paths
from podium.config.problems import suggest, syntax_problem, validation_problem
from podium.config.resolve import resolve
from podium.config.schema import ConductorKind, ConductorTable, ConfigFile, WorkerTable
from podium.config.settings import Settings
from podium.core.errors import ConfigError
from podium.core.pool import CONDUCTOR_PROVIDER

_NESTED: Final = "its steps are nested runs, whose calls have the models, prices and limits"
_SCRIPT: Final = "it says what options.reply holds, and reaches nothing"
_LOCAL: Final = "its weights run on this machine, in a process that Podium starts"
_WITHIN: Final = "its weights run within Podium"

IDLE_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    CONDUCTOR_PROVIDER: dict.fromkeys(
        ("model", "price", "limits", "base_url", "key_env", "options"), _NESTED
    ),
    "scripted": dict.fromkeys(("base_url", "key_env"), _SCRIPT),
    "llamacpp": dict.fromkeys(("base_url", "key_env"), _LOCAL),
    "transformers": dict.fromkeys(("base_url", "key_env"), _WITHIN),
}
"""By provider: the keys that it has no use for, and why."""

ONLY_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "scripted": ("reply", "tool_reply", "tool_arguments")
}
"""The options of a provider that sends none of them on: any other would be lost."""

KIND_OF_KEY: Final[Mapping[str, ConductorKind]] = {
    "model": "model",
    "options": "model",
    "temperature": "model",
    "prompt": "model",
    "few_shot": "model",
    "fallback": "model",
    "workflow": "fixed",
    "coordinator": "evolved",
    "pool_changed": "evolved",
}
"""By key: the one kind of conductor that has a use for it."""


def refuse_idle_keys(tables: ConfigFile) -> None:
    """Refuse the first key without effect."""
    for problem in _problems(tables):
        raise ConfigError(problem)


def _problems(tables: ConfigFile) -> Iterator[str]:
    yield from _of_conductor(tables.conductor)
    for index, worker in enumerate(tables.worker):
        yield from _of_worker(f"worker[{index}]", worker)


def _of_conductor(table: ConductorTable) -> Iterator[str]:
    for key, kind in KIND_OF_KEY.items():
        if key in table.model_fields_set and table.kind != kind:
            yield (
                f'conductor.{key} has no effect with kind = "{table.kind}"; drop it, or set '
                f'kind = "{kind}"'
            )
    if "few_shot" in table.model_fields_set and table.prompt == "trained":
        yield (
            'conductor.few_shot has no effect with prompt = "trained": a trained model is shown '
            "no examples; drop it"
        )


def _of_worker(where: str, table: WorkerTable) -> Iterator[str]:
    provider = f'provider = "{table.provider}"'
    for key, why in IDLE_KEYS.get(table.provider, {}).items():
        if key in table.model_fields_set:
            yield f"{where}.{key} has no effect with {provider}: {why}; drop it"
    known = ONLY_OPTIONS.get(table.provider, tuple(table.options))
    for option in table.options:
        if option not in known:
            hint = suggest(option, known)
            yield f"{where}.options.{option} has no effect with {provider}; {hint}"


CONFIG_VARIABLE: Final = "PODIUM_CONFIG"
FILE_NAME: Final = "podium.toml"


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


def read_toml(path: Path, kind: str = "file") -> dict[str, Any]:
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
    tables = read_toml(path)
    try:
        file = ConfigFile.model_validate(tables)
    except ValidationError as error:
        raise validation_problem(path, error, ConfigFile) from None
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
