"""Options that several commands share, and the groups in which commands take them.

A command takes a group as one parameter; `with_option_groups` shows its fields to typer as options:

    @app.command()
    @with_option_groups
    def ask(question: Question, pool: PoolOptions, budget: BudgetOptions) -> None: ...
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TextIO, get_args, get_type_hints

import typer

from podium.client.runtime import RunOptions
from podium.core.budget import Budget
from podium.core.errors import UsageError
from podium.core.run import Tier

STANDARD_INPUT: Final = "-"


class Omit(tuple[str, ...]):
    """Names the fields of a group that a command does not offer."""

    __slots__ = ()


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass parameter of a command by one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        group, *extras = get_args(hint) if get_args(hint) else (hint,)
        if not is_dataclass(group) or not isinstance(group, type):
            parameters.append(parameter.replace(annotation=hint))
            continue
        omitted = {name for extra in extras if isinstance(extra, Omit) for name in extra}
        field_hints = get_type_hints(group, include_extras=True)
        offered = [field for field in fields(group) if field.name not in omitted]
        groups[parameter.name] = (group, [field.name for field in offered])
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=field_hints[field.name],
            )
            for field in offered
        ]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, (group, names) in groups.items():
            values[name] = group(**{item: values.pop(item) for item in names})
        command(**values)

    keyword_only = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters]
    call.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def check_finite(value: float | None) -> float | None:
    """Refuse infinity and nan."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"expected a finite number, got {value}")
    return value


def check_share(value: float | None) -> float | None:
    """Refuse anything but a number from 0 to 1."""
    if value is not None and not 0 <= value <= 1:
        raise typer.BadParameter(f"expected a number from 0 to 1, got {value:g}")
    return value


Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="The question; - reads it from standard input.")
]
RunId = Annotated[
    str, typer.Argument(metavar="ID", help="A run's id, a unique prefix of it, or last.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
JsonList = Annotated[
    bool, typer.Option("--json", help="Print one JSON array of objects and nothing else.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")]
Pool = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A pool file; its tables replace those of the configuration."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The configuration file, instead of podium.toml."),
]
Conductor = Annotated[
    str | None,
    typer.Option(
        metavar="KIND|MODEL",
        help="The conductor: rules, router, model, fixed, evolved, a worker's name, "
        "provider/model, or evolved:DIR for a trained coordinator.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Exclude a worker, provider or mcp:SERVER; repeatable."),
]
Offline = Annotated[
    bool, typer.Option("--offline", help="Use only local models, and download nothing.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Do not store the run.")]
MaxSteps = Annotated[int | None, typer.Option(metavar="N", min=1, help="The most steps of a plan.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The workers and the conductor to use. `offline` keeps everything on this machine."""

    pool: Pool = None
    config: Config = None
    conductor: Conductor = None
    exclude: Exclude = None
    offline: Offline = False

    @property
    def excluded(self) -> frozenset[str]:
        """The names of workers and providers to leave out."""
        return frozenset(self.exclude or ())


WithoutConductor = Annotated[PoolOptions, Omit(("conductor",))]
WithoutExclude = Annotated[PoolOptions, Omit(("exclude",))]
PoolFiles = Annotated[PoolOptions, Omit(("conductor", "exclude"))]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """The caps of a run's budget. `allow_unpriced` permits a cap on cost although the price of a
    worker is unknown."""

    usd: Annotated[
        float | None,
        typer.Option(
            "--budget-usd",
            metavar="USD",
            min=0,
            callback=check_finite,
            help="The most that the run may cost.",
        ),
    ] = None
    calls: Annotated[
        int | None,
        typer.Option(
            "--budget-calls", metavar="N", min=0, help="The most model calls, planning included."
        ),
    ] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            "--budget-seconds",
            metavar="S",
            min=0,
            callback=check_finite,
            help="The longest that the run may take.",
        ),
    ] = None
    tokens: Annotated[
        int | None,
        typer.Option(
            "--budget-tokens", metavar="N", min=0, help="The most tokens, input plus output."
        ),
    ] = None
    allow_unpriced: Annotated[
        bool,
        typer.Option(
            "--allow-unpriced", help="Cap the cost even if the price of a worker is unknown."
        ),
    ] = False

    def apply_to(self, budget: Budget) -> Budget:
        """Return the budget with these caps in place of its own."""
        caps = {
            name: cap
            for name in ("usd", "calls", "seconds", "tokens")
            if (cap := getattr(self, name)) is not None
        }
        allowed = self.allow_unpriced or budget.allow_unpriced
        return replace(budget, **caps, allow_unpriced=allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningOptions:
    """Planning options; None leaves them to the settings."""

    tier: Annotated[
        Tier | None,
        typer.Option(
            metavar="mini|podium|ultra",
            help="How much planning: none, as much as the question needs, or all of it (the "
            "default).",
        ),
    ] = None
    max_steps: MaxSteps = None
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most planning rounds.")
    ] = None
    quality_bias: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            callback=check_share,
            help="With a learned router: how much quality counts over cost.",
        ),
    ] = None

    def to_run_options(self, budget: Budget) -> RunOptions:
        """Return the options of a run with that budget."""
        options = RunOptions(budget=budget)
        if self.tier is not None:
            options["tier"] = self.tier
        if self.max_steps is not None:
            options["max_steps"] = self.max_steps
        if self.rounds is not None:
            options["rounds"] = self.rounds
        if self.quality_bias is not None:
            options["quality_bias"] = self.quality_bias
        return options


def open_stdin() -> TextIO:
    """Return standard input; raise `UsageError` where it is closed."""
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise UsageError("standard input is closed, so nothing can be read from it; open it")
    return stream


def read_question(argument: str) -> str:
    """Return the question: the argument itself, or the content of standard input for `-`."""
    question = argument
    if argument == STANDARD_INPUT:
        try:
            question = open_stdin().read()
        except UnicodeDecodeError as error:
            raise UsageError("the question on standard input is not UTF-8 text") from error
    if not question.strip():
        raise UsageError("the question is empty; ask something")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the question is not UTF-8 text; check the terminal's encoding") from error
    return question.strip() if argument == STANDARD_INPUT else question
