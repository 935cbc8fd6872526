"""Fetching local weights, with something to look at while it takes."""

from __future__ import annotations

import sys
from pathlib import Path

from podium.cli.output import complain, is_drawable
from podium.cli.text import megabytes
from podium.config import Settings
from podium.local import weights


async def fetch_weights(settings: Settings, *, offline: bool) -> None:
    """Have the weights of every local model of the pool, and of the conductor, on this machine."""
    for worker in (*settings.workers, settings.conductor.worker):
        if worker is not None and worker.profile.provider == "llamacpp":
            adapter = worker.options.get("adapter")
            for model in (worker.profile.model, *([adapter] if adapter else [])):
                await fetch(model, offline=offline)


async def fetch(model: str, *, offline: bool = False) -> Path:
    """Have a model's weights on this machine: a bar on a terminal, else one line."""
    found = weights.find(model)
    if found.present or offline:
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
