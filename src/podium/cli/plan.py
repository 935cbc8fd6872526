"""`podium plan`: only the workflow, with nothing of it carried out."""

from __future__ import annotations

from functools import partial

import typer

from podium.cli import options
from podium.cli.formatting import counted, money, one_line, step_line, tokens_of
from podium.cli.options import question_from
from podium.cli.output import complain, say, say_json
from podium.cli.session import Session
from podium.cli.settings import Caps, Choice, check_quality_bias
from podium.client.documents import plan_document
from podium.core.run import Round, total_cost, total_usage

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def plan(
    question: options.Question,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    tier: options.TierOption = None,
    max_steps: options.MaxSteps = None,
    quality_bias: options.QualityBias = None,
    budget_usd: options.BudgetUsd = None,
    budget_calls: options.BudgetCalls = None,
    budget_seconds: options.BudgetSeconds = None,
    budget_tokens: options.BudgetTokens = None,
    allow_unpriced: options.AllowUnpriced = False,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
) -> None:
    """Plan a question and carry nothing out.

    What --json prints can be kept in a file, changed by hand, and carried out by podium run.
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
    with Session(choice, keep=False, check=heeded) as session:
        wishes = options.wishes(
            caps.over(session.settings.budget), tier, max_steps, None, quality_bias
        )
        planned = session.wait_for(session.podium.plan(asked, **wishes))
    for warning in planned.warnings:
        complain(warning)
    if json:
        say_json(plan_document(asked, planned))
    else:
        _say(planned)


def _say(planned: Round) -> None:
    assert planned.workflow is not None, "the first round always has a workflow"
    say(f"{counted(len(planned.workflow), 'step')}, {planned.workflow.shape}")
    for index, step in enumerate(planned.workflow.steps):
        say(f"  {one_line(step_line(index, step))}")
    if planned.routed is not None:
        say(one_line(planned.routed.sentence))
    calls = planned.planning
    if calls:
        used = f"{tokens_of(total_usage(iter(calls)))}, {money(total_cost(iter(calls)))}"
        say(f"planned in {counted(len(calls), 'call')}, {used}")
