"""From a file's tables to settings: the catalogue fills in what they leave out.

What a file says always wins. Nothing here reads the environment or the network, nor any file but
what a trained coordinator says of itself.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from podium.conductors import KINDS
from podium.conductors.evolved.description import read_description
from podium.config.guardrails import guardrail_settings
from podium.config.problems import find_secret, secret_problem, suggest
from podium.config.schema import ConductorTable, ConfigFile, WorkerTable
from podium.config.sections import mcp_settings, mini_settings
from podium.config.serving import StoreTable
from podium.config.settings import (
    ConductorSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    WorkerSettings,
)
from podium.config.values import WEIGHTS_PROVIDER
from podium.core.budget import Budget
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Limits, Pool, WorkerProfile
from podium.core.retry import BreakerPolicy, RetryPolicy, check_hedges
from podium.core.usage import FREE, Price
from podium.workers.catalogue import Catalogue, CatalogueEntry
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium.workers.local.sources import PREFIX as SHIPPED
from podium.workers.local.sources import shipped_adapter


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


EVOLVED_PREFIX: Final = "evolved:"
"""Prefix of a conductor's name that is followed by the directory of a trained coordinator."""

OWN_ADDRESS: Final = "openai-compatible"
"""The provider that is nobody in particular, so that its address must be given."""

LOCAL_PROVIDERS: Final = ("ollama", "vllm", "llamacpp", "transformers", "scripted")
"""Providers whose tokens nobody bills."""

PROVIDERS: Final = (
    *KNOWN_ENDPOINTS,
    OWN_ADDRESS,
    "llamacpp",
    "transformers",
    "scripted",
    CONDUCTOR_PROVIDER,
)
"""Everything that a worker's `provider` may say in a file."""


def resolve(
    tables: ConfigFile,
    source: str,
    *,
    planner: WorkerTable | None = None,
    today: datetime.date | None = None,
) -> Settings:
    """The settings that the tables mean, complete and checked.

    `source` is where they were read, for messages. `planner` is a worker that may plan without
    being in the pool. Models that are retired by `today` are warned of.
    """
    resolver = _Resolver(
        source=source,
        catalogue=Catalogue.load(),
        planner=planner,
        today=today or datetime.datetime.now(datetime.UTC).date(),
    )
    try:
        return resolver.settings(tables)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolver:
    """What resolving a file needs to know besides the file."""

    source: str
    catalogue: Catalogue
    planner: WorkerTable | None
    today: datetime.date

    def settings(self, config: ConfigFile) -> Settings:
        workers = tuple(self._worker(index, table) for index, table in enumerate(config.worker))
        settings = Settings(
            source=self.source,
            workers=workers,
            share_question=config.pool.share_question,
            mask_names=config.pool.mask_names,
            budget=Budget(**config.budget.model_dump()),
            retry=RetryPolicy(**config.retry.model_dump()),
            breaker=BreakerPolicy(**config.breaker.model_dump()),
            store=_store(config.store),
            server=ServerSettings(**config.server.model_dump()),
            mcp=mcp_settings(config.mcp),
            mini=mini_settings(config.mini),
            warnings=(*self._retired(workers), *_rehearsed(workers)),
        )
        check_hedges(settings.hedges, settings.pool)
        conductor = self._conductor(config.conductor, settings.pool, workers)
        able = [w.profile.name for w in workers if w.profile.provider != CONDUCTOR_PROVIDER]
        guardrails = guardrail_settings(config.guardrail, workers=able, rounds=conductor.rounds)
        noticed = (conductor.notice,) if conductor.notice else ()
        settings = replace(
            settings,
            conductor=conductor,
            guardrails=guardrails,
            warnings=settings.warnings + noticed,
        )
        settings.check()
        return settings

    def _worker(self, index: int, table: WorkerTable) -> WorkerSettings:
        where = f"worker[{index}]"
        if table.provider not in PROVIDERS:
            raise ConfigError(
                f"{where}.provider: no provider is called {table.provider!r}; "
                f"{suggest(table.provider, PROVIDERS)}"
            )
        if table.provider == OWN_ADDRESS and not table.base_url:
            raise ConfigError(
                f"{where}.base_url is missing; {OWN_ADDRESS!r} needs the server's address, such "
                f'as "http://127.0.0.1:8000/v1"'
            )
        if table.base_url:
            _check_address(table.base_url, f"{where}.base_url")
        if secret := find_secret(table.options, f"{where}.options"):
            raise ConfigError(secret_problem(secret))
        for name, given in (("faults", table.faults), ("hedge", table.hedge)):
            if given and table.provider == CONDUCTOR_PROVIDER:
                raise ConfigError(
                    f"{where}.{name} has no effect on a conductor, which makes no call of its own; "
                    f"give it to the workers that it calls"
                )
        return resolve_worker(table, self.catalogue)

    def _conductor(
        self, table: ConductorTable, pool: Pool, workers: Sequence[WorkerSettings]
    ) -> ConductorSettings:
        if table.kind == "fixed" and table.workflow is None:
            raise ConfigError('conductor.workflow is missing; kind = "fixed" needs one')
        _check_fallback(table.fallback, pool)
        settled = {"model", "options", "workflow", "coordinator", "pool_changed"}
        settings = ConductorSettings(
            worker=self._planner(table, pool, workers) if table.kind == "model" else None,
            workflow=Path(table.workflow) if table.workflow else None,
            **table.model_dump(exclude=settled),
        )
        return evolved_settings(settings, table, pool) if table.kind == "evolved" else settings

    def _planner(
        self, table: ConductorTable, pool: Pool, workers: Sequence[WorkerSettings]
    ) -> WorkerSettings:
        if secret := find_secret(table.options, "conductor.options"):
            raise ConfigError(secret_problem(secret))
        named = self._named_planner(table.model, pool, workers)
        if named is None:
            provider, _, model = (table.model or "").partition("/")
            described = WorkerTable(
                name=table.model or "", provider=provider, model=model, options=table.options
            )
            return resolve_worker(described, self.catalogue)
        if table.options:
            raise ConfigError(
                f"conductor.options has no effect on {named.profile.name!r}, which has its own; "
                f"drop it, or name the model as provider/model"
            )
        return named

    def _named_planner(
        self, model: str | None, pool: Pool, workers: Sequence[WorkerSettings]
    ) -> WorkerSettings | None:
        """The worker that is called so, or None where it is `provider/model`."""
        if model is None:
            return default_planner(workers, self.catalogue)
        if model in pool.names:
            return workers[pool.index(model)]
        if self.planner is not None and model == self.planner.name:
            return resolve_worker(self.planner, self.catalogue)
        if model.startswith(SHIPPED):
            return resolve_worker(_shipped(model), self.catalogue)
        provider, slash, _ = model.partition("/")
        if not slash or provider not in PROVIDERS:
            raise ConfigError(
                f"conductor.model: {model!r} is neither a worker of this pool nor provider/model; "
                f"{suggest(model, pool.names)}"
            )
        return None

    def _retired(self, workers: Sequence[WorkerSettings]) -> tuple[str, ...]:
        known = (
            (worker.profile, self.catalogue.lookup(worker.profile.provider, worker.profile.model))
            for worker in workers
        )
        return tuple(
            f"worker {profile.name!r}: {profile.provider} retired {entry.id} on {entry.retires}"
            for profile, entry in known
            if entry is not None and entry.retires is not None and entry.retires <= self.today
        )


def resolve_worker(table: WorkerTable, catalogue: Catalogue) -> WorkerSettings:
    """One worker, with what the catalogue knows wherever the table says nothing."""
    model = table.model or table.name
    entry = catalogue.lookup(table.provider, model)
    capabilities = entry.capabilities if entry else catalogue.assumed(table.provider)
    profile = WorkerProfile(
        name=table.name,
        provider=table.provider,
        model=entry.id if entry and model in entry.aliases else model,
        description=_description(table, entry),
        price=_price(table, entry),
        limits=_limits(table, entry),
        capabilities=capabilities if table.capabilities is None else table.capabilities,
        fallback=table.fallback,
    )
    return WorkerSettings(
        profile=profile,
        base_url=table.base_url or "",
        key_env=table.key_env or "",
        options={**(entry.options if entry else {}), **table.options},
        hedge=table.hedge.hedge() if table.hedge else None,
        faults=table.faults.faults() if table.faults else None,
        faults_seed=table.faults.seed if table.faults else 0,
    )


def _shipped(name: str) -> WorkerTable:
    """A conductor that comes with Podium: an adapter, over the weights that it was trained on."""
    adapter = shipped_adapter(name)
    return WorkerTable(
        name=name,
        provider=WEIGHTS_PROVIDER,
        model=adapter.base,
        options={"adapter": name, "template": adapter.template},
    )


def default_planner(workers: Sequence[WorkerSettings], catalogue: Catalogue) -> WorkerSettings:
    """Who plans when nobody was named: the catalogue's choice, else the pool's best worker."""
    ranked = [
        (entry.conductor, place)
        for place, worker in enumerate(workers)
        if (entry := catalogue.lookup(worker.profile.provider, worker.profile.model))
        and entry.conductor is not None
    ]
    if ranked:
        return workers[min(ranked)[1]]
    profiles = tuple(worker.profile for worker in workers)
    return workers[profiles.index(Pool(profiles).best)]


def _rehearsed(workers: Sequence[WorkerSettings]) -> tuple[str, ...]:
    """Faults are for tests and rehearsals, so nobody shall have them unawares."""
    return tuple(
        f"worker {worker.profile.name!r}: some of its calls fail on purpose, as its faults say"
        for worker in workers
        if worker.faults is not None
    )


def _check_fallback(name: str | None, pool: Pool) -> None:
    """Whoever answers alone must be in the pool, and able to answer without a plan."""
    if name is None:
        return
    able = [worker.name for worker in pool if worker.provider != CONDUCTOR_PROVIDER]
    if name not in able:
        raise ConfigError(
            f"conductor.fallback: {name!r} is no worker of this pool that answers by itself; "
            f"{suggest(name, able)}"
        )


def _check_address(address: str, where: str) -> None:
    """An address is shown and stored, so nothing may stand in it that lets someone in."""
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise ConfigError(secret_problem(where))
    if parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: expected an address without ? and #, such as https://example.com/v1; "
            f'a key goes into an environment variable, named with key_env = "…"'
        )


def _description(table: WorkerTable, entry: CatalogueEntry | None) -> str:
    if table.description is not None:
        return table.description
    return entry.description if entry else ""


def _price(table: WorkerTable, entry: CatalogueEntry | None) -> Price | None:
    if table.price is not None:
        return table.price.price()
    if entry is not None and entry.price is not None:
        return entry.price.price()
    # A conductor's own calls are billed one by one where they are made.
    return FREE if table.provider in (*LOCAL_PROVIDERS, CONDUCTOR_PROVIDER) else None


def _limits(table: WorkerTable, entry: CatalogueEntry | None) -> Limits:
    known = {
        "context_window": entry.context_window if entry else None,
        "max_output_tokens": entry.max_output_tokens if entry else None,
    }
    return Limits(**{**known, **table.limits.model_dump(exclude_none=True)})


def _store(table: StoreTable) -> StoreSettings:
    if table.path and table.url:
        raise ConfigError("store.path and store.url exclude each other; keep one")
    return StoreSettings(
        path=Path(table.path) if table.path else None,
        url=table.url or "",
        lease_seconds=table.lease_seconds,
    )


def choose_conductor(settings: Settings, name: str) -> Settings:
    """Return the settings with another conductor.

    Args:
        settings: The settings to change.
        name: A kind, a worker of the pool, `provider/model`, or `evolved:DIRECTORY`.

    Returns:
        The settings with that conductor.

    Raises:
        UsageError: There is no such conductor, or it lacks what it needs.
        ConfigError: The coordinator was trained with other workers.

    """
    conductor = settings.conductor
    if name.startswith(EVOLVED_PREFIX):
        directory = Path(name.removeprefix(EVOLVED_PREFIX)).expanduser()
        description = read_description(directory)
        description.check(
            settings.pool,
            otherwise='name it in the configuration\'s [conductor] instead (kind = "evolved", '
            'coordinator, pool_changed = "narrow") to have it choose among the workers that both '
            "have",
        )
        conductor = replace(
            conductor,
            kind="evolved",
            worker=None,
            coordinator=directory,
            notice="",
            rounds=description.turns,
        )
    elif name in KINDS and name not in settings.pool.names:
        conductor = _change_kind(settings, name)
    else:
        conductor = replace(conductor, kind="model", worker=_choose_planner(settings, name))
    return replace(settings, conductor=conductor)


def _change_kind(settings: Settings, kind: str) -> ConductorSettings:
    conductor = settings.conductor
    match kind:
        case "model":
            planner = conductor.worker or default_planner(settings.workers, Catalogue.load())
            return replace(conductor, kind="model", worker=planner)
        case "fixed" if conductor.workflow is None:
            raise UsageError(
                'the fixed conductor needs a workflow; set kind = "fixed" and workflow in the '
                "configuration's [conductor], or carry one out with: podium run WORKFLOW.json"
            )
        case "fixed":
            return replace(conductor, kind="fixed", worker=None)
        case "evolved" if conductor.coordinator is None:
            raise UsageError(
                "the evolved conductor needs a coordinator; name the directory that `podium train "
                f'evolve` wrote as {EVOLVED_PREFIX}DIR, or set kind = "evolved" and coordinator in '
                "the configuration's [conductor]"
            )
        case "evolved":
            return conductor
        case "rules":
            return replace(conductor, kind="rules", worker=None)
        case _:
            return replace(conductor, kind="router", worker=None)


def _choose_planner(settings: Settings, name: str) -> WorkerSettings:
    if name in settings.pool.names:
        return settings[name]
    provider, slash, model = name.partition("/")
    if slash and model and provider in PROVIDERS:
        table = WorkerTable(name=name, provider=provider, model=model)
        return resolve_worker(table, Catalogue.load())
    raise UsageError(
        f"unknown conductor {name!r}: neither a kind, nor a worker of this pool, nor "
        f"provider/model; {suggest(name, (*KINDS, *settings.pool.names))}"
    )
