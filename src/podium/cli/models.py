"""Fetching local weights, with something to look at while it takes."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.formatting import megabytes, one_line
from podium.cli.output import as_called, complain, is_drawable, say, say_json
from podium.conductors.evolved.description import read_description
from podium.config import Settings, WorkerSettings
from podium.workers.local import weights
from podium.workers.local.sources import LocalFile, parse_source, weights_file
from podium.workers.local.weights import LocalModel, list_models


async def fetch_weights(settings: Settings, *, offline: bool) -> None:
    """Have the weights of every local model of the pool, and of the conductor, on this machine."""
    for worker in (*settings.workers, settings.conductor.worker):
        for model in weights_of(worker) if worker is not None else ():
            await fetch(model, offline=offline)
    if settings.conductor.coordinator is not None:
        file = weights_file(read_description(settings.conductor.coordinator).base)
        if file is not None:
            await fetch(file, offline=offline)


def weights_of(worker: WorkerSettings) -> tuple[str, ...]:
    """The weights that a worker needs on this machine: its model, and its adapter if it has one
    that is a file. What transformers reads in its own way is not Podium's to fetch."""
    profile = worker.profile
    if profile.provider == "llamacpp":
        adapter = worker.options.get("adapter")
        return (profile.model, adapter) if adapter else (profile.model,)
    file = weights_file(profile.model) if profile.provider == "transformers" else None
    return () if file is None else (file,)


def can_be_had(model: str) -> bool:
    """Whether a model's weights are here, or can be fetched; a file of one's own cannot."""
    return weights.find(model).present or not isinstance(parse_source(model), LocalFile)


async def fetch(model: str, *, offline: bool = False) -> Path:
    """Have a model's weights on this machine: a bar on a terminal, else one line."""
    found = weights.find(model)
    if found.present or offline or not can_be_had(model):
        return await weights.locate(model, offline=offline)
    if not is_drawable(sys.stderr):
        complain(f"fetching {model} ({megabytes(found.bytes)}), once")
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
        task = bar.add_task(f"fetching {model}, once", total=found.bytes)
        return await weights.pull(
            model, lambda done, total: bar.update(task, completed=done, total=total)
        )


app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)


@app.command("list")
def list_(json: options.JsonList = False) -> None:
    """List the models that Podium can run by itself, and whether their weights are here."""
    models = list_models()
    if json:
        say_json([_document(model) for model in models])
        return
    for model in models:
        where = (
            f"here, {model.path}"
            if model.present
            else as_called("not here; podium models pull NAME")
        )
        details = ", ".join(part for part in (megabytes(model.bytes), model.licence) if part)
        say(one_line(f"{model.name}  {model.description} ({details}): {where}"))


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
    """Fetch a model's weights, once, and check them."""
    say(str(asyncio.run(fetch(name))))


def _document(model: LocalModel) -> dict[str, Any]:
    return {**asdict(model), "path": str(model.path)}
