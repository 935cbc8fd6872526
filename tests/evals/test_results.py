from __future__ import annotations

import pytest

from evals.samples import sample
from podium.core.roles import Role
from podium.evals.results import StrategyRow, difficulty


def test_accuracy_is_reported_for_all_tasks_and_for_each_kind() -> None:
    row = StrategyRow(
        "x", (sample(True), sample(False, kind="chain-2"), sample(True, kind="chain-2"))
    )
    document = row.document()
    assert document["n"] == 3
    assert document["accuracy"] == pytest.approx(2 / 3, abs=1e-6)
    assert document["interval"][0] < 2 / 3 < document["interval"][1]
    assert document["by_kind"]["one"]["accuracy"] == 1.0
    assert document["by_kind"]["chain-2"]["accuracy"] == 0.5
    assert document["by_kind"]["chain-2"]["n"] == 2


def test_steps_are_reported_by_how_many_skills_a_task_needs() -> None:
    row = StrategyRow(
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
    row = StrategyRow("x", (sample(True, workers=("a", "b")), sample(True, workers=("a", "b"))))
    assert row.entropy_bits == pytest.approx(1.0)
    assert row.document()["worker_shares"] == {"a": 0.5, "b": 0.5}


def test_tokens_are_means_and_one_unknown_makes_them_unknown() -> None:
    known = StrategyRow("x", (sample(True, worker_tokens=10), sample(True, worker_tokens=20)))
    assert known.document()["worker_tokens"] == 15.0
    assert known.document()["orchestration_tokens"] == 3.0
    vague = StrategyRow("x", (sample(True), sample(True, worker_tokens=None)))
    assert vague.document()["worker_tokens"] is None


def test_valid_plans_are_distinguished_from_right_answers() -> None:
    row = StrategyRow("x", (sample(True), sample(False), sample(False, valid=False), sample(True)))
    document = row.document()
    assert document["valid_rate"] == 0.75
    assert document["accuracy_given_valid"] == pytest.approx(2 / 3, abs=1e-6)


def test_recursion_is_judged_against_its_own_first_round() -> None:
    row = StrategyRow(
        "recursion",
        (
            sample(True, first_right=False, accepted=False),
            sample(True, first_right=False, accepted=False),
            sample(False, first_right=True, accepted=False),
            sample(True, first_right=True, accepted=True),
            sample(True, first_right=True, accepted=True),
        ),
    )
    assert row.recursion_gain.estimate.value == pytest.approx(1 / 5)
    assert (row.recursion_gain.gained, row.recursion_gain.lost) == (2, 1)
    assert row.accepted_when_right.value == pytest.approx(2 / 3)
    assert row.document()["accepted_when_right"]["value"] == pytest.approx(2 / 3, abs=1e-6)


def test_tries_of_one_task_are_not_independent_where_answers_are_accepted_either() -> None:
    tries = [
        sample(True, task=f"t{task}", repeat=repeat, first_right=True, accepted=task % 2 == 0)
        for task in range(20)
        for repeat in range(10)
    ]
    accepted = StrategyRow("recursion", tuple(tries)).accepted_when_right
    first_time = StrategyRow("recursion", tuple(tries[::10])).accepted_when_right
    assert accepted.value == 0.5
    assert (accepted.low, accepted.high) == pytest.approx(
        (first_time.low, first_time.high), abs=0.02
    )


def test_a_row_of_one_round_says_nothing_of_recursion() -> None:
    assert "recursion_gain" not in StrategyRow("x", (sample(True),)).document()


def test_a_row_is_compared_with_the_best_single_worker_but_not_with_itself() -> None:
    best = StrategyRow("best-single", (sample(False, task="x"), sample(True, task="y")))
    row = StrategyRow("conductor", (sample(True, task="x"), sample(True, task="y")))
    assert row.document(best)["against_best_single"]["value"] == 0.5
    assert row.document(best)["against_best_single"]["gained"] == 1
    assert "against_best_single" not in best.document(best)


def test_faults_are_counted() -> None:
    row = StrategyRow("x", (sample(True), sample(False, error="gone")))
    assert row.document()["errors"] == 1


def test_a_task_that_was_tried_several_times_counts_once() -> None:
    tried = [("x", True), ("x", True), ("x", False), ("y", False), ("y", False), ("y", False)]
    row = StrategyRow("x", tuple(sample(right, task=task) for task, right in tried))
    assert row.outcomes == {"x": pytest.approx(2 / 3), "y": 0.0}
    assert row.accuracy.value == pytest.approx(1 / 3)
    assert (row.document()["n"], row.document()["samples"]) == (2, 6)
    first_time = StrategyRow("x", tuple(sample(right) for _, right in tried))
    assert row.accuracy.high - row.accuracy.low > first_time.accuracy.high - first_time.accuracy.low


def test_strategies_are_compared_on_the_tasks_that_both_have() -> None:
    cut_off = StrategyRow("a", (sample(True, task="x"),))
    whole = StrategyRow(
        "b", (sample(False, task="w"), sample(False, task="x"), sample(True, task="y"))
    )
    difference = cut_off.paired_difference(whole)
    assert (difference.gained, difference.lost, difference.estimate.value) == (1, 0, 1.0)


def test_money_calls_and_time_are_reported_and_unknown_stays_unknown() -> None:
    row = StrategyRow(
        "x",
        tuple(sample(True, cost_usd=n / 100, calls=n, seconds=float(n)) for n in range(1, 22)),
    )
    document = row.document()
    assert document["cost_usd"] == pytest.approx(0.11)
    assert document["calls"] == 11
    assert document["seconds"] == {"p50": 11.0, "p95": 20.0}
    assert (
        StrategyRow("x", (sample(True, cost_usd=1.0), sample(True))).document()["cost_usd"] is None
    )


def test_a_kept_reply_says_nothing_of_how_long_an_answer_takes() -> None:
    row = StrategyRow("x", (sample(True, seconds=0.0, cached_calls=1), sample(True, seconds=4.0)))
    assert row.latency_quantile(0.5) == 4.0
    assert StrategyRow("x", (sample(True, cached_calls=2),)).document()["seconds"]["p95"] is None


def test_difficulty_is_what_the_data_says_and_else_the_skills_that_are_needed() -> None:
    assert difficulty(sample(True, difficulty="hard", skills=1)) == "hard"
    assert difficulty(sample(True, skills=1)) == "1 skill"
    assert difficulty(sample(True, skills=3)) == "3 skills"
    assert difficulty(sample(True, skills=None)) is None
    assert StrategyRow("x", (sample(True, skills=None),)).levels == {}


@pytest.mark.parametrize(
    "levels",
    [
        ("easy", "medium", "hard"),
        ("Level 2", "Level 5", "Level 10"),
        ("1 skill", "2 skills", "11 skills"),
        ("introductory", "interview", "competition"),
    ],
)
def test_levels_stand_in_order_the_easiest_first(levels: tuple[str, ...]) -> None:
    samples = (sample(True, difficulty=level, workers=("a",) * 2) for level in reversed(levels))
    row = StrategyRow("x", tuple(samples))
    assert tuple(row.levels) == levels
    assert row.document()["by_difficulty"][levels[0]]["steps"] == 2.0


def test_the_row_counts_steps_by_worker() -> None:
    planned = sample(True, workers=("a", "b"), roles=(Role.PLAN, Role.SOLVE))
    row = StrategyRow(
        "x", (planned, sample(True, workers=("b",), roles=(Role.SOLVE,)), sample(True))
    )
    assert row.document()["role_shares"] == {
        "solve": pytest.approx(2 / 3, abs=1e-6),
        "plan": pytest.approx(1 / 3, abs=1e-6),
    }


def test_accuracy_given_a_valid_plan_is_unknown_without_one_and_has_an_interval() -> None:
    document = StrategyRow("x", (sample(False, valid=False),)).document()
    assert (document["accuracy_given_valid"], document["interval_given_valid"]) == (None, None)
    low, high = StrategyRow("x", (sample(True),)).document()["interval_given_valid"]
    assert 0.0 < low < high == 1.0
