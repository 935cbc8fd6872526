"""`podium mcp`: ask and plan as tools of an MCP client, over standard input and output."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from podium.cli import options
from podium.cli.options import BudgetOptions, Omit, PlanningOptions, PoolOptions, with_option_groups
from podium.cli.session import Session
from podium.core.errors import UsageError, needs_extra

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
@with_option_groups
def mcp(
    pool: PoolOptions,
    planning: Annotated[PlanningOptions, Omit(("quality_bias",))],
    budget: BudgetOptions,
    no_store: options.NoStore = False,
) -> None:
    """Offer ask and plan to an MCP client.

    The client starts this command and talks to it over standard input and output. The budget
    applies to each call. Errors go to standard error.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "standard input is a terminal; podium mcp is started by an MCP client, see "
            "docs/reference/mcp.md"
        )
    with needs_extra("mcp", "podium mcp"):
        from podium.cli.mcp_server import create_server
    with Session(pool, planning, budget, store_runs=not no_store) as session:
        server = create_server(session.podium, session.options)
        session.wait_for(server.run_stdio_async())
