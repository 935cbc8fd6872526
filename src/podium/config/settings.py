"""Settings: a configuration resolved into values, with no secret in them.

The catalogue fills in what a file's tables leave out; what a file says always wins. API keys are
read from the environment only when an endpoint is asked for, so settings can be shown, compared and
tested without any. Nothing else here reads the environment or the network, nor any file but the
description of a trained coordinator.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from podium.conductors import KINDS
from podium.conductors.evolved_turns import read_description
from podium.conductors.prompt import PromptStyle
from podium.config.guardrails import GuardrailSettings
from podium.config.problems import suggest, validation_problem
from podium.config.schema import (
    ConductorKind,
    ConductorTable,
    ConfigFile,
    OnPoolChange,
    ServerSettings,
    StoreSettings,
)
from podium.config.workers import (
    LLAMACPP_PROVIDER,
    PDF_PROVIDERS,
    PROVIDERS,
    TRANSFORMERS_PROVIDER,
    WorkerTable,
)
from podium.core.budget import DEFAULT_BUDGET, Budget
from podium.core.errors import ConfigError, UnknownWorker, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, PYTHON_PROVIDER, Limits, Pool, WorkerProfile
from podium.core.request import FREE, Price
from podium.core.retry import BreakerPolicy, RetryPolicy
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.workers.balanced import Balance
from podium.workers.catalogue import Catalogue, CatalogueEntry
from podium.workers.endpoints import KNOWN_ENDPOINTS, Endpoint, missing_address
from podium.workers.local.sources import EMBEDDED_PREFIX, embedded_adapter
from podium.workers.mcp import McpSettings

EVOLVED_PREFIX: Final = "evolved:"
"""Prefix of a conductor's name that is followed by the directory of a trained coordinator."""

DEFAULT_RUN_USD: Final = 1.0
"""The cap of a run in US dollars where the configuration sets none."""

FREE_PROVIDERS: Final = (
    "ollama",
    "lmstudio",
    "vllm",
    LLAMACPP_PROVIDER,
    TRANSFORMERS_PROVIDER,
    "scripted",
    PYTHON_PROVIDER,
    CONDUCTOR_PROVIDER,  # its calls are billed one by one where they are made
)
"""Providers that do not bill tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A worker, and how it is reached.

    An empty `base_url` is the vendor's own address, or the one that the vendor's variable names.
    `key_env` names the environment variable of the API key; empty, it is the vendor's usual one,
    and the key is only ever sent to those addresses. With `deployments`, each of them is called as
    `balance` says; they hold the addresses.
    """

    profile: WorkerProfile
    base_url: str = ""
    key_env: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    deployments: tuple[DeploymentSettings, ...] = ()
    balance: Balance = "least-latency"
    entry: CatalogueEntry | None = field(default=None, repr=False, compare=False)
    """Return the catalogue's entry for its model."""

    @property
    def targets(self) -> tuple[WorkerSettings, ...]:
        """The deployments as workers, or this worker itself."""
        return tuple(one.worker for one in self.deployments) or (self,)

    def endpoint(self, environment: Mapping[str, str]) -> Endpoint:
        """Return the worker's address and key; `ConfigError` if the key is missing."""
        known = KNOWN_ENDPOINTS.get(self.profile.provider)
        address = self.base_url or (known.address_in(environment) if known else "")
        if known and not address:
            raise missing_address(self.profile, known)
        if self.key_env:
            key = environment.get(self.key_env, "").strip()
            if not key:
                raise self._missing_key(self.key_env)
            return Endpoint(base_url=address, api_key=key, options=self.options)
        if known is None or (self.base_url and not known.owns(address)):
            return Endpoint(base_url=address, options=self.options)
        found = known.endpoint_at(address, environment)
        if not found.api_key and known.key_variables and not known.authorizer:
            raise self._missing_key(" or ".join(known.key_variables))
        return replace(found, options=self.options)

    def _missing_key(self, variable: str) -> ConfigError:
        return ConfigError(
            f"worker {self.profile.name!r} needs a key for {self.profile.provider}; "
            f"set {variable} in the environment"
        )


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """One deployment of a worker: its settings as a worker of its own, and its weight."""

    name: str
    worker: WorkerSettings
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductorSettings:
    """The conductor.

    Attributes:
        worker: The worker that plans, for the kind `model`.
        workflow: The file of a fixed workflow.
        coordinator: The directory of a trained coordinator.
        fallback: The worker that answers alone where there is no plan.

    """

    kind: ConductorKind = "model"
    worker: WorkerSettings | None = None
    workflow: Path | None = None
    coordinator: Path | None = None
    max_steps: int = DEFAULT_MAX_STEPS
    rounds: int = 1
    temperature: float = 0.2
    prompt: PromptStyle = "full"
    few_shot: bool = True
    fallback: str | None = None
    overlap: bool = True
    speculate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """The learned router of the mini tier.

    `trained_for` is the pool to compare with, where workers of it were left out on purpose.
    """

    router: str
    confidence: float = 0.5
    quality_bias: float = 0.5
    on_pool_change: OnPoolChange = "refuse"
    trained_for: Pool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings.

    `source` says where they came from, `mini` is the router, if any. `uses_default_pool` is
    True where no worker was configured.
    """

    source: str
    workers: tuple[WorkerSettings, ...]
    share_question: bool = True
    mask_names: bool = False
    conductor: ConductorSettings = ConductorSettings()
    mini: RouterSettings | None = None
    budget: Budget = DEFAULT_BUDGET
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    store: StoreSettings = field(default_factory=StoreSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    mcp: tuple[McpSettings, ...] = ()
    guardrails: tuple[GuardrailSettings, ...] = ()
    uses_default_pool: bool = False
    warnings: tuple[str, ...] = ()
    pool: Pool = field(init=False, repr=False, compare=False)
    """The workers' profiles, as conductors and the engine take them."""
    run_budget: Budget = field(init=False, repr=False, compare=False)
    """The caps of a run: those of the budget, and `DEFAULT_RUN_USD` where none is on money,
    workers cost money and all prices are known."""

    def __post_init__(self) -> None:
        profiles = tuple(worker.profile for worker in self.workers)
        pool = Pool(profiles, share_question=self.share_question, mask_names=self.mask_names)
        object.__setattr__(self, "pool", pool)
        planner, budget = self.conductor.worker, self.budget
        if planner is not None:
            profiles += (planner.profile,)
        prices = [one.price for one in profiles if one.is_model]
        is_known = all(price is not None for price in prices)
        if budget.usd is None and is_known and any(price != FREE for price in prices):
            budget = replace(budget, usd=DEFAULT_RUN_USD)
        object.__setattr__(self, "run_budget", budget)

    def __getitem__(self, name: str) -> WorkerSettings:
        for worker in self.workers:
            if worker.profile.name == name:
                return worker
        raise UnknownWorker(name, self.pool.names)

    def check(self) -> None:
        """Refuse an impossible pool, or a cap on money over a model of unknown price."""
        pool, planner = self.pool, self.conductor.worker
        if planner is not None and planner not in self.workers:
            pool = replace(pool, workers=(*pool.workers, planner.profile))
        if self.budget.usd is not None:
            self.budget.check(pool.workers)


def resolve(
    tables: ConfigFile,
    source: str,
    *,
    planner: WorkerTable | None = None,
    today: datetime.date | None = None,
) -> Settings:
    """Resolve the tables to complete and checked settings.

    `source` is where they were read, for messages. `planner` is a worker that may plan without
    being in the pool. Models that are retired by `today` are warned of.
    """
    today = today or datetime.datetime.now(datetime.UTC).date()
    try:
        return _settings(tables, source, planner, today)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _settings(
    config: ConfigFile, source: str, planner: WorkerTable | None, today: datetime.date
) -> Settings:
    catalogue = Catalogue.load()
    workers = tuple(resolve_worker(table, catalogue) for table in config.worker)
    settings = Settings(
        source=source,
        workers=workers,
        share_question=config.pool.share_question,
        mask_names=config.pool.mask_names,
        budget=Budget(**config.budget.model_dump()),
        retry=RetryPolicy(**config.retry.model_dump()),
        breaker=BreakerPolicy(**config.breaker.model_dump()),
        store=config.store,
        server=config.server,
        mcp=tuple(
            McpSettings(name=name, **table.model_dump(exclude_none=True))
            for name, table in config.mcp.items()
        ),
        mini=RouterSettings(**config.mini.model_dump()) if config.mini.router else None,
        guardrails=config.guardrail,
        warnings=tuple(_warnings(workers, today)),
    )
    able = [one.name for one in settings.pool.workers if one.is_model]
    conductor = _conductor(config.conductor, settings, able, planner)
    _check_guardrails(config.guardrail, able, conductor.rounds)
    settings = replace(settings, conductor=conductor)
    settings.check()
    return settings


def _conductor(
    table: ConductorTable, settings: Settings, able: Sequence[str], extra: WorkerTable | None
) -> ConductorSettings:
    """Resolve the conductor; `able` are the workers that answer by themselves."""
    if table.fallback is not None and table.fallback not in able:
        raise ConfigError(
            f"conductor.fallback: {table.fallback!r} is no worker of this pool that answers by "
            f"itself; {suggest(table.fallback, able)}"
        )
    resolved = {"model", "options", "workflow", "coordinator"}
    conductor = ConductorSettings(
        worker=_planner(table, settings, extra) if table.kind == "model" else None,
        workflow=Path(table.workflow) if table.workflow else None,
        **table.model_dump(exclude=resolved),
    )
    return (
        _add_coordinator(conductor, table, settings.pool) if table.kind == "evolved" else conductor
    )


def _planner(
    table: ConductorTable, settings: Settings, extra: WorkerTable | None
) -> WorkerSettings:
    catalogue, pool = Catalogue.load(), settings.pool
    model = table.model
    if model is None:
        planner = default_planner(settings.workers)
    elif model in pool.names:
        planner = settings[model]
    elif extra is not None and model == extra.name:
        planner = resolve_worker(extra, catalogue)
    elif model.startswith(EMBEDDED_PREFIX):
        planner = resolve_worker(_embedded_conductor(model), catalogue)
    else:
        provider, slash, name = model.partition("/")
        if not slash or provider not in PROVIDERS or provider == CONDUCTOR_PROVIDER:
            raise ConfigError(
                f"conductor.model: {model!r} is neither a worker of this pool nor "
                f"provider/model; {suggest(model, pool.names)}"
            )
        try:
            planner_table = WorkerTable(
                name=model, provider=provider, model=name, options=table.options
            )
        except ValidationError as error:
            raise validation_problem("conductor.model", error, WorkerTable) from None
        return resolve_worker(planner_table, catalogue)
    if table.options:
        raise ConfigError(
            f"conductor.options has no effect on {planner.profile.name!r}, which has its own; "
            f"drop it, or name the model as provider/model"
        )
    return planner


def _warnings(workers: Sequence[WorkerSettings], today: datetime.date) -> Iterator[str]:
    for profile, entry in ((worker.profile, worker.entry) for worker in workers):
        if entry is not None and entry.retires is not None and entry.retires <= today:
            retired = f"{profile.provider} retired {entry.id} on {entry.retires}"
            yield f"worker {profile.name!r}: {retired}"


def resolve_worker(table: WorkerTable, catalogue: Catalogue) -> WorkerSettings:
    """Resolve one worker; the catalogue fills in what the table leaves out."""
    model = table.model or table.name
    entry = catalogue.lookup(table.provider, model)
    defaults = entry.capabilities if entry else catalogue.default_capabilities(table.provider)
    capabilities = defaults if table.capabilities is None else table.capabilities
    if "vision" in capabilities and table.provider in PDF_PROVIDERS:
        capabilities |= {"pdf"}
    described = entry.description if entry else ""
    known = {
        "context_window": entry.context_window if entry else None,
        "max_output_tokens": entry.max_output_tokens if entry else None,
    }
    profile = WorkerProfile(
        name=table.name,
        provider=table.provider,
        model=entry.id if entry and model in entry.aliases else model,
        description=described if table.description is None else table.description,
        price=_price(table, entry),
        limits=Limits(**{**known, **table.limits.model_dump(exclude_none=True)}),
        capabilities=capabilities,
        fallback=table.fallback,
    )
    options = {**(entry.options if entry else {}), **table.options}
    return WorkerSettings(
        profile=profile,
        base_url=table.base_url or "",
        key_env=table.key_env or "",
        options=options,
        deployments=_deployments(table, profile, options),
        balance=table.balance,
        entry=entry,
    )


def _deployments(
    table: WorkerTable, profile: WorkerProfile, options: Mapping[str, Any]
) -> tuple[DeploymentSettings, ...]:
    """Resolve each deployment to a worker of its own, named after both."""
    found = []
    for number, one in enumerate(table.deployments, start=1):
        name = one.name or str(number)
        named = replace(profile, name=f"{profile.name}@{name}", model=one.model or profile.model)
        worker = WorkerSettings(
            profile=named,
            base_url=one.base_url or table.base_url or "",
            key_env=one.key_env or table.key_env or "",
            options=options,
        )
        found.append(DeploymentSettings(name, worker, one.weight))
    return tuple(found)


def default_planner(workers: Sequence[WorkerSettings]) -> WorkerSettings:
    """Return the worker that plans by default: the catalogue's choice, else the pool's best."""
    ranked = [
        (worker.entry.planner_rank, position)
        for position, worker in enumerate(workers)
        if worker.entry is not None and worker.entry.planner_rank is not None
    ]
    if ranked:
        return workers[min(ranked)[1]]
    profiles = tuple(worker.profile for worker in workers)
    return workers[profiles.index(Pool(profiles).most_expensive)]


def choose_conductor(settings: Settings, name: str) -> Settings:
    """Return the settings with another conductor: a kind, a worker of the pool, `provider/model`,
    or `evolved:DIRECTORY`.

    Raises `UsageError` if there is no such conductor or it lacks what it needs, and `ConfigError`
    if the coordinator was trained with other workers.
    """
    conductor = settings.conductor
    if name.startswith(EVOLVED_PREFIX):
        directory = Path(name.removeprefix(EVOLVED_PREFIX)).expanduser()
        description = read_description(directory)
        description.check(settings.pool)
        conductor = replace(
            conductor,
            kind="evolved",
            worker=None,
            coordinator=directory,
            rounds=description.turns,
        )
    elif name in KINDS and name not in settings.pool.names:
        conductor = _change_kind(settings, name)
    else:
        conductor = replace(conductor, kind="model", worker=_choose_planner(settings, name))
    settings = replace(settings, conductor=conductor)
    settings.check()
    return settings


def _change_kind(settings: Settings, kind: str) -> ConductorSettings:
    conductor = settings.conductor
    match kind:
        case "model":
            planner = conductor.worker or default_planner(settings.workers)
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
                "the evolved conductor needs a coordinator; name the directory that `podium lab "
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
    if slash and model and provider in PROVIDERS and provider != CONDUCTOR_PROVIDER:
        table = WorkerTable(name=name, provider=provider, model=model)
        return resolve_worker(table, Catalogue.load())
    raise UsageError(
        f"unknown conductor {name!r}: neither a kind, nor a worker of this pool, nor "
        f"provider/model; {suggest(name, (*KINDS, *settings.pool.names))}"
    )


def _add_coordinator(
    settings: ConductorSettings, table: ConductorTable, pool: Pool
) -> ConductorSettings:
    """Add the coordinator; `ConfigError` where it was trained with other workers."""
    assert table.coordinator is not None, "the table was checked"
    description = read_description(Path(table.coordinator))
    description.check(pool)
    rounds = table.rounds if "rounds" in table.model_fields_set else description.turns
    return replace(settings, coordinator=Path(table.coordinator), rounds=rounds)


def _embedded_conductor(name: str) -> WorkerTable:
    """Describe a conductor that comes with Podium: an adapter over its base weights."""
    adapter = embedded_adapter(name)
    return WorkerTable(
        name=name,
        provider=LLAMACPP_PROVIDER,
        model=adapter.base,
        options={"adapter": name, "template": adapter.template},
    )


def _check_guardrails(
    guardrails: Sequence[GuardrailSettings], able: Sequence[str], rounds: int
) -> None:
    names: set[str] = set()
    for index, guardrail in enumerate(guardrails):
        where = f"guardrail[{index}]"
        if guardrail.name in names:
            raise ConfigError(
                f"{where}.name: there are two guardrails named {guardrail.name!r}; give one "
                f'another name, with name = "…"'
            )
        names.add(guardrail.name)
        if guardrail.action == "replan" and rounds < 2:
            raise ConfigError(
                f'{where}.action is "replan", but the conductor plans once; raise conductor.rounds'
            )
        if guardrail.kind == "grounding" and guardrail.verifier not in able:
            raise ConfigError(
                f"{where}.verifier: {guardrail.verifier!r} is no worker of this pool that answers "
                f"by itself; there is {', '.join(able) or 'none'}"
            )


def _price(table: WorkerTable, entry: CatalogueEntry | None) -> Price | None:
    if table.price is not None:
        return table.price.price()
    if entry is not None and entry.price is not None:
        return entry.price.price()
    return FREE if table.provider in FREE_PROVIDERS else None
