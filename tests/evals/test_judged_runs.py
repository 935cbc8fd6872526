from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from podium.core.errors import UsageError
from podium.core.run import Run
from podium.core.task import worker_outcome
from podium.evals.log import FAILED_SAMPLE, EvalLogWriter, read_judged_runs
from podium.evals.sample import Sample
from support.runs_on_record import kept_run


def sample(task: str, *, right: bool, error: str | None = None) -> Sample:
    return Sample(
        task=task,
        kind="",
        skills=None,
        right=right,
        valid=True,
        workers=("solver",),
        shape="single",
        worker_tokens=None,
        orchestration_tokens=None,
        seconds=1.0,
        error=error,
    )


def written(directory: Path, *samples: tuple[Sample, Run]) -> Path:
    with EvalLogWriter(directory) as files:
        files.resume({"suite": "mine"})
        for item, run in samples:
            files.write_sample("single:solver", item, run)
    return directory


def test_every_sample_is_a_run_with_its_reward_but_those_that_failed(tmp_path: Path) -> None:
    directory = written(
        tmp_path / "mine",
        (sample("a", right=True), kept_run(0)),
        (sample("b", right=False), kept_run(1)),
        (sample("c", right=False, error="solver is away"), kept_run(2)),
        (sample("d", right=False), kept_run(3, status="exhausted", answer=None)),
    )
    skipped = Counter[str]()
    judged = list(read_judged_runs(directory, skipped))
    assert [(item.reward, item.run) for item in judged] == [(1.0, kept_run(0)), (0.0, kept_run(1))]
    assert skipped == {FAILED_SAMPLE: 2}
    outcome = worker_outcome(judged[0])
    assert outcome is not None
    assert outcome.source == "evaluation:mine/single:solver"


def test_a_line_that_was_cut_off_is_none_and_one_that_is_no_sample_is_an_error(
    tmp_path: Path,
) -> None:
    directory = written(tmp_path / "mine", (sample("a", right=True), kept_run(0)))
    file = directory / "single-solver.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:50])
    assert len(list(read_judged_runs(directory, Counter()))) == 1
    for wrong, complaint in (
        (b"{}\n", "line 2: expected a sample"),
        (whole.replace(b'"run": ', b'"ran": '), "line 2: the sample's run cannot be read"),
    ):
        file.write_bytes(whole + wrong)
        with pytest.raises(UsageError, match=complaint):
            list(read_judged_runs(directory, Counter()))


def test_a_directory_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no evaluation"):
        list(read_judged_runs(tmp_path, Counter()))
