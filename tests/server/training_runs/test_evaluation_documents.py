from __future__ import annotations

import json
from pathlib import Path

from podium.server.training_runs import Artifact, evaluation_document


def test_an_evaluation_in_progress_reports_how_far_it_is(tmp_path: Path) -> None:
    exhibit = Artifact("mine", "mine", "evaluation", tmp_path)
    (tmp_path / "evaluation.json").write_text('{"suite": "etudes", "limit": 40, "seed": 7}')
    (tmp_path / "ideal.jsonl").write_text('{"strategy": "ideal"}\n' * 3 + '{"str')
    document = evaluation_document(exhibit)
    assert not document["is_finished"]
    assert (document["suite"], document["limit"], document["rows"]) == ("etudes", 40, [])
    assert document["samples"] == {"ideal": 3}
    assert document["updated_at"] is not None


def test_a_finished_one_has_its_table_with_intervals(tmp_path: Path) -> None:
    exhibit = Artifact("mine", "mine", "evaluation", tmp_path, tmp_path / "report.html")
    row = {"strategy": "ideal", "accuracy": 0.3, "interval": [0.2, 0.5], "by_kind": {}, "note": ""}
    summary = {"suite": "etudes", "n": 40, "rows": [row, "odd"], "problems": [{"count": 1}]}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    document = evaluation_document(exhibit)
    assert (document["is_finished"], document["has_report"], document["n"]) == (True, True, 40)
    assert document["rows"][0] == {
        "strategy": "ideal", "accuracy": 0.3, "interval": [0.2, 0.5], "note": "", "by_kind": {}
    }  # fmt: skip
    assert document["rows"][1:] == []
    assert document["problems"] == [{"count": 1}]


def test_one_that_stopped_at_its_cap_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"rows": {}, "stopped": {"cap_usd": 1}}')
    document = evaluation_document(Artifact("mine", "mine", "evaluation", tmp_path))
    assert (document["is_finished"], document["rows"]) == (False, [])
