"""The form of a recipe: no key of it is for nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import podium
import podium_lab
from podium._util.tables import Table
from podium.train.recipe import Recipe
from podium.train.schema import RewardTable

SOURCES = Path(podium.__file__).parent
LAB = Path(podium_lab.__file__).parent
CHECKED_ONLY = {"schema.py", "recipe.py"}
"""Here keys are described and held against each other, which does nothing yet."""

CALLED = {
    "etudes": {"data"},
    "prompt": {"asked"},
    "estimate": {"assumed"},
    "workers": {"asking"},
    "run": {"recipe"},  # `Recipe.output`
    "sft": {"optimiser"},
    "grpo": {"optimiser"},
}
"""What a table is called beside its own name where it is read."""

BY_METHOD = {"share": "second_round_count"}
"""Keys that a method of their own table reads."""


def keys(table: type[Table], name: str = "") -> Iterator[tuple[str, str]]:
    """Every key that is no table, with the name of the table that it is in."""
    for key, field in table.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Table)]
        if not inner:
            yield name, key
        elif inner[0] is not RewardTable:  # it becomes a `Reward` as a whole
            yield from keys(inner[0], key)


@pytest.fixture(scope="module")
def read() -> set[tuple[str, str]]:
    """Every attribute that a training reads, with what it is read of."""
    rooms = (SOURCES / "train", LAB)
    files = [file for room in rooms for file in room.rglob("*.py") if file.name not in CHECKED_ONLY]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
                of = node.value
                owner = of.attr if isinstance(of, ast.Attribute) else of.id
                found.add((owner.lstrip("_"), node.attr))
    return found


@pytest.mark.parametrize("dotted", sorted(".".join(pair) for pair in keys(Recipe)))
def test_a_training_reads_every_key_of_its_recipe(dotted: str, read: set[tuple[str, str]]) -> None:
    table, key = dotted.split(".")
    key = BY_METHOD.get(key, key)
    assert read & {(name, key) for name in {table} | CALLED.get(table, set())}
