"""The page on tasks: its examples load, and its tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.tasks import BENCHMARKS, GRADERS, NAMES, load_suite

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "tasks.md").read_text("utf-8")


@pytest.mark.parametrize(("language", "count"), [("jsonl", 4), ("csv", 3)])
def test_the_examples_of_own_tasks_load(language: str, count: int, tmp_path: Path) -> None:
    (example,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / f"mine.{language}"
    path.write_text(example, "utf-8")
    assert len(load_suite(path)) == count


def test_every_grader_and_every_suite_with_its_splits_is_reported() -> None:
    result = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]*) \|", PAGE, re.MULTILINE))
    assert {*GRADERS, *NAMES} <= result.keys()
    for name, benchmark in BENCHMARKS.items():
        assert re.findall(r"`(\w+)`", result[name]) == list(benchmark.splits)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks_are_listed_with_their_hub_and_local_names(name: str) -> None:
    (line,) = re.findall(rf"^\| `{name}` \| `.*$", PAGE, re.MULTILINE)
    for split in BENCHMARKS[name].splits.values():
        assert split.hub is None or f"`{split.hub.name}`" in line
        assert any(f"`{file}`" in line for file in split.local.names)
