from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.support import ensemble_of, oracle_cases
from podium.errors import UsageError
from podium.etudes.perfect import oracle_workers
from podium.evals.evaluation import Evaluation
from podium.evals.written import SampleFiles, write_json
from podium.run import load


async def test_every_sample_is_a_line_with_its_run_in_the_file_of_its_strategy(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "new" / "samples"
    with SampleFiles(directory) as files:
        evaluation = Evaluation(
            ensemble_of(oracle_workers()),
            oracle_cases(3),
            seed=7,
            concurrency=2,
            keep=files.keep,
        )
        await evaluation.row("ideal")
        await evaluation.row("single:words")
        written = (directory / "ideal.jsonl").read_text("utf-8")
        assert len(written.splitlines()) == 3  # already, not only at the end
    assert sorted(path.name for path in directory.iterdir()) == [
        "ideal.jsonl",
        "single-words.jsonl",
    ]
    for line in map(json.loads, written.splitlines()):
        assert line["right"] is True
        assert load(line["run"]).answer is not None


def test_earlier_results_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "ideal.jsonl").write_text("precious", "utf-8")
    with pytest.raises(UsageError, match="not an empty directory; name a new one"):
        SampleFiles(tmp_path)
    assert (tmp_path / "ideal.jsonl").read_text("utf-8") == "precious"


def test_a_file_is_written_whole_into_a_directory_that_is_made(tmp_path: Path) -> None:
    write_json(tmp_path / "results" / "table.json", {"étude": 1})
    assert json.loads((tmp_path / "results" / "table.json").read_text("utf-8")) == {"étude": 1}
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["table.json"]
