"""Settings: a configuration resolved into values, with no secret in them.

API keys are read from the environment only when an endpoint is asked for, so settings can be
shown, compared and tested without any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podium.config.guardrails import GuardrailSettings
from podium.config.schema import (
    SHIPPED,
    ConductorKind,
    PoolChanged,
    PromptLength,
    ServerSettings,
    StoreSettings,
)
from podium.core.budget import DEFAULT_BUDGET, Budget
from podium.core.errors import ConfigError, UnknownWorker
from podium.core.pool import Pool, WorkerProfile
from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.workers.balanced import Balance
from podium.workers.endpoints import KNOWN_ENDPOINTS, Endpoint, missing_address
from podium.workers.faulty import Faults
from podium.workers.mcp import McpSettings


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
    hedge: Hedge | None = None
    faults: Faults | None = None
    faults_seed: int = 0
    deployments: tuple[DeploymentSettings, ...] = ()
    balance: Balance = "least-latency"

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
        notice: A warning for every run about a pool that changed since training.
        fallback: The worker that answers alone where there is no plan.

    """

    kind: ConductorKind = "model"
    worker: WorkerSettings | None = None
    workflow: Path | None = None
    coordinator: Path | None = None
    notice: str = ""
    max_steps: int = DEFAULT_MAX_STEPS
    rounds: int = 1
    temperature: float = 0.2
    prompt: PromptLength = "full"
    few_shot: bool = True
    fallback: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    """The learned router of the mini tier.

    `trained_for` is the pool to compare with, where workers of it were left out on purpose. An
    `optional` router comes with the embedded pool: a machine without its extra goes without.
    """

    router: str
    confidence: float = 0.5
    quality_bias: float = 0.5
    pool_changed: PoolChanged = "refuse"
    trained_for: Pool | None = None
    optional: bool = False

    @property
    def shipped(self) -> str:
        """The name of a router that comes with Podium; empty where it is a file."""
        return self.router.removeprefix(SHIPPED) if self.router.startswith(SHIPPED) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings.

    `source` says where they came from, `mini` is the router, if any, and `is_embedded` is True
    where no worker was configured, so that the pool is the embedded one.
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
    is_embedded: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def pool(self) -> Pool:
        """The workers' profiles, as conductors and the engine take them."""
        return Pool(
            tuple(worker.profile for worker in self.workers),
            share_question=self.share_question,
            mask_names=self.mask_names,
        )

    @property
    def hedges(self) -> dict[str, Hedge]:
        """The hedges, by the workers' names."""
        return {
            worker.profile.name: worker.hedge for worker in self.workers if worker.hedge is not None
        }

    def __getitem__(self, name: str) -> WorkerSettings:
        """Return the worker of that name."""
        for worker in self.workers:
            if worker.profile.name == name:
                return worker
        raise UnknownWorker(name, self.pool.names)

    def check(self) -> None:
        """Refuse an impossible pool, or a cap on money over a model of unknown price."""
        workers = [*self.workers]
        if self.conductor.worker is not None and self.conductor.worker not in workers:
            workers.append(self.conductor.worker)
        pool = self.pool
        self.budget.check(replace(pool, workers=tuple(worker.profile for worker in workers)))
