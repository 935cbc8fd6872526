"""`podium serve`: Podium as one model behind the APIs that tools already speak."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podium.cli import options
from podium.cli.fetching import fetch_weights
from podium.cli.output import complain
from podium.cli.session import NO_KEY, is_embedded
from podium.cli.settings import configuration_file
from podium.config import Settings

if TYPE_CHECKING:
    from podium.server.starting import Chosen

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


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    config: options.Config = None,
    pool: options.Pool = None,
    keys: Keys = None,
) -> None:
    """Serve the pool as one model, to clients of OpenAI and of Anthropic."""
    from podium.server.hops import refuse_own_address
    from podium.server.starting import Chosen, is_public, listen

    configuration_file(os.environ, config)
    given = {"host": host, "port": port, "workers": workers, "keys": keys}
    server: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen = Chosen(
        config=str(config) if config else None, pool=str(pool) if pool else None, server=server
    )
    settings = asyncio.run(_prepared(chosen))
    refuse_own_address(settings, os.environ)
    if is_public(settings.server.host) and not settings.server.keys:
        complain(
            f"WARNING: {settings.server.host} can be reached from other machines, and no key is "
            f"asked for: whoever finds this server spends your money; serve with --keys"
        )
    listen(chosen, settings.server)


async def _prepared(chosen: Chosen) -> Settings:
    """The settings, with the weights that they need on this machine."""
    settings = await chosen.settings()
    for warning in settings.warnings:
        complain(warning)
    if is_embedded(settings):
        complain(NO_KEY)
    await fetch_weights(settings, offline=False)
    return settings
