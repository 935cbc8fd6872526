"""`podium serve`: serve the pool as one model over the OpenAI and Anthropic APIs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium.cli import options
from podium.cli.models import fetch_weights
from podium.cli.output import ExitCode, echo_error
from podium.cli.session import NO_API_KEY
from podium.config import Settings
from podium.core.errors import UsageError
from podium.store import open_store

if TYPE_CHECKING:
    from podium.server.startup import ServeOptions

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def serve(
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address to listen on; default 127.0.0.1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="The port; default 7755."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Worker processes on the same port.")
    ] = None,
    config: options.Config = None,
    pool: options.Pool = None,
    keys: Annotated[
        bool | None,
        typer.Option("--keys/--no-keys", help="Require an API key; podium keys creates them."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="text|json", help="The log format; default text on a terminal, else JSON."
        ),
    ] = None,
) -> None:
    """Serve the pool as one model over the OpenAI and Anthropic APIs."""
    from podium.server.startup import ServeOptions, bind_socket, serve

    given = {
        "host": host,
        "port": port,
        "workers": workers,
        "require_keys": keys,
        "log": _log_format(log),
    }
    server: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    serve_options = ServeOptions(
        config=str(config) if config else None, pool=str(pool) if pool else None, server=server
    )
    settings = asyncio.run(_load_settings(serve_options))
    with bind_socket(settings.server) as listening:  # before the weights, which may take minutes
        asyncio.run(_prepare(settings))
        try:
            serve(serve_options, settings.server, listening)
        except SystemExit as ended:  # the web server's way; the log has said why
            raise typer.Exit(ExitCode.FAILED) from ended


def _log_format(log: str | None) -> str | None:
    if log not in (None, "text", "json"):
        raise UsageError(f"--log {log!r} is not a log format; give text or json")
    return log


async def _load_settings(serve_options: ServeOptions) -> Settings:
    """Load the settings, and warn of risks of serving them."""
    from podium.server.access.request_checks import refuse_own_address
    from podium.server.startup import is_public

    settings = await serve_options.settings()
    for warning in settings.warnings:
        echo_error(warning)
    refuse_own_address(settings, os.environ)
    server = settings.server
    if is_public(server.host) and not server.require_keys:
        echo_error(
            f"WARNING: other machines can reach {server.host} and no API key is required: anyone "
            f"who finds this server spends your money; serve with --keys"
        )
    return settings


async def _prepare(settings: Settings) -> None:
    """Download the weights, and say whether there are API keys."""
    if settings.uses_default_pool:
        echo_error(NO_API_KEY)
    await fetch_weights(settings.workers, settings.conductor, offline=False)
    if not settings.server.require_keys:
        return
    if await _has_keys(settings):
        echo_error("API key required; podium keys list shows the keys")
    else:
        echo_error(
            "API key required, and there is none yet; create one, also while the server runs, "
            "with: podium keys create NAME"
        )


async def _has_keys(settings: Settings) -> bool:
    """True if there is a key that is neither revoked nor expired."""
    store = await open_store(settings.store.url or settings.store.path)
    try:
        return any(key.state == "active" for key in await store.keys.keys())
    finally:
        await store.close()
