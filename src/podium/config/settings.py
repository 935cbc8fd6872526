"""Settings: everything that Podium was told, resolved into values, with no secret in them.

Keys are read from the environment only when an endpoint is asked for, so settings can be shown,
compared and tested without any. Where settings come from is `files` and `environment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podium.config.guardrails import GuardrailSettings
from podium.config.schema import ConductorKind, PromptLength
from podium.config.sections import RouterSettings
from podium.config.serving import LogForm
from podium.core.budget import Budget
from podium.core.errors import ConfigError, UnknownWorker
from podium.core.pool import Pool, WorkerProfile
from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.workers.endpoints import KNOWN_ENDPOINTS, Endpoint, KnownEndpoint
from podium.workers.faulty import Faults
from podium.workers.mcp import McpSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """A worker, and how it is reached.

    An empty `base_url` is the vendor's own address. `key_env` names the environment variable
    that holds the key; empty, it is the vendor's usual one, and then the key is only ever sent
    to the vendor's own address. `faults` are to befall its calls, in a rehearsal.
    """

    profile: WorkerProfile
    base_url: str = ""
    key_env: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    hedge: Hedge | None = None
    faults: Faults | None = None
    faults_seed: int = 0

    def endpoint(self, environment: Mapping[str, str]) -> Endpoint:
        """The worker's address and key."""
        known = None if self.base_url else KNOWN_ENDPOINTS.get(self.profile.provider)
        if self.key_env:
            address = self.base_url or (known.base_url if known else "")
            key = environment.get(self.key_env, "").strip()
            if not key:
                raise ConfigError(_missing_key(self.profile, self.key_env))
            return Endpoint(base_url=address, api_key=key, options=self.options)
        if known is None:
            return Endpoint(base_url=self.base_url, options=self.options)
        return replace(_found(known, self.profile, environment), options=self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConductorSettings:
    """Who plans. `worker` is the model that is asked, for the kind that asks one, and `fallback`
    the worker that answers alone where no plan comes of it; `workflow` is the file of a fixed
    workflow, `coordinator` the directory of a trained coordinator, and `notice` what is to be said
    of a pool that changed since."""

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
class StoreSettings:
    """Where runs are kept: an SQLite file, or a database by its address, which may hold a
    password. With neither, Podium's own file in the user's data directory. `lease_seconds` is how
    long a run counts as being performed after its process last said so."""

    path: Path | None = None
    url: str = field(default="", repr=False)
    lease_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the server does; each as the table `[server]` of the configuration describes it."""

    host: str = "127.0.0.1"
    port: int = 7755
    workers: int = 1
    keys: bool = False
    hosts: tuple[str, ...] = ()
    in_flight: int = 1000
    queue: int = 1000
    body_megabytes: int = 32
    keep_alive_seconds: float = 15.0
    drain_seconds: float = 30.0
    recover: bool = True
    keep_days: float | None = None
    log: LogForm | None = None
    log_prompts: bool = False
    private_images: bool = False
    traces: bool = False
    learning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it. `source` says where it came from, `warnings` what a person should know; `mini` is
    None where no learned router serves the mini tier. `is_embedded` is True where no worker was
    configured, so that the pool is the embedded one."""

    source: str
    workers: tuple[WorkerSettings, ...]
    share_question: bool = True
    mask_names: bool = False
    conductor: ConductorSettings = ConductorSettings()
    mini: RouterSettings | None = None
    budget: Budget = Budget()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    store: StoreSettings = StoreSettings()
    server: ServerSettings = ServerSettings()
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
        """How calls are hedged, by the names of those that are."""
        return {
            worker.profile.name: worker.hedge for worker in self.workers if worker.hedge is not None
        }

    def __getitem__(self, name: str) -> WorkerSettings:
        """The worker of that name."""
        for worker in self.workers:
            if worker.profile.name == name:
                return worker
        raise UnknownWorker(name, self.pool.names)

    def check(self) -> None:
        """Refuse what cannot be carried out: an impossible pool, or a cap on money over a model
        whose price nobody knows."""
        workers = [*self.workers]
        if self.conductor.worker is not None and self.conductor.worker not in workers:
            workers.append(self.conductor.worker)
        pool = self.pool
        self.budget.check(replace(pool, workers=tuple(worker.profile for worker in workers)))


def _found(
    known: KnownEndpoint, profile: WorkerProfile, environment: Mapping[str, str]
) -> Endpoint:
    found = known.found_in(environment)
    if found is not None:
        return found
    if known.key_variables:
        raise ConfigError(_missing_key(profile, " or ".join(known.key_variables)))
    return Endpoint(base_url=known.base_url)


def _missing_key(profile: WorkerProfile, variable: str) -> str:
    return (
        f"worker {profile.name!r} needs a key for {profile.provider}; "
        f"set {variable} in the environment"
    )
