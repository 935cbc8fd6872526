"""`podium ask`: a question in, a plan and an answer out."""

from __future__ import annotations

from functools import partial

import typer

from podium.cli import options
from podium.cli.options import question_from
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice, check_quality_bias
from podium.cli.showing import deliver, onlooker

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def ask(
    question: options.Question,
    json: options.Json = False,
    quiet: options.Quiet = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    tier: options.TierOption = None,
    max_steps: options.MaxSteps = None,
    rounds: options.Rounds = None,
    quality_bias: options.QualityBias = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    no_store: options.NoStore = False,
) -> None:
    """Answer a question, with the plan drawn as it runs.

    The plan, its steps as they end, and the answer go to standard output; complaints go to
    standard error.

    Exit codes: 0 answered (perhaps in part, with a warning), 1 the run failed, 2 usage or
    configuration, 3 the budget was spent before there was an answer, 130 interrupted.
    """
    asked = question_from(question)
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
    heeded = partial(check_quality_bias, tier=tier, quality_bias=quality_bias)
    with Session(choice, keep=not no_store, quiet=quiet, check=heeded) as session:
        wishes = options.wishes(
            caps.over(session.settings.budget), tier, max_steps, rounds, quality_bias
        )
        run = session.perform(
            lambda podium, watched: podium.ask(asked, **watched),
            onlooker(silent=json or quiet),
            wishes,
        )
    raise typer.Exit(deliver(run, session.resume(run), json=json, quiet=quiet))
