"""Options that several commands share, the groups in which commands take them, and the settings.

A command takes a group as one parameter; `with_option_groups` shows its fields to typer as options:

    @app.command()
    @with_option_groups
    def ask(question: Question, pool: PoolOptions, budget: BudgetOptions) -> None: ...
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperOption

from podium._util.addresses import is_loopback
from podium._util.lab import lab_extra
from podium.client import assembly
from podium.client.run_options import RunOptions
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
from podium.core.budget import Budget
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, MCP_PREFIX, PYTHON_PROVIDER, excludable_names
from podium.core.run import Run, Tier
from podium.workers.endpoints import KNOWN_ENDPOINTS
from podium.workers.local.sources import is_repository

STANDARD_INPUT: Final = "-"


class Omit(tuple[str, ...]):
    """Names the fields of a group that a command does not offer."""

    __slots__ = ()


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        group, *extras = get_args(hint) if get_args(hint) else (hint,)
        if not is_dataclass(group) or not isinstance(group, type):
            parameters.append(parameter.replace(annotation=hint))
            continue
        omitted = {name for extra in extras if isinstance(extra, Omit) for name in extra}
        field_hints = get_type_hints(group, include_extras=True)
        offered = [field for field in fields(group) if field.name not in omitted]
        groups[parameter.name] = (group, [field.name for field in offered])
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field_hints[field.name],
            )
            for field in offered
        ]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, (group, names) in groups.items():
            values[name] = group(**{item: values.pop(item) for item in names})
        command(**values)

    keyword_only = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters]
    call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def with_brief_help(*names: str) -> type[TyperCommand]:
    """Return a command class whose `--help` shows these options, and `--help-all` all of them."""

    class BriefHelpCommand(TyperCommand):
        """A command with many options; it takes `HelpAll`."""

        def format_options(self, ctx: Any, formatter: Any) -> None:
            shown = {*names, "help_all"}
            options = [param for param in self.params if isinstance(param, TyperOption)]
            for option in options:
                option.hidden = option.name not in shown and not ctx.meta.get("help_all")
            super().format_options(ctx, formatter)
            for option in options:
                option.hidden = False

    return BriefHelpCommand


def _print_all_help(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta["help_all"] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", callback=_print_all_help, is_eager=True, help="Show every option and exit."
    ),
]


def check_finite(value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a finite number, got {value}")
    return value


def check_share(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise typer.BadParameter(f"expected a number from 0 to 1, got {value:g}")
    return value


Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The question; - reads it from standard input.")
]
RunId = Annotated[
    str, typer.Argument(metavar="ID", help="A run's id, a unique prefix of it, or last.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")]
Pool = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|NAME",
        help="A pool file, or default, tiny, etudes or scripted; replaces the file's workers.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The configuration file, instead of podium.toml."),
]
Conductor = Annotated[
    str | None,
    typer.Option(
        metavar="KIND|MODEL",
        help="The conductor: rules, router, model, fixed, evolved, a worker's name, "
        "provider/model, or evolved:DIR for a trained coordinator.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Exclude a worker, provider or mcp:SERVER; repeatable."),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Use only local models, and download nothing.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Do not store the run.")]
MaxSteps = Annotated[int | None, typer.Option(metavar="N", min=1, help="The most steps of a plan.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The workers and the conductor to use. `offline` keeps everything on this machine."""

    pool: Pool = None
    config: Config = None
    conductor: Conductor = None
    exclude: Exclude = None
    offline: Offline = False

    @property
    def excluded(self) -> frozenset[str]:
        return frozenset(self.exclude or ())


WithoutConductor = Annotated[PoolOptions, Omit(("conductor",))]
WithoutExclude = Annotated[PoolOptions, Omit(("exclude",))]
PoolFiles = Annotated[PoolOptions, Omit(("conductor", "exclude"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """The caps of a run's budget. `allow_unpriced` permits a cap on cost although the price of a
    worker is unknown."""

    usd: Annotated[
        float | None,
        typer.Option(
            "--budget-usd",
            metavar="USD",
            min=0,
            callback=check_finite,
            help="The most that the run may cost.",
        ),
    ] = None
    calls: Annotated[
        int | None,
        typer.Option(
            "--budget-calls", metavar="N", min=0, help="The most model calls, planning included."
        ),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            "--budget-seconds",
            metavar="S",
            min=0,
            callback=check_finite,
            help="The longest that the run may take.",
        ),
    ] = None
    tokens: Annotated[
        int | None,
        typer.Option(
            "--budget-tokens", metavar="N", min=0, help="The most tokens, input plus output."
        ),
    ] = None
    allow_unpriced: Annotated[
        bool,
        typer.Option(
            "--allow-unpriced", help="Cap the cost even if the price of a worker is unknown."
        ),
    ] = False

    def apply_to(self, budget: Budget) -> Budget:
        """Return the budget with these caps in place of its own."""
        caps = {name: cap for name, cap in asdict(self).items() if cap is not None}
        if not self.allow_unpriced:
            del caps["allow_unpriced"]
        return replace(budget, **caps) if caps else budget


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """Planning options; None leaves them to the settings."""

    tier: Annotated[
        Tier | None,
        typer.Option(
            metavar="mini|podium|ultra",
            help="How much planning: none, as much as the question needs (the default), or all "
            "of it (the default with --conductor).",
        ),
    ] = None
    max_steps: MaxSteps = None
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most planning rounds.")
    ] = None
    quality_bias: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            callback=check_share,
            help="With a learned router: how much quality counts over cost.",
        ),
    ] = None

    def to_run_options(self, budget: Budget) -> RunOptions:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return cast("RunOptions", {"budget": budget, **given})


def open_stdin() -> TextIO:
    """Return standard input; raise `UsageError` where it is closed."""
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise UsageError("standard input is closed, so nothing can be read from it; open it")
    return stream


def read_question(argument: str) -> str:
    """Return the question: the argument itself, or the content of standard input for `-`."""
    question = argument
    if argument == STANDARD_INPUT:
        try:
            question = open_stdin().read()
        except UnicodeDecodeError as error:
            raise UsageError("the question on standard input is not UTF-8 text") from error
    if not question.strip():
        raise UsageError("the question is empty; ask something")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the question is not UTF-8 text; check the terminal's encoding") from error
    return question.strip() if argument == STANDARD_INPUT else question


OFFLINE_PROVIDERS: Final = ("llamacpp", "scripted", PYTHON_PROVIDER, CONDUCTOR_PROVIDER)
"""Providers that never send anything to another machine."""


async def load_settings(options: PoolOptions, environment: Mapping[str, str]) -> Settings:
    searched = _without_providers(environment) if options.offline else environment
    settings = await discover_settings(searched, config=options.config, pool=options.pool)
    wanted = options.conductor
    if wanted and wanted.startswith(EVOLVED_PREFIX):  # it needs all workers
        settings, wanted = choose_conductor(settings, wanted), None
    if options.offline:
        settings = _keep_local_workers(settings, environment)
    if options.excluded:
        check_exclusions(options.excluded, names_to_exclude(settings))
        settings = exclude_workers(settings, options.excluded)
    if wanted:
        settings = choose_conductor(settings, wanted)
    _check_planner(settings.conductor.worker, options, environment)
    return settings


def is_local(worker: WorkerSettings, environment: Mapping[str, str]) -> bool:
    """True if the worker runs on this machine: in process, or at a loopback address."""
    provider = worker.profile.provider
    if provider in OFFLINE_PROVIDERS:
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
            planner = default_planner(workers)
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


NO_PLANNING: Final = PlanningOptions()
NO_CAPS: Final = BudgetOptions()


def run_options(settings: Settings, planning: PlanningOptions, budget: BudgetOptions) -> RunOptions:
    """Return the options of a run; a quality bias without effect is refused."""
    if planning.quality_bias is not None:
        assembly.check_quality_bias(
            planning.tier or "podium",
            partial(assembly.load_router, settings),
        )
    return planning.to_run_options(budget.apply_to(settings.run_budget))


def check_can_resume(run: Run, settings: Settings) -> None:
    """Refuse settings whose conductor cannot resume the run: a run names its coordinator, but not
    the coordinator's directory."""
    has_router = run.tier == "mini" and assembly.load_router(settings) is not None
    conductor = tier_conductor_name(run.tier, _name_of(settings.conductor), has_router=has_router)
    if unfit := resume_conflict(run, conductor):
        raise ConfigError(unfit)


def _name_of(conductor: ConductorSettings) -> str:
    if conductor.kind == "model" and conductor.worker is not None:
        return model_conductor_name(conductor.worker.profile.name)
    if conductor.kind == "evolved" and conductor.coordinator is not None:
        with lab_extra():
            from podium_lab.evolution.coordinator import Coordinator

        return evolved_conductor_name(Coordinator.load(conductor.coordinator).fingerprint)
    return conductor.kind


def _keep_local_workers(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Remove every worker and MCP server that is not local, and choose a local planner. An MCP
    program may contact anything, so it is removed too."""
    here = [worker for worker in settings.workers if is_local(worker, environment)]
    if not any(worker.profile.is_model for worker in here):
        raise ConfigError(
            f"{settings.source}: this pool has no local worker; go online, or add one with "
            f'provider = "llamacpp"'
        )
    kept = exclude_workers(settings, [w.profile.name for w in settings.workers if w not in here])
    kept = replace(kept, mcp=tuple(s for s in kept.mcp if s.url and is_loopback(s.url)))
    planner = kept.conductor.worker
    if planner is None or is_local(planner, environment):
        return kept
    best = default_planner(kept.workers)
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


def check_exclusions(excluded: frozenset[str], known: Collection[str], advice: str = "") -> None:
    """Refuse a misspelt exclusion: it would let a worker in."""
    for name in sorted(excluded.difference(known)):
        raise UsageError(
            f"--exclude {name!r} is neither a worker nor a provider of this pool, nor "
            f"mcp:SERVER; {suggest(name, known)}{advice}"
        )


def names_to_exclude(settings: Settings) -> frozenset[str]:
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
