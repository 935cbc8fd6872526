"""The options that several commands share, each written once."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Final, TextIO

import typer

from podium.client.runtime import RunOptions
from podium.core.budget import Budget
from podium.core.errors import UsageError
from podium.core.run import Tier

STANDARD_INPUT: Final = "-"


def finite(value: float | None) -> float | None:
    """Refuse what is no number, or endless."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no cap; give a number.")
    return value


def share(value: float | None) -> float | None:
    """Refuse what is not from 0 to 1; no number at all, `nan`, is neither more nor less."""
    if value is not None and not 0 <= value <= 1:
        raise typer.BadParameter(f"expected a number from 0 to 1, got {value:g}")
    return value


Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="What to answer; - reads it from standard input.")
]
RunId = Annotated[
    str, typer.Argument(metavar="ID", help="A run's id, the beginning of it, or last.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
JsonList = Annotated[
    bool, typer.Option("--json", help="Print one JSON array of objects and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")]
Pool = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A pool file; its tables take the place of the configuration's."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The configuration, instead of the podium.toml in force."),
]
Conductor = Annotated[
    str | None,
    typer.Option(
        metavar="KIND|MODEL",
        help="Who plans: rules, router, model, fixed, evolved, a worker's name, provider/model, or "
        "evolved:DIR, a coordinator that was trained.",
    ),
]
TierOption = Annotated[
    Tier | None,
    typer.Option(
        "--tier",
        metavar="mini|podium|ultra",
        help="How much conducting: none, as much as the question needs, or all of it, "
        "which is the default.",
    ),
]
MaxSteps = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most steps that a plan may have.")
]
Rounds = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="How often the conductor may plan."),
]
QualityBias = Annotated[
    float | None,
    typer.Option(
        metavar="0..1",
        callback=share,
        help="With a learned router: how much quality counts over cost, from 0 to 1.",
    ),
]
BudgetUsd = Annotated[
    float | None,
    typer.Option(metavar="USD", min=0, callback=finite, help="The most that the run may cost."),
]
BudgetCalls = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="The most calls to models, planning included."),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option(metavar="S", min=0, callback=finite, help="The longest that the run may take."),
]
BudgetTokens = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="The most tokens, input and output together.")
]
AllowUnpriced = Annotated[
    bool,
    typer.Option(
        "--allow-unpriced", help="Cap the cost although the price of some worker is unknown."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="A worker, provider or mcp:SERVER to leave out; may be repeated."
    ),
]
Offline = Annotated[
    bool,
    typer.Option("--offline", help="Use only what is on this machine, and download nothing."),
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Keep no record of the run.")]


def standard_input() -> TextIO:
    """What the shell hands over, unless it was told to hand over nothing."""
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise UsageError("standard input is closed, so nothing can be read from it; open it")
    return stream


def question_from(argument: str) -> str:
    """The question: the argument itself, or what standard input holds."""
    question = argument
    if argument == STANDARD_INPUT:
        try:
            question = standard_input().read()
        except UnicodeDecodeError as error:
            raise UsageError("the question on standard input is not UTF-8 text") from error
    if not question.strip():
        raise UsageError("the question is empty; ask something")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the question is not UTF-8 text; check the terminal's encoding") from error
    return question.strip() if argument == STANDARD_INPUT else question


def wishes(
    budget: Budget,
    tier: Tier | None,
    max_steps: int | None,
    rounds: int | None,
    quality_bias: float | None = None,
) -> RunOptions:
    """What was wished for on the command line; what was not is left to the settings."""
    wished = RunOptions(budget=budget)
    if tier is not None:
        wished["tier"] = tier
    if max_steps is not None:
        wished["max_steps"] = max_steps
    if rounds is not None:
        wished["rounds"] = rounds
    if quality_bias is not None:
        wished["quality_bias"] = quality_bias
    return wished
