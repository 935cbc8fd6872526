"""`podium init`: find keys and model servers, write podium.toml, try it, ask a question."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from podium._util.files import explain_write_errors
from podium.cli.options import PoolOptions
from podium.cli.output import ExitCode, echo, echo_error, pluralize, with_program_name
from podium.cli.pool import check_workers
from podium.cli.session import answer_once
from podium.config.settings import DEFAULT_RUN_USD
from podium.config.sources import DEFAULT_POOL, FILE_NAME, DiscoveredWorkers, discover_workers
from podium.config.workers import WorkerTable
from podium.core.errors import UsageError
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS

app = typer.Typer(rich_markup_mode=None, add_completion=False)

FIRST_QUESTION: Final = "What is the capital of Japan?"
MODEL_GIGABYTES: Final = 2.1


@app.command()
def init(
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Take every default, as without a terminal."),
    ] = False,
    file: Annotated[Path, typer.Option("--file", metavar="FILE", help="The file to write.")] = Path(
        FILE_NAME
    ),
) -> None:
    """Find keys and local servers, and write podium.toml.

    Then every worker gets one tiny request, and a first question is asked. API keys stay in the
    environment; the file names only the workers. An existing file is never overwritten. Without
    keys and servers, the pool is a small model that runs on this machine.
    """
    if file.exists():
        raise UsageError(f"{file} exists and is not overwritten; move it aside, or use --file")
    if not yes and not sys.stdin.isatty():
        echo_error("no terminal to ask at: every default is taken, as with --yes")
        yes = True
    echo(_machine_line())
    found = asyncio.run(discover_workers(os.environ, Catalogue.load()))
    is_wanted = _is_wanted(found, yes=yes)
    workers = found.workers if is_wanted else ()
    text = render_config(workers, _choose_cap(workers, yes=yes))
    if not is_wanted:  # else the keys in the environment would be used after all
        text += "\n" + DEFAULT_POOL.read_text("utf-8")
    with explain_write_errors(file.parent, 0), file.open("x", encoding="utf-8") as output:
        output.write(text)
    echo(f"wrote {file}")
    pool = PoolOptions(config=file)
    if not check_workers(pool):
        echo_error(with_program_name(f"edit {file}, then use podium pool check"))
        raise typer.Exit(ExitCode.FAILED)
    if yes or typer.confirm(f"Ask a first question: {FIRST_QUESTION}", default=True):
        code = answer_once(
            lambda session, options: session.podium.ask(FIRST_QUESTION, **options),
            pool,
            json=False,
            quiet=False,
        )
        if code is not ExitCode.ANSWERED:
            raise typer.Exit(code)
    echo(with_program_name('next: podium ask "…", podium chat, or podium serve'))


def _machine_line() -> str:
    gpu = "an NVIDIA GPU" if shutil.which("nvidia-smi") else "no NVIDIA GPU"
    try:
        free = f"{read_available_gigabytes():.1f} GB free memory, "
    except OSError:  # not on macOS and Windows
        free = ""
    return f"this machine: {os.cpu_count()} cores, {free}{gpu}"


def read_available_gigabytes(file: Path = Path("/proc/meminfo")) -> float:
    """Return the memory that a new program can have, caches included."""
    lines = dict(line.split(":", 1) for line in file.read_text("utf-8").splitlines())
    return int(lines["MemAvailable"].removesuffix("kB")) * 1024 / 1e9


def _is_wanted(found: DiscoveredWorkers, *, yes: bool) -> bool:
    """Show what was found, and return whether it becomes the pool."""
    for warning in found.warnings:
        echo_error(warning)
    if not found.workers:
        echo(
            f"no API key and no model server found; a model of 1.1 GB will answer here and needs "
            f"{MODEL_GIGABYTES} GB of memory"
        )
        return True
    names = ", ".join(worker.name for worker in found.workers)
    echo(f"found {', '.join(found.variables)}: {names}")
    count = pluralize(len(found.workers), "worker")
    return yes or typer.confirm(f"Use these {count}?", default=True)


def _choose_cap(workers: Sequence[WorkerTable], *, yes: bool) -> float | None:
    """Return the cap on a run in US dollars; None where every worker runs on one's own machine."""
    if not any(KNOWN_ENDPOINTS[worker.provider].key_variables for worker in workers):
        return None
    if yes:
        return DEFAULT_RUN_USD
    return max(0.0, float(typer.prompt("Most that one run may cost, in USD", DEFAULT_RUN_USD)))


def render_config(workers: Sequence[WorkerTable], cap: float | None) -> str:
    """Return the text of podium.toml with these workers; without any, with the default pool."""
    lines = [
        "# Written by podium init. All keys: docs/reference/configuration.md",
        "# API keys are read from the environment and do not belong here.",
        "",
    ]
    if cap is not None:
        lines += ["[budget]", f"usd = {cap:g}  # the most that one run may cost", ""]
    if not workers:
        lines += [
            "# No worker is named, so the workers are those of the API keys in the environment,",
            "# else of Ollama, LM Studio or vLLM on this machine, else a small local model.",
            f"# A run of paid models costs at most ${DEFAULT_RUN_USD:g};",
            "# usd = … under [budget] changes that.",
        ]
    for worker in workers:
        lines += ["[[worker]]", f"name = {json.dumps(worker.name)}"]
        lines += [
            f"provider = {json.dumps(worker.provider)}",
            f"model = {json.dumps(worker.model)}",
        ]
        if worker.base_url:
            lines.append(f"base_url = {json.dumps(worker.base_url)}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
