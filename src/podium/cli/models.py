"""`podium models`: list local models and download their weights."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.output import (
    echo,
    echo_error,
    echo_json,
    format_megabytes,
    is_terminal,
    to_one_line,
    with_program_name,
)
from podium.conductors.evolved_turns import read_description
from podium.config import ConductorSettings, WorkerSettings
from podium.workers.local import weights
from podium.workers.local.sources import LocalFile, parse_source, weights_file
from podium.workers.local.weights import LocalModel, list_models

app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the models that Podium can run locally, and whether they are downloaded."""
    models = list_models()
    if json:
        echo_json([{**asdict(model), "path": str(model.path)} for model in models])
        return
    for model in models:
        missing = with_program_name("not downloaded; podium models pull NAME")
        state = f"downloaded, {model.path}" if model.present else missing
        details = ", ".join(part for part in (format_megabytes(model.bytes), model.licence) if part)
        echo(to_one_line(f"{model.name}  {model.description} ({details}): {state}"))


@app.command()
def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A name from the list, or hf:owner/repository/file.gguf for a file on the hub.",
        ),
    ],
) -> None:
    """Download a model's weights and verify them."""
    echo(str(asyncio.run(fetch(name))))


async def fetch_weights(
    workers: Iterable[WorkerSettings], conductor: ConductorSettings, *, offline: bool
) -> None:
    """Download the weights of every local model among the workers and of the conductor."""
    for worker in (*workers, conductor.worker):
        for model in worker_weights(worker) if worker is not None else ():
            await fetch(model, offline=offline)
    if conductor.coordinator is not None:
        file = weights_file(read_description(conductor.coordinator).base)
        if file is not None:
            await fetch(file, offline=offline)


def worker_weights(worker: WorkerSettings) -> tuple[str, ...]:
    """Return the weight files a worker needs: its model, and its adapter. What transformers
    downloads by itself is left out."""
    profile = worker.profile
    if profile.provider == "llamacpp":
        adapter = worker.options.get("adapter")
        return (profile.model, adapter) if adapter else (profile.model,)
    file = weights_file(profile.model) if profile.provider == "transformers" else None
    return () if file is None else (file,)


def is_obtainable(model: str) -> bool:
    """True if a model's weights are here or can be downloaded."""
    return weights.find(model).present or not isinstance(parse_source(model), LocalFile)


async def fetch(model: str, *, offline: bool = False) -> Path:
    """Download a model's weights unless they are here; show a progress bar on a terminal."""
    found = weights.find(model)
    if found.present or offline or not is_obtainable(model):
        return await weights.locate(model, offline=offline)
    if found.path.suffix == ".gguf":
        weights.check_openmp()
    path = await _pull(model, found)
    pulled = weights.find(model)
    licence = f"{pulled.licence}; " if pulled.licence else ""
    echo_error(f"{model}: {licence}verified by its sha256; from {pulled.source}")
    return path


async def _pull(model: str, found: LocalModel) -> Path:
    if not is_terminal(sys.stderr):
        echo_error(f"downloading {model} ({format_megabytes(found.bytes)}), once")
        return await weights.pull(model)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(f"downloading {model}, once", total=found.bytes)
        return await weights.pull(
            model, lambda done, total: bar.update(task, completed=done, total=total)
        )
