from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.conductors.plan import schema
from podium.core.pool import Pool

PUBLISHED = Path(__file__).parents[3] / "docs" / "workflow.schema.json"

PORTABLE = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf"),
    "description",
}
"""What the structured output of every vendor understands."""


def objects(part: object) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema, itself included."""
    if isinstance(part, dict):
        yield part
        for key, inner in part.items():
            children = inner.values() if key == "properties" else (inner,)
            for child in children:
                yield from objects(child)
    elif isinstance(part, list):
        for inner in part:
            yield from objects(inner)


def test_the_published_schema_is_the_one_that_the_command_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-m", "podium.conductors.plan"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert printed.stdout == PUBLISHED.read_text(encoding="utf-8")
    assert json.loads(printed.stdout) == schema()


@pytest.mark.parametrize("masked", [False, True])
def test_the_schema_for_models_keeps_to_what_every_vendor_accepts(masked: bool, pool: Pool) -> None:
    for part in objects(schema(replace(pool, mask_names=masked))):
        assert part.keys() <= PORTABLE
        if part["type" if "type" in part else "anyOf"] == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])


def test_the_schema_for_models_names_the_workers_of_the_pool(pool: Pool) -> None:
    assert worker(schema(pool)) == list(pool.names)


def test_masked_names_stay_masked_in_the_schema(pool: Pool) -> None:
    masked = schema(replace(pool, mask_names=True))
    assert worker(masked) == [0, 1, 2, 3]
    assert "gpt-5" not in json.dumps(masked)


def worker(document: dict[str, Any]) -> list[object]:
    names: list[object] = document["properties"]["steps"]["items"]["properties"]["worker"]["enum"]
    return names


def test_models_write_steps_alone_so_that_the_first_can_begin_early(pool: Pool) -> None:
    assert list(schema(pool)["properties"]) == schema(pool)["required"] == ["steps"]


def test_the_number_of_steps_is_in_the_schema(pool: Pool) -> None:
    assert schema(max_steps=3)["properties"]["steps"]["maxItems"] == 3
    assert "At most 3" in schema(pool, max_steps=3)["properties"]["steps"]["description"]


def test_a_workflow_file_needs_no_reasoning() -> None:
    assert schema()["required"] == ["steps"]
