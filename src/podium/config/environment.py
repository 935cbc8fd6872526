"""The pool that needs no file: made from the keys that are found in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from podium.catalogue import Catalogue
from podium.config.ollama import discover_ollama
from podium.config.schema import WorkerTable
from podium.errors import ConfigError
from podium.providers.base import KNOWN_ENDPOINTS, KnownEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The workers that the environment gives, the variables that gave them, and what a person
    should know."""

    workers: tuple[WorkerTable, ...]
    variables: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def find_workers(environment: Mapping[str, str], catalogue: Catalogue) -> Found:
    """Each vendor's default models, for every vendor that there is a key for.

    The same model from a second vendor is left out. An Ollama server that does not answer is
    only worth a warning while there are other workers, and so is a key for a vendor whose models
    the catalogue does not know.
    """
    workers: dict[str, WorkerTable] = {}
    variables: list[str] = []
    unreachable: list[str] = []
    warnings: list[str] = []
    for known in KNOWN_ENDPOINTS.values():
        variable = _variable(known, environment)
        if variable is None:
            continue
        try:
            found = await _workers_of(known, environment, catalogue)
        except ConfigError as error:
            unreachable.append(str(error))
            continue
        if not found:
            warnings.append(_no_models(known, variable))
            continue
        variables.append(variable)
        for worker in found:
            workers.setdefault(worker.name, worker)
    if unreachable and not workers:
        raise ConfigError(unreachable[0])
    return Found(
        workers=tuple(workers.values()),
        variables=tuple(variables),
        warnings=(*unreachable, *warnings),
    )


async def _workers_of(
    known: KnownEndpoint, environment: Mapping[str, str], catalogue: Catalogue
) -> tuple[WorkerTable, ...]:
    if known.provider == "ollama":
        endpoint = known.found_in(environment)
        return await discover_ollama(endpoint.base_url if endpoint else known.base_url)
    return tuple(
        WorkerTable(name=entry.id.rpartition("/")[2], provider=entry.provider, model=entry.id)
        for entry in catalogue.defaults(known.provider)
    )


def _no_models(known: KnownEndpoint, variable: str) -> str:
    return (
        f"{variable} is set, but Podium does not know which models {known.provider} has; name one "
        f'in podium.toml: [[worker]] with provider = "{known.provider}" and the model\'s id'
    )


def _variable(known: KnownEndpoint, environment: Mapping[str, str]) -> str | None:
    """The variable by which the environment names that vendor, if it does."""
    named = (known.address_variable, *known.key_variables)
    return next((name for name in named if environment.get(name, "").strip()), None)
