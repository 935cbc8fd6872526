"""`podium doctor`: show what is configured, what is missing and how to get it, what it costs.

API keys are never shown, only the names of the variables that hold them.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Final

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
    format_megabytes,
    format_usd,
    pluralize,
    to_one_line,
    with_program_name,
)
from podium.client.assembly import assemble, connect_endpoints, load_router
from podium.config import Settings, WorkerSettings
from podium.config.local_servers import DEFAULT_SERVERS, MAX_MODELS, find_local_servers
from podium.config.sources import find_config_file
from podium.core.errors import ConfigError, PodiumError, install_command
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import Usage
from podium.store import default_url, open_store
from podium.workers import KNOWN_ENDPOINTS, Http
from podium.workers.local.weights import find as find_weights
from podium.workers.local.weights import list_models

DEFAULT_OTLP_ENDPOINT: Final = "http://localhost:4318"


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
    if address is None:
        return "traces: off; podium serve sends them with traces = true in [server]"
    if find_spec("opentelemetry") is None:
        return f"traces: podium serve needs the extra otel to send them: {install_command('otel')}"
    return f"traces: podium serve sends them to {address}"


app = typer.Typer(rich_markup_mode=None, add_completion=False)

EXAMPLE_USAGE: Final = Usage(1000, 1000, 0, 0, 0)
"""A call for comparing prices: 1,000 tokens in, 1,000 out."""


@app.command()
def doctor(pool: options.Pool = None, config: options.Config = None) -> None:
    """Show what is configured, what is missing and what it costs.

    For what is missing, it says how to get it. MCP servers are contacted once to list their tools,
    and Ollama, LM Studio and vLLM at their usual ports on this machine to list their models;
    workers are not contacted: podium pool check does that. API keys are never shown. The exit code
    is 2 if something prevents questions from being answered.
    """
    problems = asyncio.run(_examine(PoolOptions(pool=pool, config=config)))
    for problem in problems:
        echo_error(problem)
    if problems:
        raise typer.Exit(ExitCode.USAGE)
    echo(with_program_name("nothing is missing; podium pool check sends every worker a request"))


async def _examine(pool: PoolOptions) -> list[str]:
    file, problems = find_config_file(os.environ, config=pool.config), list[str]()
    echo(f"podium {__version__} on Python {platform.python_version()}")
    echo(f"configuration: {file or f'no file; the default is {paths.config_file()}'}")
    try:
        settings = await load_settings(pool, os.environ)
    except ConfigError as error:
        problems.append(str(error))
    else:
        problems += _examine_pool(settings)
        problems += await _examine_store(settings)
        await _examine_mcp_servers(settings)
        echo(with_program_name(traces_line(traces_endpoint(settings, os.environ))))
    for model in list_models():
        state = (
            "downloaded" if model.present else f"not downloaded ({format_megabytes(model.bytes)})"
        )
        echo(f"local model {model.name}: {state}")
    await _examine_sandbox()
    _examine_vendors(os.environ)
    await _examine_local_servers()
    return problems


def _examine_pool(settings: Settings) -> list[str]:
    http, missing = Http(), dict[str, str]()
    planner, coordinator = settings.conductor.worker, settings.conductor.coordinator
    for worker in [*settings.workers, *([planner] if planner else [])]:
        if (lacking := _find_missing(worker, http)) is not None:
            missing[worker.profile.name] = lacking
    echo(f"pool: {pluralize(len(settings.workers), 'worker')} from {to_one_line(settings.source)}")
    for worker in settings.workers:
        profile = worker.profile
        state = "not usable" if profile.name in missing else _state(worker)
        example = profile.price.cost(EXAMPLE_USAGE) if profile.price else None
        cost = f"{describe_price(profile.price)}; 1,000 in and 1,000 out: {format_usd(example)}"
        echo(f"  {to_one_line(profile.name)}: {state}; {cost}")
    if settings.uses_default_pool:
        echo("  this is a small model on this machine; any API key below gives a stronger one")
    asked = planner.profile.name if planner else str(coordinator or "")
    echo(f"conductor: {settings.conductor.kind}{f' ({to_one_line(asked)})' if asked else ''}")
    caps = {name: cap for name, cap in asdict(settings.run_budget).items() if cap is not None}
    del caps["allow_unpriced"]
    usd, depth = caps.pop("usd", None), caps.pop("depth")
    money = (
        "no cap on USD, as workers are free or a price is unknown" if usd is None else f"${usd:g}"
    )
    others = [f"{name} {cap:g}" for name, cap in caps.items()]
    echo(f"budget per run: {'; '.join([money, *others, f'runs nest {depth:g} deep'])}")
    for warning in settings.warnings:
        echo(f"note: {to_one_line(warning)}")
    problems = [*missing.values()]
    try:
        if not problems:
            assemble(settings, os.environ, http)
    except PodiumError as error:
        problems.append(str(error))
    try:
        for line in mini_tier_lines(settings):
            echo(with_program_name(to_one_line(line)))
    except PodiumError as error:
        problems.append(str(error))
    return problems


def _find_missing(worker: WorkerSettings, http: Http) -> str | None:
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


def _state(worker: WorkerSettings) -> str:
    """Say what is known of a worker that was not contacted."""
    models = [find_weights(model) for model in worker_weights(worker)]
    if models:
        return "on this machine" if all(one.present for one in models) else "to be downloaded"
    known = KNOWN_ENDPOINTS.get(worker.profile.provider)
    return "key set, not tried" if known is not None and known.key_variables else "not tried"


async def _examine_store(settings: Settings) -> list[str]:
    """Open the store: nothing else shows whether it is usable."""
    from podium.store.sql.database import locate

    where = settings.store.url or settings.store.path or default_url()
    try:
        echo(f"runs are stored in {locate(where).name}")
        store = await open_store(where)
        await store.close()
    except PodiumError as error:
        return [f"runs will not be stored: {error}"]
    return []


async def _examine_mcp_servers(settings: Settings) -> None:
    """Connect to every MCP server of the settings once, concurrently."""
    if not settings.mcp:
        return
    from podium.workers.mcp import check_server

    found = await asyncio.gather(*(check_server(server, os.environ) for server in settings.mcp))
    for server, reached in zip(settings.mcp, found, strict=True):
        where = redact_url(server.url) if server.url else server.command
        state = f"not usable: {reached.problem}"
        if reached.problem is None:
            state = f"{pluralize(len(reached.tools), 'tool')}: {', '.join(reached.tools) or 'none'}"
        echo(to_one_line(f"MCP server {server.name} ({where}): {state}"))


async def _examine_sandbox() -> None:
    """Build the sandbox: nothing else shows which of its layers work."""
    from podium.workers.sandbox import isolation_layers

    try:
        missing = [layer for layer in await isolation_layers() if not layer.is_active]
    except PodiumError as error:
        echo(f"code written by models cannot be graded: {to_one_line(str(error))}")
        return
    if not missing:
        echo("code written by models is graded in the sandbox with all its layers")
    for layer in missing:
        echo(
            f"code written by models is graded without {layer.name} in the sandbox: {layer.missing}"
        )


def _examine_vendors(environment: Mapping[str, str]) -> None:
    echo("providers:")
    for known in KNOWN_ENDPOINTS.values():
        keys = (*known.key_variables, *known.token_variables)
        variables = keys or tuple(filter(None, [known.address_variable]))
        if not variables:
            continue
        if found := known.find_in(environment):
            names = [name for name in variables if environment.get(name, "").strip()]
            state = f"{' and '.join(names) or 'its address'} is set"
            if keys and environment.get(known.address_variable, "").strip():
                state += f"; {known.address_variable}: {redact_url(found.base_url)}"
        elif known.authorizer:
            state = f'name a model in podium.toml, with provider = "{known.provider}", to use it'
        elif known.provider in [server.provider for server in DEFAULT_SERVERS]:
            state = f"looked for at its usual port; set {variables[0]} for another address"
        else:
            state = f"set {' or '.join(variables)} to use it"
        echo(f"  {known.provider}: {state}")


async def _examine_local_servers() -> None:
    servers = await find_local_servers(os.environ)
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
