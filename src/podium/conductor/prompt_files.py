"""The files in `prompts/`, which hold the words of every prompt: read once, filled in one pass."""

from __future__ import annotations

from functools import cache
from importlib import resources
from string import Template


def filled(name: str, **values: str) -> str:
    """The named prompt file with its placeholders filled in, in one pass."""
    return Template(prompt_text(name)).substitute(values)


@cache
def prompt_text(name: str) -> str:
    """What the named prompt file says."""
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()
