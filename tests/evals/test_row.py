from __future__ import annotations

import pytest

from podium.evals.row import Row
from podium.evals.sample import Sample


def sample(right: bool, **more: object) -> Sample:
    usual: dict[str, object] = {
        "task": "t",
        "kind": "one",
        "skills": 1,
        "valid": True,
        "workers": ("a",),
        "topology": "one-shot",
        "worker_tokens": 10,
        "orchestration_tokens": 3,
        "seconds": 0.1,
    }
    return Sample(right=right, **{**usual, **more})  # type: ignore[arg-type]


def test_accuracy_is_told_for_all_tasks_and_for_each_kind() -> None:
    row = Row("x", (sample(True), sample(False, kind="chain-2"), sample(True, kind="chain-2")))
    document = row.document()
    assert document["n"] == 3
    assert document["accuracy"] == pytest.approx(2 / 3, abs=1e-6)
    assert document["interval"][0] < 2 / 3 < document["interval"][1]
    assert document["by_kind"]["one"]["accuracy"] == 1.0
    assert document["by_kind"]["chain-2"]["accuracy"] == 0.5
    assert document["by_kind"]["chain-2"]["n"] == 2


def test_steps_are_told_by_how_many_skills_a_task_needs() -> None:
    row = Row(
        "x",
        (
            sample(True, workers=("a", "b")),
            sample(True, workers=("a",)),
            sample(True, skills=3, workers=("a", "b", "c", "a")),
        ),
    )
    assert (row.steps(1), row.steps(3), row.steps(2)) == (1.5, 4.0, None)
    assert row.document()["steps_by_skills"] == {"1": 1.5, "3": 4.0}
    assert row.steps() == pytest.approx(7 / 3)


def test_worker_entropy_is_over_steps_and_not_over_tasks() -> None:
    row = Row("x", (sample(True, workers=("a", "b")), sample(True, workers=("a", "b"))))
    assert row.entropy_bits == pytest.approx(1.0)
    assert row.document()["worker_shares"] == {"a": 0.5, "b": 0.5}


def test_tokens_are_means_and_one_unknown_makes_them_unknown() -> None:
    known = Row("x", (sample(True, worker_tokens=10), sample(True, worker_tokens=20)))
    assert known.document()["worker_tokens"] == 15.0
    assert known.document()["orchestration_tokens"] == 3.0
    vague = Row("x", (sample(True), sample(True, worker_tokens=None)))
    assert vague.document()["worker_tokens"] is None


def test_valid_plans_are_told_apart_from_right_answers() -> None:
    row = Row("x", (sample(True), sample(False), sample(False, valid=False), sample(True)))
    document = row.document()
    assert document["valid_rate"] == 0.75
    assert document["accuracy_given_valid"] == pytest.approx(2 / 3, abs=1e-6)


def test_recursion_is_judged_against_its_own_first_round() -> None:
    row = Row(
        "recursion",
        (
            sample(True, first_right=False, accepted=False),
            sample(True, first_right=False, accepted=False),
            sample(False, first_right=True, accepted=False),
            sample(True, first_right=True, accepted=True),
            sample(True, first_right=True, accepted=True),
        ),
    )
    assert row.recursion_gain.share.value == pytest.approx(1 / 5)
    assert (row.recursion_gain.gained, row.recursion_gain.lost) == (2, 1)
    assert row.accepted_when_right.value == pytest.approx(2 / 3)
    assert row.document()["accepted_when_right"]["value"] == pytest.approx(2 / 3, abs=1e-6)


def test_a_row_of_one_round_says_nothing_of_recursion() -> None:
    assert "recursion_gain" not in Row("x", (sample(True),)).document()


def test_a_row_is_compared_with_the_best_single_worker_but_not_with_itself() -> None:
    best = Row("best-single", (sample(False), sample(True)))
    row = Row("conductor", (sample(True), sample(True)))
    assert row.document(best)["against_best_single"]["value"] == 0.5
    assert row.document(best)["against_best_single"]["gained"] == 1
    assert "against_best_single" not in best.document(best)


def test_faults_are_counted() -> None:
    row = Row("x", (sample(True), sample(False, fault="gone")))
    assert row.document()["faults"] == 1
