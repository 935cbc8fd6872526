from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.support import case_of, oracle_cases, setup_of
from podium.core.errors import Unavailable, UsageError
from podium.core.run import load
from podium.evals.evaluation import Evaluation
from podium.evals.log import EvalLogWriter, samples_path, write_json
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.workers import oracle_workers


async def test_every_sample_is_a_line_with_its_run_in_the_file_of_its_strategy(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "new" / "samples"
    with EvalLogWriter(directory) as files:
        evaluation = Evaluation(
            setup_of(oracle_workers()),
            oracle_cases(3),
            seed=7,
            concurrency=2,
            on_sample=files.write_sample,
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
    with pytest.raises(UsageError, match="neither empty nor an evaluation that can be resumed"):
        EvalLogWriter(tmp_path)
    assert (tmp_path / "ideal.jsonl").read_text("utf-8") == "precious"


async def test_half_of_a_surrogate_pair_in_a_question_ends_no_evaluation(tmp_path: Path) -> None:
    worker = ScriptedWorker("solver", "42")
    case = case_of("What is \ud83d?", "42", [worker])
    with EvalLogWriter(tmp_path / "new") as files:
        evaluation = Evaluation(
            setup_of([worker]), [case], seed=7, concurrency=1, on_sample=files.write_sample
        )
        await evaluation.row("single:solver")
    line = json.loads((tmp_path / "new" / "single-solver.jsonl").read_text("utf-8"))
    assert load(line["run"]).question == case.task.question
    write_json(tmp_path / "half.json", {"question": "\ud83d"})
    assert json.loads((tmp_path / "half.json").read_text("utf-8")) == {"question": "\ud83d"}


def test_a_file_is_written_whole_into_a_directory_that_is_made(tmp_path: Path) -> None:
    write_json(tmp_path / "results" / "table.json", {"étude": 1})
    assert json.loads((tmp_path / "results" / "table.json").read_text("utf-8")) == {"étude": 1}
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["table.json"]


MANIFEST = {"suite": "etudes", "limit": 3, "seed": 7}


async def two_samples(directory: Path) -> list[str]:
    """The lines of an evaluation of two tasks, the first of which failed."""
    worker = ScriptedWorker("ann", [Unavailable("gone"), "b"])
    cases = [case_of("a?", "a", [worker]), case_of("b?", "b", [worker])]
    with EvalLogWriter(directory) as files:
        files.resume(MANIFEST)
        evaluation = Evaluation(
            setup_of([worker]), cases, seed=0, concurrency=1, on_sample=files.write_sample
        )
        await evaluation.row("single:ann")
    return (directory / "single-ann.jsonl").read_text("utf-8").splitlines()


async def test_the_same_evaluation_continues_from_the_samples_that_there_are(
    tmp_path: Path,
) -> None:
    await two_samples(tmp_path)
    with EvalLogWriter(tmp_path) as files:
        files.resume({**MANIFEST})
        known = files.known("single:ann")
        assert files.known("majority") == {}
    assert [
        (known_try.task, known_try.repeat, sample.right) for known_try, sample in known.items()
    ] == [
        ("a?", 0, False),
        ("b?", 0, True),
    ]


async def test_a_truncated_line_is_dropped_and_the_next_one_starts_fresh(
    tmp_path: Path,
) -> None:
    lines = await two_samples(tmp_path)
    path = tmp_path / "single-ann.jsonl"
    path.write_bytes(f"{lines[0]}\n{lines[1][:40]}é".encode()[:-1])
    with EvalLogWriter(tmp_path) as files:
        assert [known_try.task for known_try in files.known("single:ann")] == ["a?"]
    assert path.read_text("utf-8") == f"{lines[0]}\n"


async def test_failed_samples_can_be_run_again(tmp_path: Path) -> None:
    lines = await two_samples(tmp_path)
    with EvalLogWriter(tmp_path) as files:
        assert [known_try.task for known_try in files.known("single:ann", retry_errors=True)] == [
            "b?"
        ]
    assert (tmp_path / "single-ann.jsonl").read_text("utf-8") == f"{lines[1]}\n"


async def test_a_line_that_is_no_sample_is_named(tmp_path: Path) -> None:
    lines = await two_samples(tmp_path)
    (tmp_path / "single-ann.jsonl").write_text(f"{lines[0]}\n{{}}\n", "utf-8")
    with (
        EvalLogWriter(tmp_path) as files,
        pytest.raises(UsageError, match="line 2: expected a sam"),
    ):
        files.known("single:ann")


async def test_a_line_that_says_no_strategy_is_of_the_one_that_its_file_is_named_by(
    tmp_path: Path,
) -> None:
    lines = [json.loads(line) for line in await two_samples(tmp_path)]
    of_old = [{key: line[key] for key in line if key != "strategy"} for line in lines]
    text = "".join(f"{json.dumps(line)}\n" for line in of_old)
    (tmp_path / "conductor.jsonl").write_text(text, "utf-8")
    with EvalLogWriter(tmp_path) as files:
        assert [known.task for known in files.known("conductor")] == ["a?", "b?"]


async def test_another_evaluation_is_not_mixed_into_this_one(tmp_path: Path) -> None:
    await two_samples(tmp_path)
    complaint = "its limit is 3, expected 4; name a new"
    with EvalLogWriter(tmp_path) as files, pytest.raises(UsageError, match=complaint):
        files.resume({**MANIFEST, "limit": 4})


async def test_strategies_with_colliding_file_names_are_kept_apart(tmp_path: Path) -> None:
    workers = [ScriptedWorker("a/b", "a"), ScriptedWorker("a b", "no")]
    cases = [case_of("a?", "a", workers)]
    with EvalLogWriter(tmp_path) as files:
        files.resume(MANIFEST)
        evaluation = Evaluation(
            setup_of(workers),
            cases,
            seed=0,
            concurrency=1,
            on_sample=files.write_sample,
            known=files.known,
        )
        for worker in ("a/b", "a b"):
            await evaluation.row(f"single:{worker}")
    assert {samples_path(tmp_path, name).name for name in ("single:a/b", "single:a b")} == {
        "single-a-b.jsonl"
    }
    with EvalLogWriter(tmp_path) as files:
        known = [files.known(f"single:{worker}") for worker in ("a/b", "a b", "a-b")]
    assert [[sample.right for sample in samples.values()] for samples in known] == [
        [True],
        [False],
        [],
    ]


def test_a_pool_that_is_called_otherwise_is_no_other_evaluation(tmp_path: Path) -> None:
    with EvalLogWriter(tmp_path / "out") as files:
        files.resume(MANIFEST, labels={"pool": "pool.toml"})
        begun = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))
        files.resume(MANIFEST, labels={"pool": "renamed.toml"})
    assert begun["pool"] == "pool.toml"


def test_an_evaluation_from_before_pools_were_written_down_continues(tmp_path: Path) -> None:
    with EvalLogWriter(tmp_path / "out") as files:
        write_json(tmp_path / "out" / "evaluation.json", {"version": 1, **MANIFEST})
        files.resume(MANIFEST, labels={"pool": "pool.toml"})
    begun = json.loads((tmp_path / "out" / "evaluation.json").read_text("utf-8"))
    assert begun == {"version": 1, **MANIFEST}


@pytest.mark.parametrize("damaged", ["{", "[]", "[" * 100_000], ids=["cut off", "list", "deep"])
def test_an_evaluation_that_is_damaged_is_reported_with_what_to_do(
    tmp_path: Path, damaged: str
) -> None:
    (tmp_path / "evaluation.json").write_text(damaged, "utf-8")
    words = r"evaluation\.json: .*; name another directory"
    with EvalLogWriter(tmp_path) as files, pytest.raises(UsageError, match=words):
        files.resume({"suite": "etudes"})


def test_samples_of_a_changed_strategy_file_are_not_reused(tmp_path: Path) -> None:
    with EvalLogWriter(tmp_path / "out") as files:
        files.resume(MANIFEST, {"router:a.json": "one"})
    with EvalLogWriter(tmp_path / "out") as files:
        files.resume(MANIFEST, {"router:a.json": "one", "mine.py:answer": "two"})
    with EvalLogWriter(tmp_path / "out") as files:
        files.resume(MANIFEST)
        for changed in ("router:a.json", "mine.py:answer"):
            with pytest.raises(UsageError, match=f"samples of '{changed}' from before"):
                files.resume(MANIFEST, {changed: "three"})


def test_an_evaluation_that_waited_for_another_does_not_take_its_directory(
    tmp_path: Path,
) -> None:
    with EvalLogWriter(tmp_path / "new") as first, EvalLogWriter(tmp_path / "new") as second:
        first.resume({"seed": 1})
        with pytest.raises(UsageError, match="holds another evaluation: its seed is 1"):
            second.resume({"seed": 2})
