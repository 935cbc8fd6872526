from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.support import MakePool, Podium

RULES = '[conductor]\nkind = "rules"\n'


@pytest.fixture
def measured(podium: Podium, make_pool: MakePool, tmp_path: Path) -> tuple[Path, Path]:
    """Two evaluations of the same three tasks, one of which the first alone gets right."""
    directories = []
    for name, reply in (("before", "42"), ("after", "41")):
        tasks = tmp_path / "tasks.jsonl"
        lines = [
            {"id": f"t{n}", "question": f"{n} + 1?", "answer": answer, "grader": "number"}
            for n, answer in enumerate(("42", "1", "2"))
        ]
        tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        pool = make_pool({"solver": reply, "other": "7"}, head=RULES)
        directories.append(tmp_path / name)
        ended = podium(
            *("eval", "run", tasks, "--pool", pool, "--output", directories[-1]),
            *("--strategy", "single:solver,best-single"),
        )
        assert ended.code == 0, ended.err
    return directories[0], directories[1]


def test_evaluations_become_a_page(
    podium: Podium, measured: tuple[Path, Path], tmp_path: Path
) -> None:
    ended = podium("eval", "report", measured[0], "--output", tmp_path / "report")
    assert ended.code == 0, ended.err
    assert ended.out == f"{tmp_path / 'report' / 'report.html'}\n"
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "best-single" in page
    assert "<li>pool pool.toml</li>" in page


def test_a_report_lies_in_its_evaluation_and_replaces_no_other(
    podium: Podium, measured: tuple[Path, Path]
) -> None:
    for directory in measured:
        assert podium("eval", "report", directory).out.startswith(f"{directory / 'report'}")
    assert all((directory / "report" / "report.html").is_file() for directory in measured)


def test_changed_tasks_are_named(podium: Podium, measured: tuple[Path, Path]) -> None:
    ended = podium("eval", "compare", *measured, "--strategy", "single:solver")
    assert ended.code == 0, ended.err
    assert "lost by the second: t0" in ended.out


def test_a_directory_that_is_no_evaluation_is_named(podium: Podium, tmp_path: Path) -> None:
    ended = podium("eval", "report", tmp_path)
    assert ended.code == 2
    assert "has no samples; name a directory that podium eval run --output wrote" in ended.err
