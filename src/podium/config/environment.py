"""Workers without a file: from the API keys in the environment, and from Ollama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from podium.config.workers import WorkerTable
from podium.core.errors import ConfigError
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS, KnownEndpoint

SECONDS_TO_ANSWER: Final = 5.0
"""A server on this machine or network answers at once, or is not there."""


class _Details(BaseModel):
    parameter_size: str = ""


class _Model(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    size: int = 0
    details: _Details = _Details()


class _Tags(BaseModel):
    models: list[_Model]


async def discover_ollama(base_url: str) -> tuple[WorkerTable, ...]:
    """Return the models of an Ollama server as workers, the largest first.

    Args:
        base_url: The server's OpenAI-compatible address.

    Returns:
        One worker for each model that does more than embed.

    Raises:
        ConfigError: No server answers, or it has no model.

    """
    import aiohttp  # here, because most starts have no Ollama and should not wait for it

    server = base_url.rstrip("/").removesuffix("/v1")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS_TO_ANSWER)) as session,
            session.get(f"{server}/api/tags", raise_for_status=True) as response,
        ):
            tags = _Tags.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
        raise ConfigError(
            f"no Ollama answers at {server} (OLLAMA_HOST); start it with `ollama serve`, or "
            f"unset OLLAMA_HOST"
        ) from error
    answering = [model for model in tags.models if "embed" not in model.name]
    if not answering:
        raise ConfigError(
            f"Ollama at {server} (OLLAMA_HOST) has no model; pull one, such as "
            f"`ollama pull llama3.2`, or unset OLLAMA_HOST"
        )
    return tuple(
        WorkerTable(
            name=model.name.removesuffix(":latest"),
            provider="ollama",
            model=model.name,
            description=f"{model.details.parameter_size or 'a'} model on one's own machine".strip(),
        )
        for model in sorted(answering, key=lambda model: -model.size)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredWorkers:
    """Workers found in the environment, and the variables that they were found by."""

    workers: tuple[WorkerTable, ...]
    variables: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def discover_workers(
    environment: Mapping[str, str], catalogue: Catalogue
) -> DiscoveredWorkers:
    """Return the default models of every vendor whose API key is set.

    The same model from a second vendor is left out. An Ollama server that does not answer is only
    a warning while there are other workers, and so is a key for a vendor without known models.
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
    return DiscoveredWorkers(
        workers=tuple(workers.values()),
        variables=tuple(variables),
        warnings=(*unreachable, *warnings),
    )


async def _workers_of(
    known: KnownEndpoint, environment: Mapping[str, str], catalogue: Catalogue
) -> tuple[WorkerTable, ...]:
    if known.provider == "ollama":
        endpoint = known.find_in(environment)
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
    named = (known.address_variable, *known.key_variables)
    return next((name for name in named if environment.get(name, "").strip()), None)
