from __future__ import annotations

from pathlib import Path

import pytest

from evals.evaluations import Item, write_evaluation
from podium.core.errors import UsageError
from podium.evals.log import read_eval_log

ITEMS = [Item("x"), Item("y"), Item("z")]
ANSWERS = {
    "conductor": [(ITEMS[0], "42"), (ITEMS[1], "42"), (ITEMS[2], "7")],
    "single:gpt-5": [(ITEMS[0], "42"), (ITEMS[1], "1"), (ITEMS[2], "2")],
    "single:gemma-3-27b": [(ITEMS[0], "1"), (ITEMS[1], "1"), (ITEMS[2], "2")],
}
CANDIDATES = {"single:gemma-3-27b": 0.0, "single:gpt-5": 0.333333}
ROWS = [
    {"strategy": "conductor", "note": ""},
    {"strategy": "best-single", "note": "the best of 2", "candidates": CANDIDATES},
]


async def test_an_evaluation_is_read_back_as_its_table_had_it(tmp_path: Path) -> None:
    measured = read_eval_log(await write_evaluation(tmp_path / "a", ANSWERS, suite="s", rows=ROWS))
    assert (measured.suite, measured.tasks, measured.is_finished) == ("s", 3, True)
    assert [row.strategy for row in measured.rows] == ["conductor", "best-single"]
    assert measured.row("conductor").outcomes == {"x": 1.0, "y": 1.0, "z": 0.0}
    assert {row.strategy for row in measured.all_rows} == set(ANSWERS)


async def test_a_chosen_row_has_the_samples_of_its_source_row(
    tmp_path: Path,
) -> None:
    measured = read_eval_log(await write_evaluation(tmp_path / "a", ANSWERS, rows=ROWS))
    best = measured.row("best-single")
    assert best.samples == measured.row("single:gpt-5").samples
    assert (best.note, best.candidates) == ("the best of 2", CANDIDATES)
    assert measured.answer("best-single", best.samples[2]) == "2"


async def test_the_run_behind_a_sample_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    measured = read_eval_log(await write_evaluation(tmp_path / "a", ANSWERS, rows=ROWS))
    for row in measured.all_rows:
        for sample in row.samples:
            run = measured.run(row.strategy, sample)
            assert run.id == f"run_{sample.task}"
            answered = {item.id: answer for item, answer in ANSWERS[row.strategy]}
            assert run.answer == answered[sample.task]


async def test_an_evaluation_that_was_cut_off_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    directory = await write_evaluation(tmp_path / "cut", ANSWERS)
    file = directory / "conductor.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    measured = read_eval_log(directory)
    assert not measured.is_finished
    assert measured.suite == "cut"
    assert measured.row("conductor").outcomes == {"x": 1.0, "y": 1.0}
    assert {row.strategy for row in measured.rows} == set(ANSWERS)


async def test_repeats_that_the_table_was_made_without_are_not_read(tmp_path: Path) -> None:
    directory = await write_evaluation(tmp_path / "a", ANSWERS, rows=ROWS, repeats=1)
    file = directory / "conductor.jsonl"
    again = file.read_text("utf-8").replace('"repeat": 0', '"repeat": 1')
    file.write_text(file.read_text("utf-8") + again.replace('"right": true', '"right": false'))
    assert len(read_eval_log(directory).row("conductor").samples) == 3
    first_time = read_eval_log(await write_evaluation(tmp_path / "b", ANSWERS, rows=ROWS))
    assert (
        read_eval_log(directory).row("conductor").accuracy == first_time.row("conductor").accuracy
    )


@pytest.mark.parametrize("line", ['{"task": "x", "right": tr', '{"task": "x"}', "[]"])
async def test_a_line_that_is_no_sample_is_named(tmp_path: Path, line: str) -> None:
    directory = await write_evaluation(tmp_path / "a", ANSWERS)
    with (directory / "conductor.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(UsageError, match=r"conductor.jsonl, line 4: expected a sample"):
        read_eval_log(directory)


async def test_an_unknown_strategy_lists_the_known_ones(tmp_path: Path) -> None:
    measured = read_eval_log(await write_evaluation(tmp_path / "a", ANSWERS))
    with pytest.raises(UsageError, match="has samples of conductor, .* none of 'moa'"):
        measured.row("moa")


def test_a_directory_without_samples_is_no_evaluation(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="has no samples; name a directory"):
            read_eval_log(directory)
