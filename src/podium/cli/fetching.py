"""Fetching local weights, with something to look at while it takes."""

from __future__ import annotations

import sys
from pathlib import Path

from podium.cli.output import complain, is_drawable
from podium.cli.wording import megabytes
from podium.conductors.evolved.description import read_description
from podium.config import Settings, WorkerSettings
from podium.workers.local import weights
from podium.workers.local.sources import LocalFile, source, weights_file


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
    return weights.find(model).present or not isinstance(source(model), LocalFile)


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
