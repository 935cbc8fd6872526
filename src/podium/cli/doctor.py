"""`podium doctor`: show what is configured, what is missing and how to get it, what it costs.

API keys are never shown, only the names of the variables that hold them.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from podium._util import files as paths
from podium._util.addresses import redact_url
from podium._version import __version__
from podium.cli import options
from podium.cli.models import is_obtainable, worker_weights
from podium.cli.options import PoolOptions, load_settings
from podium.cli.output import (
    ExitCode,
    describe_price,
    echo,
    echo_error,
    echo_json,
    format_megabytes,
    format_usd,
    pluralize,
    to_one_line,
    with_program_name,
)
from podium.client.assembly import assemble, connect_endpoints, load_router
from podium.config import McpSettings, Settings, WorkerSettings
from podium.config.local_servers import (
    DEFAULT_SERVERS,
    MAX_MODELS,
    LocalServer,
    find_local_servers,
)
from podium.config.sources import find
from podium.core.errors import ConfigError, PodiumError, install_command
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Usage
from podium.store import default_url, open_store
from podium.workers import KNOWN_ENDPOINTS, Http
from podium.workers.local.weights import LocalModel, list_models
from podium.workers.local.weights import find as find_weights

if TYPE_CHECKING:
    from podium.workers.mcp import McpCheck
    from podium.workers.sandbox import IsolationLayer

DEFAULT_OTLP_ENDPOINT: Final = "http://localhost:4318"
"""The default endpoint of OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class McpServerStatus:
    """An MCP server, and the result of connecting to it."""

    settings: McpSettings
    reached: McpCheck

    @property
    def line(self) -> str:
        server, reached = self.settings, self.reached
        where = redact_url(server.url) if server.url else server.command
        if reached.problem is not None:
            state = f"not usable: {reached.problem}"
        else:
            state = f"{pluralize(len(reached.tools), 'tool')}: {', '.join(reached.tools) or 'none'}"
        return to_one_line(f"MCP server {server.name} ({where}): {state}")


async def check_mcp_servers(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[McpServerStatus, ...]:
    """Connect to every MCP server of the settings once, concurrently."""
    if not settings.mcp:
        return ()
    from podium.workers.mcp import check_server

    found = await asyncio.gather(*(check_server(server, environment) for server in settings.mcp))
    return tuple(map(McpServerStatus, settings.mcp, found))


def mini_tier_lines(settings: Settings) -> tuple[str, ...]:
    """Describe how the mini tier is served; raise `ConfigError` if its router cannot be used."""
    mini = load_router(settings)
    if settings.mini is None or mini is None:
        return ()
    sure = f"below a confidence of {mini.confidence:g} the conductor plans"
    named = f"{settings.mini.router} ({mini.router_fingerprint})"
    line = f"mini tier: routed by {named}, quality bias {mini.quality_bias:g}"
    return (f"{line}; {sure}", *(f"note: {warning}" for warning in mini.warnings))


def traces_endpoint(settings: Settings, environment: Mapping[str, str]) -> str | None:
    """Return the address that traces are sent to; None if none are."""
    if not settings.server.traces:
        return None
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    shared = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT_OTLP_ENDPOINT
    return redact_url(own or f"{shared.rstrip('/')}/v1/traces")


def traces_line(address: str | None) -> str:
    """Describe where traces go."""
    if address is None:
        return "traces: off; podium serve sends them with traces = true in [server]"
    if find_spec("opentelemetry") is None:
        return f"traces: podium serve needs the extra otel to send them: {install_command('otel')}"
    return f"traces: podium serve sends them to {address}"


app = typer.Typer(rich_markup_mode=None, add_completion=False)

EXAMPLE_USAGE: Final = Usage(1000, 1000, 0, 0, 0)
"""A call for comparing prices: 1,000 tokens in, 1,000 out."""


@dataclass(slots=True)
class Findings:
    """The doctor's findings. `problems` prevent questions from being answered."""

    settings: Settings | None = None
    file: Path | None = None
    store: str = ""
    mcp_servers: tuple[McpServerStatus, ...] = ()
    mini: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    models: tuple[LocalModel, ...] = ()
    servers: tuple[LocalServer, ...] = ()
    layers: tuple[IsolationLayer, ...] = ()
    sandbox_problem: str = ""
    problems: list[str] = field(default_factory=list)


@app.command()
def doctor(
    json: options.Json = False, pool: options.Pool = None, config: options.Config = None
) -> None:
    """Show what is configured, what is missing and what it costs.

    For what is missing, it says how to get it. MCP servers are contacted once to list their tools,
    and Ollama, LM Studio and vLLM at their usual ports on this machine to list their models;
    workers are not contacted: podium pool check does that. API keys are never shown. The exit code
    is 2 if something prevents questions from being answered.
    """
    findings = asyncio.run(_examine(PoolOptions(pool=pool, config=config)))
    if json:
        echo_json(_document(findings))
    else:
        _print(findings)
    if findings.problems:
        raise typer.Exit(ExitCode.USAGE)


async def _examine(pool: PoolOptions) -> Findings:
    findings = Findings(file=find(os.environ, config=pool.config), models=list_models())
    await _examine_sandbox(findings)
    findings.servers = await find_local_servers(os.environ)
    try:
        settings = await load_settings(pool, os.environ)
    except ConfigError as error:
        findings.problems.append(str(error))
        return findings
    findings.settings = settings
    planner = settings.conductor.worker
    http = Http()
    for worker in [*settings.workers, *([planner] if planner else [])]:
        if (missing := _find_missing(worker, http)) is not None:
            findings.missing[worker.profile.name] = missing
    findings.problems += findings.missing.values()
    if not findings.missing and (problem := _conductor_problem(settings, http)) is not None:
        findings.problems.append(problem)
    try:
        findings.mini = mini_tier_lines(settings)
    except ConfigError as error:
        findings.problems.append(str(error))
    await _examine_store(findings, settings)
    findings.mcp_servers = await check_mcp_servers(settings, os.environ)
    return findings


def _find_missing(worker: WorkerSettings, http: Http) -> str | None:
    """Say what the worker lacks, if anything. Connecting to it sends nothing."""
    if worker.profile.provider == CONDUCTOR_PROVIDER:
        return None
    try:
        connect_endpoints(worker, os.environ, http)
        absent = [model for model in worker_weights(worker) if not is_obtainable(model)]
    except ConfigError as error:
        return str(error)
    if absent:
        lacking = find_weights(absent[0])
        return f"worker {worker.profile.name!r} needs {lacking.path}; {lacking.remedy}"
    return None


def _conductor_problem(settings: Settings, http: Http) -> str | None:
    """Say what prevents the conductor from working, such as a missing workflow."""
    try:
        assemble(settings, os.environ, http)
    except PodiumError as error:
        return str(error)
    return None


async def _examine_store(findings: Findings, settings: Settings) -> None:
    """Open the store: nothing else shows whether it is usable."""
    from podium.store.sql.database import locate

    where = settings.store.url or settings.store.path or default_url()
    try:
        findings.store = locate(where).name
        store = await open_store(where)
        await store.close()
    except PodiumError as error:
        findings.problems.append(f"runs will not be stored: {error}")


async def _examine_sandbox(findings: Findings) -> None:
    """Build the sandbox: nothing else shows which of its layers work."""
    from podium.workers.sandbox import isolation_layers

    try:
        findings.layers = await isolation_layers()
    except PodiumError as error:
        findings.sandbox_problem = str(error)


def _print(findings: Findings) -> None:
    echo(f"podium {__version__} on Python {platform.python_version()}")
    echo(f"configuration: {findings.file or f'no file; the default is {paths.config_file()}'}")
    if findings.settings is not None:
        _print_settings(findings.settings, findings.missing)
        for line in findings.mini:
            echo(with_program_name(to_one_line(line)))
        echo(f"runs are stored in {findings.store}")
        for server in findings.mcp_servers:
            echo(server.line)
        echo(with_program_name(traces_line(traces_endpoint(findings.settings, os.environ))))
    for model in findings.models:
        state = (
            "downloaded" if model.present else f"not downloaded ({format_megabytes(model.bytes)})"
        )
        echo(f"local model {model.name}: {state}")
    _print_sandbox(findings)
    echo("providers:")
    for vendor in _vendors(os.environ):
        if vendor.is_set:
            names = [name for name in vendor.variables if os.environ.get(name, "").strip()]
            state = f"{' and '.join(names) or 'its address'} is set{vendor.custom_address}"
        elif KNOWN_ENDPOINTS[vendor.provider].authorizer:
            state = f'name a model in podium.toml, with provider = "{vendor.provider}", to use it'
        else:
            state = f"set {' or '.join(vendor.variables)} to use it"
        echo(f"  {vendor.provider}: {state}")
    _print_servers(findings.servers)
    for problem in findings.problems:
        echo_error(problem)
    if not findings.problems:
        echo(
            with_program_name("nothing is missing; podium pool check sends every worker a request")
        )


def _print_servers(servers: Sequence[LocalServer]) -> None:
    for server in servers:
        names = ", ".join(server.models[:MAX_MODELS])
        state = f"{pluralize(len(server.models), 'model')}: {to_one_line(names)}"
        if not server.models:
            state = "no model"
            if server.provider == "ollama":
                state += "; pull one, such as `ollama pull llama3.2`"
        echo(f"local server {server.provider} at {server.address}: {state}")
    if not servers:
        looked = ", ".join(f"{one.provider} at {one.address}" for one in DEFAULT_SERVERS)
        echo(f"local servers: none found; looked for {looked}")


def _print_sandbox(findings: Findings) -> None:
    missing = [layer for layer in findings.layers if not layer.is_active]
    if findings.sandbox_problem:
        echo(f"code written by models cannot be graded: {to_one_line(findings.sandbox_problem)}")
    elif not missing:
        echo("code written by models is graded in the sandbox with all its layers")
    for layer in missing:
        echo(
            f"code written by models is graded without {layer.name} in the sandbox: {layer.missing}"
        )


def _print_settings(settings: Settings, missing: Mapping[str, str]) -> None:
    echo(f"pool: {pluralize(len(settings.workers), 'worker')} from {to_one_line(settings.source)}")
    for worker in settings.workers:
        profile = worker.profile
        state = "not usable" if profile.name in missing else _state(worker)
        example = profile.price.cost(EXAMPLE_USAGE) if profile.price else None
        cost = f"{describe_price(profile.price)}; 1,000 in and 1,000 out: {format_usd(example)}"
        echo(f"  {to_one_line(profile.name)}: {state}; {cost}")
    if settings.is_embedded:
        echo("  this is a small model on this machine; any API key below gives a stronger one")
    planner, coordinator = settings.conductor.worker, settings.conductor.coordinator
    asked = planner.profile.name if planner else str(coordinator or "")
    echo(f"conductor: {settings.conductor.kind}{f' ({to_one_line(asked)})' if asked else ''}")
    caps = {name: cap for name, cap in asdict(settings.run_budget).items() if cap is not None}
    caps.pop("allow_unpriced")
    echo(f"budget per run: {', '.join(f'{name} {cap:g}' for name, cap in caps.items())}")
    for warning in settings.warnings:
        echo(f"note: {to_one_line(warning)}")


def _state(worker: WorkerSettings) -> str:
    """Say what is known of a worker that was not contacted."""
    models = [find_weights(model) for model in worker_weights(worker)]
    if models:
        return "on this machine" if all(one.present for one in models) else "to be downloaded"
    known = KNOWN_ENDPOINTS.get(worker.profile.provider)
    return "key set, not tried" if known is not None and known.key_variables else "not tried"


class VendorStatus(NamedTuple):
    """A provider, its variables, and its address where that is not the usual one."""

    provider: str
    variables: tuple[str, ...]
    is_set: bool
    custom_address: str


def _vendors(environment: Mapping[str, str]) -> list[VendorStatus]:
    """List each provider that is found by variables, and whether they are set."""
    listed = []
    for known in KNOWN_ENDPOINTS.values():
        keys = (*known.key_variables, *known.token_variables)
        variables = keys or tuple(filter(None, [known.address_variable]))
        found, custom_address = known.find_in(environment), ""
        if found and keys and environment.get(known.address_variable, "").strip():
            custom_address = f"; {known.address_variable}: {redact_url(found.base_url)}"
        if variables:
            listed.append(
                VendorStatus(known.provider, variables, found is not None, custom_address)
            )
    return listed


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
                "problem": findings.missing.get(worker.profile.name),
                "price": asdict(worker.profile.price) if worker.profile.price else None,
            }
            for worker in (settings.workers if settings else ())
        ],
        "conductor": settings.conductor.kind if settings else None,
        "mini": list(findings.mini),
        "budget": asdict(settings.run_budget) if settings else None,
        "store": findings.store or None,
        "mcp": [
            {
                "name": server.settings.name,
                "tools": list(server.reached.tools),
                "problem": server.reached.problem,
            }
            for server in findings.mcp_servers
        ],
        "traces": traces_endpoint(settings, os.environ) if settings else None,
        "models": [
            {"name": model.name, "present": model.present, "path": str(model.path)}
            for model in findings.models
        ],
        "sandbox": _pick(findings.layers, "name", "is_active", "missing"),
        "local_servers": _pick(findings.servers, "provider", "base_url", "models"),
        "vendors": [
            {
                "provider": vendor.provider,
                "variables": list(vendor.variables),
                "set": vendor.is_set,
            }
            for vendor in _vendors(os.environ)
        ],
        "warnings": list(settings.warnings) if settings else [],
        "problems": findings.problems,
    }


def _pick(items: Iterable[object], *names: str) -> list[dict[str, Any]]:
    return [{name: getattr(item, name) for name in names} for item in items]
