"""The words around a benchmark's question: the text files in `prompts/`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template


def prompt(name: str, **texts: str) -> str:
    """The prompt of that name, with these texts in it."""
    return _template(name).substitute(texts).strip()


@cache
def _template(name: str) -> Template:
    return Template(
        resources.files("podium.tasks").joinpath("prompts", f"{name}.txt").read_text("utf-8")
    )
