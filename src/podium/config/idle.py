"""Keys that would have no effect where they stand.

Each is refused with the reason: whoever wrote it expects something of it, a cap or a price above
all. A file is looked at by itself, before another is laid over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from podium.config.problems import nearest
from podium.config.schema import ConductorKind, ConductorTable, ConfigFile, WorkerTable
from podium.errors import ConfigError
from podium.pool import CONDUCTOR_PROVIDER

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
            hint = nearest(option, known)
            yield f"{where}.options.{option} has no effect with {provider}; {hint}"
