"""`podium models`: the weights of local models on this machine."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.fetching import fetch
from podium.cli.output import as_called, say, say_json
from podium.cli.wording import megabytes, one_line
from podium.workers.local.weights import LocalModel, list_models

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
