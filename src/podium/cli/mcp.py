"""`podium mcp`: ask and plan as tools of an MCP client, over standard input and output."""

from __future__ import annotations

import typer

from podium.cli import options
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def mcp(
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    tier: options.TierOption = None,
    max_steps: options.MaxSteps = None,
    rounds: options.Rounds = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    no_store: options.NoStore = False,
) -> None:
    """Offer ask and plan to an MCP client.

    The client starts this command by itself, and speaks to it over standard input and output. The
    budget holds for each call. Complaints go to standard error.
    """
    from podium.cli.mcp_server import claim_standard_output, serve_standard_streams

    wire = claim_standard_output()
    choice = Choice(
        pool=pool,
        config=config,
        conductor=conductor,
        exclude=frozenset(exclude or ()),
        offline=offline,
    )
    caps = Caps(
        usd=budget_usd,
        calls=budget_calls,
        seconds=budget_seconds,
        tokens=budget_tokens,
        allow_unpriced=allow_unpriced,
    )
    with Session(choice, keep=not no_store) as session:
        wishes = options.wishes(caps.over(session.settings.budget), tier, max_steps, rounds)
        session.wait_for(serve_standard_streams(session.podium, wire, wishes))
