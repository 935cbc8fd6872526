"""`podium serve`: Podium as one model behind the APIs that tools already speak."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium.cli import options
from podium.cli.keys import state_of
from podium.cli.models import fetch_weights
from podium.cli.output import Exit, complain
from podium.cli.session import NO_KEY
from podium.cli.settings import configuration_file
from podium.config import Settings
from podium.core.errors import UsageError
from podium.store import keys_in, open_store

if TYPE_CHECKING:
    from podium.server.operation.startup import ServeOptions

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Host = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Where to listen; 127.0.0.1 unless told.")
]
Port = Annotated[
    int | None, typer.Option(metavar="N", min=0, max=65535, help="The port; 7755 unless told.")
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Processes that answer, on the same port.")
]
Keys = Annotated[
    bool | None,
    typer.Option("--keys/--no-keys", help="Serve only who has a key; podium keys makes them."),
]
Log = Annotated[
    str | None,
    typer.Option(
        metavar="text|json",
        help="How the log is written; text on a terminal and JSON elsewhere unless told.",
    ),
]


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    config: options.Config = None,
    pool: options.Pool = None,
    keys: Keys = None,
    log: Log = None,
) -> None:
    """Serve the pool as one model, to clients of OpenAI and of Anthropic."""
    from podium.server.operation.listener import bind_socket
    from podium.server.operation.startup import ServeOptions, serve

    configuration_file(os.environ, config)
    given = {"host": host, "port": port, "workers": workers, "keys": keys, "log": _form(log)}
    server: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen = ServeOptions(
        config=str(config) if config else None, pool=str(pool) if pool else None, server=server
    )
    settings = asyncio.run(_checked(chosen))
    with bind_socket(settings.server) as listening:  # before the weights, which may take minutes
        asyncio.run(_prepare(settings))
        try:
            serve(chosen, settings.server, listening)
        except SystemExit as ended:  # the web server's way; the log has said why
            raise typer.Exit(Exit.FAILED) from ended


def _form(log: str | None) -> str | None:
    if log not in (None, "text", "json"):
        raise UsageError(f"--log {log!r} is no form of the log; give text or json")
    return log


async def _checked(chosen: ServeOptions) -> Settings:
    """The settings, with what is wrong or doubtful about serving them told."""
    from podium.server.access.request_checks import refuse_own_address
    from podium.server.operation.startup import is_public

    settings = await chosen.settings()
    for warning in settings.warnings:
        complain(warning)
    refuse_own_address(settings, os.environ)
    server = settings.server
    if is_public(server.host) and not server.keys:
        complain(
            f"WARNING: {server.host} can be reached from other machines, and no key is "
            f"asked for: whoever finds this server spends your money; serve with --keys"
        )
    return settings


async def _prepare(settings: Settings) -> None:
    """Have what serving needs: the weights, and somebody who may ask."""
    if settings.is_embedded:
        complain(NO_KEY)
    await fetch_weights(settings, offline=False)
    if not settings.server.keys:
        return
    if await _has_keys(settings):
        complain("only who has a key is served; podium keys list shows who has one")
    else:
        complain(
            "only who has a key is served, and there is none yet; make one, also while the server "
            "runs, with: podium keys create NAME"
        )


async def _has_keys(settings: Settings) -> bool:
    """Whether there is a key that is neither revoked nor expired."""
    store = await open_store(settings.store.url or settings.store.path)
    try:
        return any(state_of(key) == "active" for key in await keys_in(store).keys())
    finally:
        await store.close()
