"""`python -m benchmarks`: measure what Podium costs, beside its peers on this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from benchmarks.report import Figures

ALL_PARTS: Final = "faults,overlap,replicas,soak,fuzz"

app = typer.Typer(rich_markup_mode=None, add_completion=False)

Quick = Annotated[bool, typer.Option("--quick", help="A short look, not for quoting.")]
Peers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Measure peers too, in their own environments.")
]


@app.callback()
def bench() -> None:
    """Podium beside its peers on this machine.

    Each command prints a table, and one JSON object as the last line.
    """


@app.command()
def engine(
    repeat: Annotated[int, typer.Option(min=1, help="Short blocks of each contestant.")] = 300,
    peers: Peers = True,
) -> None:
    """A 5-step chain and a join: the engine, a bare asyncio.TaskGroup and LangGraph."""
    from benchmarks.engine import measure_engine

    _print(asyncio.run(measure_engine(repeat, peers=peers, on_progress=_print_progress)))


@app.command()
def server(quick: Quick = False, peers: Peers = True) -> None:
    """The server, the LiteLLM proxy and Portkey's gateway, over one upstream on this machine."""
    from benchmarks.processes import run_on_fast_loop
    from benchmarks.server import QUICK, USUAL, measure_server

    size = QUICK if quick else USUAL
    _print(run_on_fast_loop(measure_server(size, peers=peers, on_progress=_print_progress)))


@app.command()
def latency(
    count: Annotated[int, typer.Option(min=1, help="At most so many plans of each form.")] = 200,
    peers: Peers = True,
) -> None:
    """Conducted answers beside direct calls, over models of realistic speed."""
    from benchmarks.latency import measure_latency
    from benchmarks.processes import run_on_fast_loop

    _print(run_on_fast_loop(measure_latency(count, peers=peers, on_progress=_print_progress)))


@app.command()
def planning(
    model: Annotated[Path, typer.Argument(metavar="GGUF", help="The file of a local model.")],
) -> None:
    """A local model's decision who answers: tokens of the prompt, prefix cache, time."""
    from benchmarks.planning import measure_planning

    _print(asyncio.run(measure_planning(model)))


@app.command()
def chaos(
    part: Annotated[
        str, typer.Option(metavar="PARTS", help=f"Which parts, of {ALL_PARTS}.")
    ] = ALL_PARTS,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything.")] = False,
    seed: Annotated[int, typer.Option(help="The seed of the faults.")] = 1,
) -> None:
    """Break things, and check that the promises hold; the exit code is 1 where one was broken."""
    from benchmarks.chaos import run
    from benchmarks.chaos.report import figures_text, summarize

    size = run.QUICK if quick else run.USUAL
    rows = []
    for name in run.parse_parts(part):
        _print_progress(f"{name} …")
        rows.append(run.run_part(name, size, seed))
    document = summarize(rows, seed, quick=quick)
    typer.echo(figures_text(document) + "\n")
    typer.echo(json.dumps(document))
    raise typer.Exit(not document["holds"])


@app.command()
def capacity(
    quick: Quick = False,
) -> None:
    """The capacity of one process, one machine and replicas over one Postgres."""
    from benchmarks.capacity.measure import (
        QUICK,
        USUAL,
        as_text,
        measure_capacity,
        size_deployments,
    )

    size = QUICK if quick else USUAL
    document = asyncio.run(measure_capacity(size, on_progress=_print_progress))
    typer.echo(f"{as_text(document)}\n\n{size_deployments(document)}\n")
    typer.echo(json.dumps(document))


def _print(figures: Figures) -> None:
    typer.echo(f"{figures.as_text()}\n\n{figures.as_json()}")


def _print_progress(line: str) -> None:
    typer.echo(line, err=True)
