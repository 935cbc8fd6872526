"""What the command line says about the pool and the conductor, applied to the settings in force."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from podium._util.addresses import is_loopback
from podium.client import assembly
from podium.conductors.names import (
    ROUTER,
    RULES,
    configured_conductor_name,
    evolved_conductor_name,
    model_conductor_name,
    planning_worker_name,
    resume_conflict,
    tier_conductor_name,
)
from podium.config import (
    ConductorSettings,
    Settings,
    WorkerSettings,
    choose_conductor,
    discover_settings,
)
from podium.config.problems import suggest
from podium.config.resolve import EVOLVED_PREFIX, default_planner
from podium.config.sources import CONFIG_VARIABLE, find
from podium.config.workers import PROVIDERS
from podium.core.budget import Budget
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, MCP_PREFIX, excludable_names
from podium.core.run import Run, Tier
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium.workers.local.sources import is_repository

ON_THIS_MACHINE: Final = ("llamacpp", "scripted", CONDUCTOR_PROVIDER)
"""Providers that reach nothing outside this machine, whatever their settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which pool and conductor to use. `conductor` is a kind, a worker, `provider/model`, or
    `evolved:DIR`; `exclude` names workers and providers; `offline` keeps everything on this
    machine."""

    pool: Path | None = None
    config: Path | None = None
    conductor: str | None = None
    exclude: frozenset[str] = frozenset()
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The caps that were given on the command line. `allow_unpriced` lets one on money stand
    although it cannot count every worker."""

    usd: float | None = None
    calls: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    allow_unpriced: bool = False

    def over(self, budget: Budget) -> Budget:
        """The budget with these caps in the place of its own."""
        given = {
            name: cap
            for name in ("usd", "calls", "seconds", "tokens")
            if (cap := getattr(self, name)) is not None
        }
        allowed = self.allow_unpriced or budget.allow_unpriced
        return replace(budget, **given, allow_unpriced=allowed)


async def settings_for(choice: Choice, environment: Mapping[str, str]) -> Settings:
    """The settings in force, with what was chosen in place of what is usual."""
    configuration_file(environment, choice.config)
    searched = _without_vendors(environment) if choice.offline else environment
    settings = await discover_settings(searched, config=choice.config, pool=choice.pool)
    wanted = choice.conductor
    if wanted and wanted.startswith(
        EVOLVED_PREFIX
    ):  # whoever is left out below is still in the pool
        settings, wanted = choose_conductor(settings, wanted), None
    if choice.offline:
        settings = _on_this_machine(settings, environment)
    if choice.exclude:
        settings = without(settings, _checked(choice.exclude, settings))
    if wanted:
        settings = choose_conductor(settings, wanted)
    _check_planner(settings.conductor.worker, choice, environment)
    return settings


def configuration_file(environment: Mapping[str, str], config: Path | None) -> Path | None:
    """The configuration file in force, if there is one; one that only the environment names,
    and that is not there, is complained of by the variable's name."""
    file = find(environment, config=config)
    named = config is None and environment.get(CONFIG_VARIABLE, "").strip()
    if named and file is not None and not file.exists():
        raise ConfigError(
            f"{CONFIG_VARIABLE} names {file}, and there is no such file; correct it or unset it"
        )
    return file


def is_local(worker: WorkerSettings, environment: Mapping[str, str]) -> bool:
    """Whether the worker is on this machine: by its nature, or behind a loopback address."""
    provider = worker.profile.provider
    if provider in ON_THIS_MACHINE:
        return True
    if provider == "transformers":
        return not is_repository(worker.profile.model)  # that would be looked up on the hub
    address = worker.base_url
    if not address and provider in KNOWN_ENDPOINTS:
        known = KNOWN_ENDPOINTS[provider]
        found = known.find_in(environment)
        address = found.base_url if found else known.base_url
    return is_loopback(address)


def without(settings: Settings, excluded: Collection[str]) -> Settings:
    """The settings less the workers whose name or provider is excluded: not even their keys are
    needed, and the conductor does not ask them either."""
    pool = settings.pool.without(excluded)
    workers = tuple(replace(settings[profile.name], profile=profile) for profile in pool)
    conductor, planner = settings.conductor, settings.conductor.worker
    if planner is not None:
        names = (planner.profile.name, planner.profile.provider)
        if not set(names).isdisjoint(excluded):
            planner = default_planner(workers, Catalogue.load())
        elif planner.profile.name in pool.names:
            planner = next(w for w in workers if w.profile.name == planner.profile.name)
        conductor = replace(conductor, worker=planner)
    mcp = tuple(server for server in settings.mcp if f"{MCP_PREFIX}{server.name}" not in excluded)
    mini = settings.mini
    if mini is not None:
        mini = replace(mini, trained_for=mini.trained_for or settings.pool)
    return replace(settings, workers=workers, conductor=conductor, mcp=mcp, mini=mini)


def conductor_of(run: Run) -> str | None:
    """The conductor that a run had, as `--conductor` names it; None where that cannot."""
    name = configured_conductor_name(run.conductor)
    if name in (RULES, ROUTER):
        return name
    asked = planning_worker_name(name)
    if asked and (asked in run.pool.names or asked.partition("/")[0] in PROVIDERS):
        return asked
    return None


def check_quality_bias(settings: Settings, tier: Tier | None, quality_bias: float | None) -> None:
    """Refuse a quality bias, where one is given, that nobody would heed with these settings."""
    if quality_bias is not None:
        assembly.check_quality_bias(
            tier or assembly.default_options(settings).tier,
            partial(assembly.load_router, settings),
            partial(assembly.router_problem, settings.mini),
        )


def check_leading(run: Run, settings: Settings) -> None:
    """Refuse settings whose conductor must not go on with the run by itself: a run says which
    coordinator led it, and not where that lies."""
    routed = run.tier == "mini" and assembly.load_router(settings) is not None
    leading = tier_conductor_name(run.tier, _name_of(settings.conductor), routed=routed)
    if unfit := resume_conflict(run, leading):
        raise ConfigError(unfit)


def _name_of(conductor: ConductorSettings) -> str:
    """What the conductor will be called, without setting it up."""
    if conductor.kind == "model" and conductor.worker is not None:
        return model_conductor_name(conductor.worker.profile.name)
    if conductor.kind == "evolved" and conductor.coordinator is not None:
        from podium.conductors.evolved.coordinator import Coordinator

        return evolved_conductor_name(Coordinator.load(conductor.coordinator).fingerprint)
    return conductor.kind


def _on_this_machine(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """The settings less every worker and every server of tools elsewhere, and with a planner that
    is here. What a program with tools reaches cannot be known, so it is left out too."""
    here = [worker for worker in settings.workers if is_local(worker, environment)]
    if all(worker.profile.provider == CONDUCTOR_PROVIDER for worker in here):
        raise ConfigError(
            f"{settings.source}: no worker of this pool is on this machine; go online, or add "
            f'one with provider = "llamacpp"'
        )
    kept = without(settings, [w.profile.name for w in settings.workers if w not in here])
    kept = replace(kept, mcp=tuple(s for s in kept.mcp if s.url and is_loopback(s.url)))
    planner = kept.conductor.worker
    if planner is None or is_local(planner, environment):
        return kept
    best = default_planner(kept.workers, Catalogue.load())
    return replace(kept, conductor=replace(kept.conductor, worker=best))


def _check_planner(
    planner: WorkerSettings | None, choice: Choice, environment: Mapping[str, str]
) -> None:
    """Refuse a planner that was named although the other choices rule it out."""
    if planner is None:
        return
    profile = planner.profile
    if choice.offline and not is_local(planner, environment):
        raise UsageError(
            f"the conductor {profile.name!r} is not on this machine, and Podium is offline; name "
            f"another with --conductor, or go online"
        )
    if ruled_out := choice.exclude & {profile.name, profile.provider}:
        raise UsageError(
            f"the conductor {profile.name!r} is excluded by --exclude {min(ruled_out)}; name "
            f"another with --conductor, or do not exclude it"
        )


def _checked(excluded: frozenset[str], settings: Settings) -> frozenset[str]:
    """A misspelt exclusion would let a worker in that was to be kept out."""
    known = excludable_in(settings)
    for name in sorted(excluded - known):
        raise UsageError(
            f"--exclude {name!r} is neither a worker nor a provider of this pool, nor mcp: and a "
            f"server of tools; {suggest(name, known)}"
        )
    return excluded


def excludable_in(settings: Settings) -> frozenset[str]:
    """The names that can be excluded, where these are the settings."""
    planner = settings.conductor.worker
    planning = () if planner is None else (planner.profile,)
    return excludable_names((*settings.pool, *planning), (server.name for server in settings.mcp))


def _without_vendors(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment less what would make workers of vendors; a local server's address stays."""
    dropped = set[str]()
    for known in KNOWN_ENDPOINTS.values():
        dropped.update(known.key_variables)
        found = known.find_in(environment)
        if known.address_variable and not (found and is_loopback(found.base_url)):
            dropped.add(known.address_variable)
    return {name: value for name, value in environment.items() if name not in dropped}
