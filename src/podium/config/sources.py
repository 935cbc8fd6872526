"""Find the settings of this machine: files, else API keys in the environment, else the
default pool."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, Field

from podium._util import files as paths
from podium.config.local_servers import MAX_MODELS, LocalServer, find_local_servers
from podium.config.schema import POOLS, ConfigFile, read_file, read_files
from podium.config.settings import Settings, resolve
from podium.config.workers import WorkerTable
from podium.core.errors import ConfigError
from podium.core.pool import PYTHON_PROVIDER, Capability
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS, KnownEndpoint
from podium.workers.sandbox import isolation_problem

SECONDS_TO_ANSWER: Final = 5.0
"""A server on this machine or network answers at once, or is not there."""


_SHOWN_BY_OLLAMA: Final[frozenset[Capability]] = frozenset({"tools", "vision"})


class _OllamaDetails(BaseModel):
    parameter_size: str = ""


class _OllamaModel(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    size: int = 0
    details: _OllamaDetails = _OllamaDetails()


class _TagsResponse(BaseModel):
    models: list[_OllamaModel]


class _ShowResponse(BaseModel):
    capabilities: frozenset[str] = frozenset()


class _ListedModel(BaseModel):
    id: Annotated[str, Field(min_length=1)]


class _ModelsResponse(BaseModel):
    data: list[_ListedModel]


ResponseT = TypeVar("ResponseT", bound=BaseModel)


async def _fetch(
    url: str,
    form: type[ResponseT],
    headers: Mapping[str, str] = {},
    body: Mapping[str, str] | None = None,
) -> ResponseT | None:
    """Return what a server tells of its models; None if there is no such answer."""
    import aiohttp  # here, because most starts ask no server and should not wait for it

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS_TO_ANSWER)) as session,
            session.request(
                "GET" if body is None else "POST",
                url,
                headers=headers,
                json=body,
                raise_for_status=True,
                allow_redirects=False,
            ) as response,
        ):
            return form.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None


async def discover_ollama(base_url: str) -> tuple[WorkerTable, ...]:
    """Return the models of an Ollama server that do more than embed, the largest first.

    Raises `ConfigError` if no server answers or it has no model.
    """
    server = base_url.rstrip("/").removesuffix("/v1")
    tags = await _fetch(f"{server}/api/tags", _TagsResponse)
    if tags is None:
        raise ConfigError(
            f"no Ollama answers at {server} (OLLAMA_HOST); start it with `ollama serve`, or "
            f"unset OLLAMA_HOST"
        )
    answering = [model for model in tags.models if "embed" not in model.name]
    if not answering:
        raise ConfigError(
            f"Ollama at {server} (OLLAMA_HOST) has no model; pull one, such as "
            f"`ollama pull llama3.2`, or unset OLLAMA_HOST"
        )
    workers = (
        WorkerTable(
            name=model.name.removesuffix(":latest"),
            provider="ollama",
            model=model.name,
            description=f"{model.details.parameter_size or 'a'} model on one's own machine".strip(),
        )
        for model in sorted(answering, key=lambda model: -model.size)
    )
    return await _ask_ollama(server, workers)


async def _ask_ollama(server: str, workers: Iterable[WorkerTable]) -> tuple[WorkerTable, ...]:
    """Return the workers with the capabilities that Ollama shows of their models."""
    defaults = Catalogue.load().default_capabilities("ollama")

    async def ask(worker: WorkerTable) -> WorkerTable:
        shown = await _fetch(
            f"{server}/api/show", _ShowResponse, body={"model": worker.model or ""}
        )
        found = _SHOWN_BY_OLLAMA & shown.capabilities if shown else frozenset()
        return worker.model_copy(update={"capabilities": defaults | found}) if found else worker

    return tuple(await asyncio.gather(*map(ask, workers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredWorkers:
    """Workers found in the environment, and the variables or servers that they were found by."""

    workers: tuple[WorkerTable, ...]
    variables: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def discover_workers(
    environment: Mapping[str, str],
    catalogue: Catalogue,
    servers: Sequence[LocalServer] | None = None,
) -> DiscoveredWorkers:
    """Return the default models of every vendor whose API key is set.

    The same model from a second vendor is left out. An Ollama server that does not answer is only
    a warning while there are other workers, and so is a key for a vendor without known models.
    Without any variable, servers of this machine are looked for, at their usual ports by default.
    """
    workers: dict[str, WorkerTable] = {}
    variables: list[str] = []
    unreachable: list[str] = []
    warnings: list[str] = []
    for known in KNOWN_ENDPOINTS.values():
        variable = _variable(known, environment)
        if variable is None:
            if known.key_variables and environment.get(known.address_variable, "").strip():
                warnings.append(_no_key(known))
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
    if not workers and not unreachable:
        for server in await find_local_servers(environment, servers):
            if server.models:
                variables.append(f"{server.provider} at {server.address}")
                local = server.workers()
                if server.provider == "ollama":
                    local = await _ask_ollama(server.base_url.removesuffix("/v1"), local)
                for worker in local:
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
    models = tuple(entry.id for entry in catalogue.defaults(known.provider))
    moved = environment.get(known.address_variable, "").strip() and not known.authorizer
    if moved and known.protocol.startswith("openai"):
        models = await _served_models(known, environment, models)
    return tuple(
        WorkerTable(name=model.rpartition("/")[2], provider=known.provider, model=model)
        for model in models
    )


async def _served_models(
    known: KnownEndpoint, environment: Mapping[str, str], defaults: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the default models that another address serves, else the first that it lists."""
    endpoint = known.find_in(environment)
    assert endpoint is not None, "the environment was looked at"
    key = {"Authorization": f"Bearer {endpoint.api_key}"}
    served = await _fetch(f"{endpoint.base_url.rstrip('/')}/models", _ModelsResponse, key)
    if served is None:
        return defaults  # it need not have a list; a call will tell
    listed = tuple(model.id for model in served.data)
    answering = tuple(model for model in listed if "embed" not in model)
    return tuple(model for model in defaults if model in listed) or answering[:MAX_MODELS]


def _no_models(known: KnownEndpoint, variable: str) -> str:
    return (
        f"{variable} is set, but Podium does not know which models {known.provider} has; name one "
        f'in podium.toml: [[worker]] with provider = "{known.provider}" and the model\'s id'
    )


def _no_key(known: KnownEndpoint) -> str:
    return (
        f"{known.address_variable} is set, but {known.key_variables[0]} is not; set it too, to any "
        f"text if that server takes no key"
    )


def _variable(known: KnownEndpoint, environment: Mapping[str, str]) -> str | None:
    keys = (*known.key_variables, *known.token_variables)
    addresses = () if known.find_in(environment) is None else (known.address_variable,)
    named = (*keys, *addresses)
    return next((name for name in named if environment.get(name, "").strip()), None)


CONFIG_VARIABLE: Final = "PODIUM_CONFIG"
FILE_NAME: Final = "podium.toml"

POOL_VARIABLE: Final = "PODIUM_POOL"
"""Names the pool where none is named otherwise, as `--pool` does."""

DEFAULT_POOL: Final = POOLS / "default.toml"
"""The pool file of a machine with no API key and no configuration."""

ETUDES_POOL: Final = POOLS / "etudes.toml"
"""The pool of the études, with its trained conductor."""


async def discover_settings(
    environment: Mapping[str, str],
    *,
    config: Path | None = None,
    pool: Path | None = None,
    directory: Path = Path(),
    today: datetime.date | None = None,
    is_server: bool = False,
) -> Settings:
    """Return the settings in force on this machine; raises `ConfigError` for an invalid file.

    The configuration file is by default the one of `PODIUM_CONFIG`, else `podium.toml` in the
    directory, else the user's own; the pool is that of `PODIUM_POOL`, if set. Each table of a pool
    file replaces that of the configuration, but the configuration's planner still plans. Where no
    file names a worker, the workers come from the API keys in the environment, without any key from
    a model server of this machine, and without one from the default pool. Python workers are left
    out where programs cannot be isolated, and on a server that does not allow them. Models that are
    retired by `today` are warned of.
    """
    pool = pool or _named_pool(environment)
    files = [
        path
        for path in (find_config_file(environment, config=config, directory=directory), pool)
        if path
    ]
    tables, planner = read_files(files)
    sources = [str(path) for path in files]
    warnings: tuple[str, ...] = ()
    uses_default_pool = False
    if not tables.worker:
        found = await discover_workers(environment, Catalogue.load())
        if found.workers:
            tables = tables.model_copy(update={"worker": found.workers})
            sources.append(f"the environment ({', '.join(found.variables)})")
        else:
            tables = tables.complete_from(read_file(DEFAULT_POOL))
            sources.append("the default pool")
            uses_default_pool = True
        warnings = found.warnings
    if left_out := await _python_problem(tables, is_server=is_server):
        kept = tuple(worker for worker in tables.worker if worker.provider != PYTHON_PROVIDER)
        tables = tables.model_copy(update={"worker": kept})
        warnings = (*warnings, left_out)
    settings = resolve(tables, " with ".join(sources), planner=planner, today=today)
    if uses_default_pool or warnings:
        warnings = (*settings.warnings, *warnings)
        settings = replace(settings, uses_default_pool=uses_default_pool, warnings=warnings)
    return settings


def _named_pool(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(POOL_VARIABLE, "").strip()
    return Path(named).expanduser() if named else None


async def _python_problem(tables: ConfigFile, *, is_server: bool) -> str:
    """Return why the pool's Python workers are left out; empty if none has to be."""
    names = [worker.name for worker in tables.worker if worker.provider == PYTHON_PROVIDER]
    if not names:
        return ""
    if is_server and not tables.server.allow_python_workers:
        reason = "this server runs no programs; [server] allow_python_workers = true allows them"
    else:
        reason = await isolation_problem()
    return f"worker {names[0]!r} is left out: {reason}" if reason else ""


def load(path: Path | str, *, today: datetime.date | None = None) -> Settings:
    """Load the settings of one configuration or pool file; raises `ConfigError`."""
    path = Path(path)
    return resolve(read_file(path), str(path), today=today)


def find_config_file(
    environment: Mapping[str, str], *, config: Path | None = None, directory: Path = Path()
) -> Path | None:
    """Return the configuration file in force, if there is one.

    Raises `ConfigError` if the environment names a missing file.
    """
    if config is not None:
        return config.expanduser()
    if named := environment.get(CONFIG_VARIABLE, "").strip():
        file = Path(named).expanduser()
        if not file.exists():
            raise ConfigError(
                f"{CONFIG_VARIABLE} names {file}, which does not exist; correct it or unset it"
            )
        return file
    candidates = (directory / FILE_NAME, paths.config_file())
    return next((path for path in candidates if path.is_file()), None)
