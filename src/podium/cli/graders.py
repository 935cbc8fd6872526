"""`podium eval graders`: whether the graders know right from wrong, on answers that are known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from podium._version import __version__
from podium.cli import options
from podium.cli.output import Exit, complain, say, say_json

if TYPE_CHECKING:  # the graders are slow to import, and help must be quick
    from podium.tasks.agreement import Agreement

USUAL: Final = (
    "math500",
    "humaneval",
    "mbpp",
    "mbpp:validation",
    "mbpp:train",
    "mbpp:prompt",
)
"""Those that run wherever Podium does: BigCodeBench needs the libraries that it is about."""

MISTAKES_SHOWN: Final = 20
TELL_EVERY: Final = 500
"""Answers, after which a line says how far it is."""

Suites = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SUITE]...",
        help=f"Benchmarks, or .jsonl or .csv files of tasks; when left out: {', '.join(USUAL)}.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where the benchmarks' files are, if not on the hub."),
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="How many tasks of each suite; all, when left out."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="What the order of tasks comes from.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-o", metavar="FILE", dir_okay=False, help="Write the figures there, as JSON."
    ),
]


def graders(
    suites: Suites = None,
    data: Data = None,
    limit: Limit = None,
    seed: Seed = 0,
    file: File = None,
    json: options.Json = False,
) -> None:
    """Test the graders on answers that are known to be right or wrong.

    Right are the reference answers, the same mathematics written in other ways, and the reference
    programs. Wrong are other tasks' answers, near misses, and programs with nothing in their
    functions. No worker is asked. Programs whose packages are not installed are not run.
    """
    from podium.evals.written import write_json

    rows, unavailable = asyncio.run(_measured(suites or USUAL, data, limit, seed))
    document = _document(rows, unavailable)
    if file is not None:
        write_json(file, document)
    if json:
        say_json(document)
    else:
        say("\n".join([agreement_table(document), *_mistakes(rows)]))
    if unavailable:
        raise typer.Exit(Exit.FAILED)


async def _measured(
    names: Sequence[str], data: Path | None, limit: int | None, seed: int
) -> tuple[list[Agreement], dict[str, str]]:
    """The rows of every suite that can be had, and why the others cannot."""
    from podium.core.errors import PodiumError
    from podium.tasks import loaded_suite
    from podium.tasks.agreement import agreement

    rows = []
    unavailable = {}
    for name in names:
        try:
            loaded = loaded_suite(name, data=data, limit=limit, seed=seed)
        except PodiumError as error:
            unavailable[name] = str(error)
            complain(f"{name}: {error}")
            continue
        for line in loaded.left_out:
            complain(str(line))

        def tell(done: int, total: int, name: str = name) -> None:
            if done == total or done % TELL_EVERY == 0:
                complain(f"{name}: {done} of {total} answers graded")

        rows += await agreement(name, loaded.tasks, seed=seed, watch=tell)
    return rows, unavailable


def _document(rows: Sequence[Agreement], unavailable: dict[str, str]) -> dict[str, Any]:
    from podium.core.run import timestamp

    return {
        "rows": [row.document() for row in rows],
        "unavailable": unavailable,
        "date": timestamp()[:10],
        "podium": __version__,
    }


def agreement_table(document: dict[str, Any]) -> str:
    """The figures as a table: how many answers of each kind, and how many mistakes."""
    from podium.evals.tables.text_table import markdown

    cells = [
        (
            row["suite"],
            row["what"],
            "right" if row["right"] else "wrong",
            str(row["graded"]),
            str(len(row["mistakes"])),
            str(sum(row["missing"].values())),
        )
        for row in document["rows"]
    ]
    return markdown(("suite", "answers", "are", "graded", "mistakes", "not run"), cells)


def _mistakes(rows: Sequence[Agreement]) -> list[str]:
    lines = []
    for row in rows:
        for mistake in row.mistakes[:MISTAKES_SHOWN]:
            said = "wrong" if row.right else "right"
            reason = f": {mistake.reason}" if mistake.reason else f": {mistake.given!r}"
            lines.append(f"{mistake.task}, {row.what}, graded {said}{reason}")
        if len(row.mistakes) > MISTAKES_SHOWN:
            lines.append(f"and {len(row.mistakes) - MISTAKES_SHOWN} more; --json shows all")
        if row.missing:
            packages = ", ".join(f"{name} ({count})" for name, count in row.missing)
            lines.append(f"{row.suite}, {row.what}: not run for want of {packages}")
    return lines
