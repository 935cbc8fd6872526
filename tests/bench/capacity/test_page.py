from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.capacity.measure import as_text, size_deployments
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


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")]


def test_results_are_listed_row_by_row() -> None:
    text = as_text(document())
    _, _, one, over, *_ = map(cells, text.splitlines())
    assert one == [*("one process", "a run of one step", "1", "812", "2.00"), *[""] * 5]
    assert over[3:] == ["812", "2.00", "4.0", "9.0", "2.0", "0.50", "15"]
    assert "holds 80 MiB with nothing to do, and 50 KiB more for each run" in text


def test_the_size_of_a_deployment_follows_from_one_replica() -> None:
    text = size_deployments(document())
    found = {name: sizes for name, *sizes in map(cells, text.splitlines())}
    assert found["a run of one step: processes, a core each"] == ["2", "2", "4"]
    most = [str(processes * CONNECTIONS) for processes in (2, 2, 4)]
    assert found["a run of one step: connections at most"] == most
    assert found["a run of one step: MiB of memory"] == ["160", "210", "810"]
    assert found["a run of one step: rows written"] == ["90", "900", "9,000"]
    assert "the commits of 1,500 a second, which is what 3.0 processes carry" in text


def test_without_postgres_there_are_no_figures_for_replicas() -> None:
    found = document(rows=document()["rows"][:1], commits_per_second=None)
    assert size_deployments(found) == ""
    assert "pgbench`, takes" not in as_text(found)


def test_the_page_has_the_figures_of_the_results_that_are_there() -> None:
    page, results = PAGE.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8"))
    assert as_text(results) in page
    assert size_deployments(results) in page
