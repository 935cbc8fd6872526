from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cli.support import MakePool, Podium
from podium.store import open_store
from support.runs_on_record import kept_run


@pytest.fixture
def asked(podium: Podium, make_pool: MakePool) -> str:
    """The id of a run in the store, which was answered with 42."""
    run: str = podium("ask", "--json", "--pool", make_pool(), "--tier", "mini", "How many?").json[
        "run_id"
    ]
    return run


def test_a_person_gives_feedback_and_withdraws_it(podium: Podium, asked: str) -> None:
    assert podium("runs", "feedback", "last").out == f"run {asked} has no feedback\n"
    given = podium("runs", "feedback", "last", "0.5", "--comment", "Too short.")
    assert given.out == f"{asked}: 0.5: Too short.\n"
    assert podium("runs", "feedback", asked, "--json").json["score"] == 0.5
    assert podium("runs", "feedback", asked, "--withdraw").out == f"{asked}: feedback withdrawn\n"
    again = podium("runs", "feedback", asked, "--withdraw")
    assert (again.code, "has no feedback" in again.complaint) == (2, True)
    assert podium("runs", "feedback", asked, "1", "--withdraw").code == 2
    for score in ("2", "nan"):
        refused = podium("runs", "feedback", asked, score)
        assert refused.code == 2
        assert f"expected a number from 0 to 1, got {score}" in refused.complaint
    assert podium("runs", "feedback", asked, "--answer", "43").code == 2


def test_a_word_on_the_run_of_a_key_is_on_record(podium: Podium, asked: str) -> None:
    async def keep() -> None:
        store = await open_store()
        await store.finish(kept_run(owner="key_ada"))
        await store.close()

    asyncio.run(keep())
    for run_id in (asked, kept_run().id):
        podium("runs", "feedback", run_id, "0")
        podium("runs", "feedback", run_id, "--withdraw")
        nothing_left = podium("runs", "feedback", run_id, "--withdraw")
        assert nothing_left.code == 2  # and what was not done is not on record
    entries = podium("audit", "list", "--json").json
    assert [(item["action"], item["subject"], item["details"]) for item in entries] == [
        ("feedback withdrawn", kept_run().id, {"owner": "key_ada"}),
        ("feedback given", kept_run().id, {"owner": "key_ada"}),
    ]


def test_the_answer_that_would_have_been_right_is_shown_with_the_run(
    podium: Podium, asked: str
) -> None:
    assert "feedback" not in podium("runs", "show", asked).out
    assert podium("runs", "show", asked, "--json").json["feedback"] is None
    said = "0: Off by one.; correct answer: 43"
    given = podium("runs", "feedback", asked, "0", "--comment", "Off by one.", "--answer", "43")
    assert given.out == f"{asked}: {said}\n"
    assert f"\nfeedback: {said}\n" in podium("runs", "show", asked).out
    document = podium("runs", "feedback", asked, "--json").json
    assert (document["score"], document["answer"], "task" in document) == (0, "43", False)
    assert podium("runs", "show", asked, "--json").json["feedback"] == document


def test_no_more_is_kept_of_a_persons_words_than_by_the_api(podium: Podium, asked: str) -> None:
    long = podium("runs", "feedback", asked, "0", "--answer", "x" * 2001)
    assert (long.code, "--answer has 2,001 characters, the limit is 2,000" in long.complaint) == (
        2,
        True,
    )
    long = podium("runs", "feedback", asked, "0", "--comment", "x" * 10001)
    assert (
        long.code,
        "--comment has 10,001 characters, the limit is 10,000" in long.complaint,
    ) == (2, True)
    assert podium("runs", "feedback", asked, "0", "--answer", "x" * 2000).code == 0


def test_runs_are_graded_by_a_file_of_tasks(podium: Podium, asked: str) -> None:
    task = {"question": "How many?", "answer": "42", "grader": "number"}
    Path("tasks.jsonl").write_text(json.dumps(task), "utf-8")
    assert podium("runs", "grade", "tasks.jsonl").out == "graded 1 run: 1 right, 0 wrong\n"
    assert podium("runs", "feedback", asked).out == f"{asked}: 1 by number\n"
    again = podium("runs", "grade", "tasks.jsonl")
    assert again.out.splitlines()[1] == "skipped 1 run: judged before"
    assert "no run was graded; --again grades runs that a grader has graded before" in (
        again.complaint
    )
    podium("runs", "feedback", asked, "1")
    stands = podium("runs", "grade", "tasks.jsonl", "--again")
    assert "no run was graded; list the runs with" in stands.complaint


def test_a_judge_of_the_pool_grades_by_a_rubric(
    podium: Podium, make_pool: MakePool, asked: str
) -> None:
    pool = make_pool({"sage": "<verdict>wrong</verdict>", "fool": "No idea."})
    graded = podium(
        *("runs", "grade", "--pool", pool, "--judge", "sage", "--rubric", "Is it kind?", "--json")
    )
    assert (graded.json["right"], graded.json["wrong"]) == (0, 1)
    assert podium("runs", "feedback", asked).out == f"{asked}: 0 by judge sage\n"
    failed = podium(
        *("runs", "grade", "--pool", pool, "--judge", "fool", "--rubric", "Is it kind?", "--again")
    )
    assert (failed.code, "gave no verdict" in failed.complaint) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give a file of tasks, or"),
        (("--rubric", "Is it kind?"), "name a worker with --judge"),
        (("--rubric", "x", "--judge", "sagee"), "'sagee' is not a worker"),
    ],
)
def test_a_missing_grader_is_reported(
    podium: Podium, make_pool: MakePool, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = podium("runs", "grade", "--pool", make_pool(), *arguments)
    assert ended.code == 2
    assert complaint in ended.complaint
