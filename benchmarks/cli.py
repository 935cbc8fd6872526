"""`python -m benchmarks`: what Podium costs, beside its peers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.callback()
def bench() -> None:
    """Podium beside its peers on this machine."""


@app.command()
def engine(
    repeat: Annotated[
        int, typer.Option(min=1, help="How many short blocks each contestant carries out.")
    ] = 300,
    as_json: Annotated[bool, typer.Option("--json", help="Only the line of JSON.")] = False,
    peers: Annotated[
        bool,
        typer.Option("--peers/--no-peers", help="Measure LangGraph too, in its own environment."),
    ] = True,
) -> None:
    """A 5-step chain and a join: the engine, a bare asyncio.TaskGroup and LangGraph.

    Prints a table, and one JSON object as the last line.
    """
    import asyncio

    from rich.console import Console

    from benchmarks.engine import measure_engine

    figures = asyncio.run(measure_engine(repeat, peers=peers, say=_say))
    if not as_json:
        Console().print(figures.as_table())
    typer.echo(figures.as_json())


@app.command()
def server(
    quick: Annotated[bool, typer.Option("--quick", help="A short look, not for quoting.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the line of JSON.")] = False,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers/--no-peers", help="Measure the LiteLLM proxy too, in its own environment."
        ),
    ] = True,
    litellm: Annotated[
        Path | None,
        typer.Option(metavar="PYTHON", help="The Python of an environment that has the proxy."),
    ] = None,
) -> None:
    """The server and the LiteLLM proxy, over one upstream on this machine.

    Prints a table, and one JSON object as the last line.
    """
    from rich.console import Console

    from benchmarks.processes import run_on_fast_loop
    from benchmarks.server import QUICK, USUAL, measure_server

    extent = QUICK if quick else USUAL
    figures = run_on_fast_loop(measure_server(extent, peers=peers, litellm=litellm, say=_say))
    if not as_json:
        Console().print(figures.as_table())
    typer.echo(figures.as_json())


@app.command()
def router(
    file: Annotated[
        Path | None,
        typer.Option(
            "--router",
            metavar="FILE",
            help="A router of yours; left out: one over MiniLM that has learned nothing.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short look, not for quoting.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the line of JSON.")] = False,
) -> None:
    """What a learned router costs: its decision, and the first token of podium-mini.

    Prints a table, and one JSON object as the last line.
    """
    from rich.console import Console

    from benchmarks.processes import run_on_fast_loop
    from benchmarks.router import QUICK, USUAL, measure_router

    figures = run_on_fast_loop(measure_router(QUICK if quick else USUAL, file=file, say=_say))
    if not as_json:
        Console().print(figures.as_table())
    typer.echo(figures.as_json())


@app.command()
def chaos(
    part: Annotated[
        str,
        typer.Option(metavar="PARTS", help="Which parts, of faults,kills,replicas,soak,fuzz,peer."),
    ] = "faults,kills,replicas,soak,fuzz,peer",
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of everything.")] = False,
    seed: Annotated[int, typer.Option(help="What goes wrong is drawn from this number.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the figures there, as JSON, beside those of other parts in it.",
        ),
    ] = None,
    litellm: Annotated[
        Path | None,
        typer.Option(
            metavar="PYTHON",
            help="The Python of an environment that has the LiteLLM proxy, for the part peer.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only the line of JSON.")] = False,
) -> None:
    """Break things, and see whether what is promised holds.

    Prints a table, and one JSON object as the last line; the exit code is 1 where a promise was
    broken.
    """
    import asyncio
    import json
    import os

    from benchmarks.chaos.run import QUICK, USUAL, Order, measure_chaos, parts_named

    order = Order(extent=QUICK if quick else USUAL, seed=seed, litellm=litellm, quick=quick)
    at_once = 1 + (os.cpu_count() or 1) if quick else 1  # some of them mostly wait
    figures = asyncio.run(measure_chaos(parts_named(part), order, _say, at_once=at_once))
    if output is not None:
        whole = figures
        if output.is_file():
            whole = figures.beside(json.loads(output.read_text("utf-8")))
        output.write_text(json.dumps(whole.document(), indent=2) + "\n", "utf-8")
    if not as_json:
        typer.echo(figures.as_text() + "\n")
    typer.echo(figures.as_json())
    if not figures.holds:
        raise typer.Exit(1)


@app.command()
def capacity(
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Processes of the server that has the machine; left out: cores.",
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(metavar="N", min=1, help="Replicas that share one Postgres.")
    ] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A short look, not for quoting.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures there, as JSON.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Only the line of JSON.")] = False,
) -> None:
    """What one process, one machine and replicas over one Postgres carry, and what it takes.

    Prints a table, and one JSON object as the last line.
    """
    import asyncio
    import json
    import os

    from rich.console import Console

    from benchmarks.capacity.measure import QUICK, USUAL, measure_capacity

    extent = QUICK if quick else USUAL
    at_once = workers or os.cpu_count() or 1
    figures = asyncio.run(measure_capacity(extent, workers=at_once, replicas=replicas, say=_say))
    if output is not None:
        output.write_text(json.dumps(figures.document(), indent=2) + "\n", "utf-8")
    if not as_json:
        Console().print(figures.as_table())
    typer.echo(figures.as_json())


def _say(line: str) -> None:
    typer.echo(line, err=True)
