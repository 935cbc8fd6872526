"""`podium doctor`: what is configured, what is missing and how to get it, what it costs.

Keys are never shown, only the names of the variables that hold them.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from podium._util import files as paths
from podium._util.addresses import shown
from podium._version import __version__
from podium.cli import options
from podium.cli.formatting import counted, megabytes, money, one_line, price
from podium.cli.models import can_be_had, weights_of
from podium.cli.output import Exit, as_called, complain, say, say_json
from podium.cli.settings import Choice, settings_for
from podium.client.assembly import assemble, load_router, router_problem
from podium.config import McpSettings, Settings, WorkerSettings
from podium.config.sources import find
from podium.core.errors import ConfigError, PodiumError, install_command
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.usage import Usage
from podium.store import default_url, open_store
from podium.workers import KNOWN_ENDPOINTS, Http, connect
from podium.workers.local.weights import LocalModel, list_models
from podium.workers.local.weights import find as find_weights

if TYPE_CHECKING:
    from podium.workers.mcp import McpCheck
    from podium.workers.sandbox import IsolationLayer

OTLP: Final = "http://localhost:4318"
"""Where OpenTelemetry sends what nobody has told it where to send."""


@dataclass(frozen=True, slots=True)
class ToolServer:
    """An MCP server, and what came of reaching it."""

    settings: McpSettings
    reached: McpCheck

    @property
    def line(self) -> str:
        """How it is, for a person."""
        server, reached = self.settings, self.reached
        where = shown(server.url) if server.url else server.command
        if reached.problem is not None:
            state = f"cannot be used: {reached.problem}"
        else:
            state = f"{counted(len(reached.tools), 'tool')}: {', '.join(reached.tools) or 'none'}"
        return one_line(f"tools of {server.name} ({where}): {state}")


async def tool_servers(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[ToolServer, ...]:
    """Reach every MCP server of the settings once, all at the same time."""
    if not settings.mcp:
        return ()
    from podium.workers.mcp import check_server

    found = await asyncio.gather(*(check_server(server, environment) for server in settings.mcp))
    return tuple(map(ToolServer, settings.mcp, found))


def mini_lines(settings: Settings) -> tuple[str, ...]:
    """How the mini tier is served, and what is to be known of it; raises `ConfigError` where its
    router cannot be used."""
    wanted = settings.mini
    if wanted is None:
        return ()
    mini = load_router(settings)
    if mini is None:
        return (f"mini tier: the cheapest worker; to have it routed: {router_problem(wanted)}",)
    sure = f"below a confidence of {mini.confidence:g} the conductor plans"
    named = f"{wanted.router} ({mini.router_fingerprint})"
    line = f"mini tier: routed by {named}, quality bias {mini.quality_bias:g}"
    return (f"{line}; {sure}", *(f"note: {warning}" for warning in mini.warnings))


def traces_go_to(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """The address that traces are sent to; None where none are."""
    if not settings.server.traces:
        return None
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    shared = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or OTLP
    return shown(own or f"{shared.rstrip('/')}/v1/traces")


def traces_line(address: str | None) -> str:
    """Where traces go, for a person."""
    if address is None:
        return "traces: none are sent; traces = true in [server] has podium serve send them"
    if find_spec("opentelemetry") is None:
        return f"traces: podium serve needs the extra otel to send them: {install_command('otel')}"
    return f"traces: podium serve sends them to {address}"


app = typer.Typer(rich_markup_mode=None, add_completion=False)

EXAMPLE: Final = Usage(1000, 1000, 0, 0, 0)
"""A call by which prices can be compared: a thousand tokens in and a thousand out."""


@dataclass(slots=True)
class Findings:
    """What the doctor found. `problems` keep a question from being answered."""

    settings: Settings | None = None
    file: Path | None = None
    store: str = ""
    tool_servers: tuple[ToolServer, ...] = ()
    mini: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    models: tuple[LocalModel, ...] = ()
    walls: tuple[IsolationLayer, ...] = ()
    no_sandbox: str = ""
    problems: list[str] = field(default_factory=list)


@app.command()
def doctor(
    json: options.Json = False, pool: options.Pool = None, config: options.Config = None
) -> None:
    """Say what is configured, what is missing, what it costs.

    What is missing comes with how to get it. Servers of tools (MCP) are reached once, to see
    which they have; nothing is sent to any worker: podium pool check does that. Keys are never
    shown. The exit code is 2 when something keeps questions from being
    answered.
    """
    findings = asyncio.run(_examine(Choice(pool=pool, config=config)))
    if json:
        say_json(_document(findings))
    else:
        _say(findings)
    if findings.problems:
        raise typer.Exit(Exit.USAGE)


async def _examine(choice: Choice) -> Findings:
    findings = Findings(file=find(os.environ, config=choice.config), models=list_models())
    await _examine_sandbox(findings)
    try:
        settings = await settings_for(choice, os.environ)
    except ConfigError as error:
        findings.problems.append(str(error))
        return findings
    findings.settings = settings
    planner = settings.conductor.worker
    http = Http()
    for worker in [*settings.workers, *([planner] if planner else [])]:
        if (missing := _missing(worker, http)) is not None:
            findings.missing[worker.profile.name] = missing
    findings.problems += findings.missing.values()
    if not findings.missing and (unfit := _unfit(settings, http)) is not None:
        findings.problems.append(unfit)
    try:
        findings.mini = mini_lines(settings)
    except ConfigError as error:
        findings.problems.append(str(error))
    await _examine_store(findings, settings)
    findings.tool_servers = await tool_servers(settings, os.environ)
    return findings


def _missing(worker: WorkerSettings, http: Http) -> str | None:
    """What the worker lacks to be called, if anything. Connecting to it sends nothing."""
    if worker.profile.provider == CONDUCTOR_PROVIDER:
        return None
    try:
        connect(worker.profile, worker.endpoint(os.environ), http)
        absent = [model for model in weights_of(worker) if not can_be_had(model)]
    except ConfigError as error:
        return str(error)
    if absent:
        lacking = find_weights(absent[0])
        return f"worker {worker.profile.name!r} needs {lacking.path}; {lacking.remedy}"
    return None


def _unfit(settings: Settings, http: Http) -> str | None:
    """What keeps workers that lack nothing from being led: a conductor without its workflow."""
    try:
        assemble(settings, os.environ, http)
    except PodiumError as error:
        return str(error)
    return None


async def _examine_store(findings: Findings, settings: Settings) -> None:
    """Open the store: only that shows whether it can be used."""
    from podium.store.sql.database import locate

    where = settings.store.url or settings.store.path or default_url()
    try:
        findings.store = locate(where).name
        store = await open_store(where)
        await store.close()
    except PodiumError as error:
        findings.problems.append(f"runs will not be stored: {error}")


async def _examine_sandbox(findings: Findings) -> None:
    """Build the walls around programs that models wrote: only that shows which of them stand."""
    from podium.workers.sandbox import isolation_layers

    try:
        findings.walls = await isolation_layers()
    except PodiumError as error:
        findings.no_sandbox = str(error)


def _say(findings: Findings) -> None:
    say(f"podium {__version__} on Python {platform.python_version()}")
    say(f"configuration: {findings.file or f'no file; yours would be {paths.config_file()}'}")
    if findings.settings is not None:
        _say_settings(findings.settings, findings.missing)
        for line in findings.mini:
            say(as_called(one_line(line)))
        say(f"runs are kept in {findings.store}")
        for server in findings.tool_servers:
            say(server.line)
        say(as_called(traces_line(traces_go_to(findings.settings, os.environ))))
    for model in findings.models:
        state = "here" if model.present else f"not here yet ({megabytes(model.bytes)})"
        say(f"local model {model.name}: {state}")
    _say_walls(findings)
    say("vendors:")
    for provider, variables, is_set in _vendors(os.environ):
        name = " or ".join(variables)
        say(f"  {provider}: {name} is set" if is_set else f"  {provider}: to use it, set {name}")
    for problem in findings.problems:
        complain(problem)
    if not findings.problems:
        say(as_called("nothing is missing; podium pool check reaches every worker once"))


def _say_walls(findings: Findings) -> None:
    missing = [wall for wall in findings.walls if not wall.is_active]
    if findings.no_sandbox:
        say(f"programs that models wrote cannot be graded: {one_line(findings.no_sandbox)}")
    elif not missing:
        say("programs that models wrote are graded behind all walls")
    for wall in missing:
        say(f"programs that models wrote are graded without the wall {wall.name}: {wall.missing}")


def _say_settings(settings: Settings, missing: Mapping[str, str]) -> None:
    say(f"pool: {counted(len(settings.workers), 'worker')} from {one_line(settings.source)}")
    for worker in settings.workers:
        profile = worker.profile
        state = "cannot be called" if profile.name in missing else "ready"
        example = profile.price.cost(EXAMPLE) if profile.price else None
        cost = f"{price(profile.price)}; 1,000 in and 1,000 out: {money(example)}"
        say(f"  {one_line(profile.name)}: {state}; {cost}")
    if settings.is_embedded:
        say("  this pool is very small and often wrong; any key below gives a strong one")
    planner, coordinator = settings.conductor.worker, settings.conductor.coordinator
    asked = planner.profile.name if planner else str(coordinator or "")
    say(f"conductor: {settings.conductor.kind}{f' ({one_line(asked)})' if asked else ''}")
    caps = {name: cap for name, cap in asdict(settings.budget).items() if cap is not None}
    caps.pop("allow_unpriced")
    say(f"budget of a run: {', '.join(f'{name} {cap:g}' for name, cap in caps.items())}")
    for warning in settings.warnings:
        say(f"note: {one_line(warning)}")


def _vendors(environment: Mapping[str, str]) -> list[tuple[str, tuple[str, ...], bool]]:
    """Each vendor that a variable can name, those variables, and whether one of them is set."""
    return [
        (known.provider, variables, known.find_in(environment) is not None)
        for known in KNOWN_ENDPOINTS.values()
        if (variables := (*known.key_variables, *filter(None, [known.address_variable])))
    ]


def _document(findings: Findings) -> dict[str, Any]:
    settings = findings.settings
    return {
        "version": __version__,
        "python": platform.python_version(),
        "configuration": str(findings.file) if findings.file else None,
        "own_configuration": str(paths.config_file()),
        "source": settings.source if settings else None,
        "workers": [
            {
                "name": worker.profile.name,
                "provider": worker.profile.provider,
                "model": worker.profile.model,
                "ready": worker.profile.name not in findings.missing,
                "price": asdict(worker.profile.price) if worker.profile.price else None,
            }
            for worker in (settings.workers if settings else ())
        ],
        "conductor": settings.conductor.kind if settings else None,
        "mini": list(findings.mini),
        "budget": asdict(settings.budget) if settings else None,
        "store": findings.store or None,
        "mcp": [
            {
                "name": server.settings.name,
                "tools": list(server.reached.tools),
                "problem": server.reached.problem,
            }
            for server in findings.tool_servers
        ],
        "traces": traces_go_to(settings, os.environ) if settings else None,
        "models": [
            {"name": model.name, "present": model.present, "path": str(model.path)}
            for model in findings.models
        ],
        "walls": [
            {"name": wall.name, "stands": wall.is_active, "missing": wall.missing}
            for wall in findings.walls
        ],
        "vendors": [
            {"provider": provider, "variables": list(variables), "set": is_set}
            for provider, variables, is_set in _vendors(os.environ)
        ],
        "warnings": list(settings.warnings) if settings else [],
        "problems": findings.problems,
    }
