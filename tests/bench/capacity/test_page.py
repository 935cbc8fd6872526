from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.capacity.report import update_page
from benchmarks.report import NONE_YET
from podium.store.sql.database import CONNECTIONS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "benchmarks" / "capacity" / "README.md"
RESULTS = ROOT / "results" / "capacity.json"


def document(**changed: Any) -> dict[str, Any]:
    def row(group: str, load: str, steps: int, database: Any) -> dict[str, Any]:
        fields = {"replicas": 1, "processes": 1, "in_flight": 32, "per_second": 812.34}
        return {
            **fields,
            "group": group,
            "load": load,
            "steps": steps,
            "cpu_ms": 2.0,
            "database": database,
        }

    base = {"commits": 4.0, "rows": 9.0, "wal_bytes": 2048, "cpu_ms": 0.5, "connections": 15}
    return {
        "rows": [
            row("one process", "a run of one step", 1, None),
            row("one replica over Postgres", "a run of one step", 1, base),
        ],
        "memory": {
            "idle_bytes": 80 * 2**20,
            "in_flight": 1000,
            "held_bytes": 0,
            "per_run_bytes": 51200,
        },
        "commits_per_second": 6000.0,
        "cpus": 2,
        "python": "3.11",
        "load_average": 0.2,
        "quick": False,
        **changed,
    }


def made_of(tmp_path: Path, found: dict[str, Any]) -> str:
    file = tmp_path / "capacity.json"
    file.write_text(json.dumps(found), "utf-8")
    return update_page(PAGE.read_text("utf-8"), file)


def test_results_are_listed_row_by_row(tmp_path: Path) -> None:
    page = made_of(tmp_path, document())
    assert "| one process | a run of one step | 1 | 812 | 2.00 |  |  |  |  |  |" in page
    over = "| one replica over Postgres | a run of one step | 1 | 812 | 2.00 |"
    assert f"{over} 4.0 | 9.0 | 2.0 | 0.50 | 15 |" in page
    assert "holds 80 MiB with nothing to do, and 50 KiB more for each run" in page


def test_the_size_of_a_deployment_follows_from_one_replica(tmp_path: Path) -> None:
    page = made_of(tmp_path, document())
    assert "| a run of one step: processes, a core each | 2 | 2 | 4 |" in page
    most = f"{2 * CONNECTIONS} | {2 * CONNECTIONS} | {4 * CONNECTIONS}"
    assert f"| a run of one step: connections at most | {most} |" in page
    assert "| a run of one step: MiB of memory | 160 | 210 | 810 |" in page
    assert "| a run of one step: rows written | 90 | 900 | 9,000 |" in page
    assert "the commits of 1,500 a second, which is what 3.0 processes carry" in page


def test_the_model_is_checked_by_what_several_replicas_took(tmp_path: Path) -> None:
    found = document()
    several = {**found["rows"][1], "group": "replicas over Postgres", "cpu_ms": 2.5}
    page = made_of(tmp_path, document(rows=[*found["rows"], several | {"processes": 3}]))
    assert "at 812 a second, 3 replicas took 2.03 cores (the model: 1.62)" in page


def test_without_postgres_the_page_has_no_figures_for_replicas(tmp_path: Path) -> None:
    rows = document()["rows"][:1]
    page = made_of(tmp_path, document(rows=rows, commits_per_second=None))
    assert "Without Postgres, several machines were not measured." in page
    assert "pgbench`, takes" not in page


def test_the_page_has_the_figures_of_the_results_that_are_there(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    assert update_page(page, RESULTS) == page
    assert NONE_YET in update_page(page, tmp_path / "none.json")
