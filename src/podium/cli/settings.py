"""Settings with the pool and conductor options of the command line applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from podium._util.addresses import is_loopback
from podium.cli.options import PoolOptions
from podium.client import assembly
from podium.conductors.builtin import (
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
from podium.config.settings import EVOLVED_PREFIX, default_planner
from podium.config.workers import PROVIDERS
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, MCP_PREFIX, excludable_names
from podium.core.run import Run, Tier
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium.workers.local.sources import is_repository

ON_THIS_MACHINE: Final = ("llamacpp", "scripted", CONDUCTOR_PROVIDER)
"""Providers that never send anything to another machine."""


async def load_settings(options: PoolOptions, environment: Mapping[str, str]) -> Settings:
    """Load the settings and apply the options."""
    searched = _without_providers(environment) if options.offline else environment
    settings = await discover_settings(searched, config=options.config, pool=options.pool)
    wanted = options.conductor
    if wanted and wanted.startswith(EVOLVED_PREFIX):  # it needs all workers
        settings, wanted = choose_conductor(settings, wanted), None
    if options.offline:
        settings = _on_this_machine(settings, environment)
    if options.excluded:
        settings = exclude_workers(settings, _check_excluded(options.excluded, settings))
    if wanted:
        settings = choose_conductor(settings, wanted)
    _check_planner(settings.conductor.worker, options, environment)
    return settings


def is_local(worker: WorkerSettings, environment: Mapping[str, str]) -> bool:
    """True if the worker runs on this machine: in process, or at a loopback address."""
    provider = worker.profile.provider
    if provider in ON_THIS_MACHINE:
        return True
    if provider == "transformers":
        return not is_repository(worker.profile.model)  # that would be looked up on the hub
    known = KNOWN_ENDPOINTS.get(provider)
    usual = known.address_in(environment) if known else ""
    return all(is_loopback(target.base_url or usual) for target in worker.targets)


def exclude_workers(settings: Settings, excluded: Collection[str]) -> Settings:
    """Remove workers by name or provider, also as the planner; their API keys are not needed."""
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


def conductor_option(run: Run) -> str | None:
    """Return the `--conductor` value for a run's conductor; None if there is none."""
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


def check_can_resume(run: Run, settings: Settings) -> None:
    """Refuse settings whose conductor cannot resume the run: a run names its coordinator, but not
    the coordinator's directory."""
    routed = run.tier == "mini" and assembly.load_router(settings) is not None
    conductor = tier_conductor_name(run.tier, _name_of(settings.conductor), routed=routed)
    if unfit := resume_conflict(run, conductor):
        raise ConfigError(unfit)


def _name_of(conductor: ConductorSettings) -> str:
    """Return the name that the conductor will have."""
    if conductor.kind == "model" and conductor.worker is not None:
        return model_conductor_name(conductor.worker.profile.name)
    if conductor.kind == "evolved" and conductor.coordinator is not None:
        from podium.conductors.evolved.coordinator import Coordinator

        return evolved_conductor_name(Coordinator.load(conductor.coordinator).fingerprint)
    return conductor.kind


def _on_this_machine(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Remove every worker and MCP server that is not local, and choose a local planner. An MCP
    program may contact anything, so it is removed too."""
    here = [worker for worker in settings.workers if is_local(worker, environment)]
    if all(worker.profile.provider == CONDUCTOR_PROVIDER for worker in here):
        raise ConfigError(
            f"{settings.source}: this pool has no local worker; go online, or add one with "
            f'provider = "llamacpp"'
        )
    kept = exclude_workers(settings, [w.profile.name for w in settings.workers if w not in here])
    kept = replace(kept, mcp=tuple(s for s in kept.mcp if s.url and is_loopback(s.url)))
    planner = kept.conductor.worker
    if planner is None or is_local(planner, environment):
        return kept
    best = default_planner(kept.workers, Catalogue.load())
    return replace(kept, conductor=replace(kept.conductor, worker=best))


def _check_planner(
    planner: WorkerSettings | None, options: PoolOptions, environment: Mapping[str, str]
) -> None:
    """Refuse a planner that the other options rule out."""
    if planner is None:
        return
    profile = planner.profile
    if options.offline and not is_local(planner, environment):
        raise UsageError(
            f"the conductor {profile.name!r} is not local, and --offline is set; name another with "
            f"--conductor, or go online"
        )
    if ruled_out := options.excluded & {profile.name, profile.provider}:
        raise UsageError(
            f"the conductor {profile.name!r} is excluded by --exclude {min(ruled_out)}; name "
            f"another with --conductor, or do not exclude it"
        )


def _check_excluded(excluded: frozenset[str], settings: Settings) -> frozenset[str]:
    """Refuse a misspelt exclusion: it would let a worker in."""
    known = names_to_exclude(settings)
    for name in sorted(excluded - known):
        raise UsageError(
            f"--exclude {name!r} is neither a worker nor a provider of this pool, nor "
            f"mcp:SERVER; {suggest(name, known)}"
        )
    return excluded


def names_to_exclude(settings: Settings) -> frozenset[str]:
    """Return the names that can be excluded with these settings."""
    planner = settings.conductor.worker
    planning = () if planner is None else (planner.profile,)
    return excludable_names((*settings.pool, *planning), (server.name for server in settings.mcp))


def _without_providers(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Remove the API keys and addresses of providers; a local server's address stays."""
    dropped = set[str]()
    for known in KNOWN_ENDPOINTS.values():
        found = known.find_in(environment)
        if not (found and is_loopback(found.base_url)):
            dropped.update(known.variables)
    return {name: value for name, value in environment.items() if name not in dropped}
