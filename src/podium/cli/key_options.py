"""The options of `podium keys create`, each written once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from podium.cli import options
from podium.store.keys import SCOPES


def _usd(what: str) -> Any:
    return typer.Option(
        metavar="USD", min=0, callback=options.finite, help=f"The most money {what}."
    )


def _count(what: str) -> Any:
    return typer.Option(metavar="N", min=0, help=f"The most tokens {what}.")


Name = Annotated[str, typer.Argument(metavar="NAME", help="Who or what the key is for.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCOPE",
        help=f"What it may be used for: {', '.join(SCOPES)}; may be repeated. Without any, "
        f"all but metrics and admin.",
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(metavar="mini|podium|ultra", help="A tier that it may ask for; may be repeated."),
]
Workers = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A worker that it may call by its name; may be repeated."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A worker, provider or mcp:SERVER that must see nothing that is asked with it, in no "
        "step of any run; may be repeated.",
    ),
]
NoTraining = Annotated[
    bool,
    typer.Option(
        "--no-training", help="Nothing that is asked with it becomes training data, nor is graded."
    ),
]
UsdPerRequest = Annotated[float | None, _usd("one request may cost")]
UsdPerDay = Annotated[float | None, _usd("it may spend in a day (UTC)")]
UsdPerMonth = Annotated[float | None, _usd("it may spend in a month (UTC)")]
UsdInTotal = Annotated[float | None, _usd("it may ever spend")]
TokensPerRequest = Annotated[int | None, _count("one request may use")]
TokensPerDay = Annotated[int | None, _count("it may use in a day (UTC)")]
TokensPerMonth = Annotated[int | None, _count("it may use in a month (UTC)")]
TokensInTotal = Annotated[int | None, _count("it may ever use")]
RequestsPerMinute = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most requests in a minute.")
]
TokensPerMinute = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most tokens in a minute.")
]
Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="When it ends: 12h, 30d, or a day such as 2027-01-31."),
]
