"""What a step of training shows, in numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from podium.core.errors import UsageError
from podium.core.workflow import Step, Workflow
from podium.train.diagnostics import Accuracy, Baselines, Rollout, diagnose
from support.rollouts import ACCEPTED, DROPPED, MALFORMED, POOL, chain, plan, rollouts, run_of
from support.rounds import answered


def baselines(best: dict[str, float], ceiling: dict[str, float] | None = None) -> Baselines:
    """What one worker and, if given, ideal plans reach in each kind."""
    return Baselines(
        8, {"ann": Accuracy(0.5, best)}, None if ceiling is None else Accuracy(0.9, ceiling)
    )


def test_rates_tell_valid_right_and_dropped_apart() -> None:
    scores = [plan("ann"), plan("bob"), plan("cid", right=False), MALFORMED, DROPPED]
    seen = diagnose(rollouts(scores))
    assert seen.rollouts == 5
    assert seen.valid_rate == 0.8
    assert seen.accuracy == 0.5
    assert seen.accuracy_given_valid == pytest.approx(2 / 3)
    assert seen.dropped_share == 0.2
    assert seen.main_drop_reason == "step 0 (ann): down"
    assert seen.reward == pytest.approx((1 + 1 + 0.5 + 0) / 4)


def test_accuracy_is_reported_by_kind() -> None:
    seen = diagnose(
        [
            *rollouts([plan("ann"), plan("ann", right=False)], kind="sums"),
            *rollouts([plan("ann", right=False)], kind="words"),
        ]
    )
    assert seen.accuracy_by_kind == {"sums": 0.5, "words": 0.0}


def test_plans_are_counted_by_length_and_shape() -> None:
    join = Workflow((Step("ann", "a"), Step("bob", "b"), Step("cid", "c", (0, 1))))
    scores = [plan("ann"), plan("ann", "bob"), plan(workflow=join), ACCEPTED, MALFORMED]
    seen = diagnose(rollouts(scores))
    assert seen.steps == {0: 1, 1: 1, 2: 1, 3: 1}
    assert seen.mean_steps == 2.0
    assert seen.shapes == pytest.approx({"one-shot": 1 / 3, "chain": 1 / 3, "fan-out/join": 1 / 3})


def test_workers_are_counted_by_steps_including_unused_ones() -> None:
    seen = diagnose(rollouts([plan("ann"), plan("ann", "bob"), plan("cid")]))
    assert seen.workers == {"ann": 0.5, "bob": 0.25, "cid": 0.25, "dan": 0.0}
    assert seen.entropy_bits == pytest.approx(1.5)
    assert seen.largest_worker == ("ann", 0.5)


def test_a_skipped_step_made_no_call() -> None:
    whole = answered(chain("ann", "bob"), "4")
    skipped = replace(whole, steps=(whole.steps[0], replace(whole.steps[1], status="skipped")))
    seen = diagnose(rollouts([replace(plan("ann", "bob"), run=run_of(skipped))]))
    assert seen.workers["ann"] == 1.0


def test_the_earlier_round_is_not_counted_again() -> None:
    run = run_of(answered(chain("ann", "ann"), "4"))
    again = replace(run, rounds=(*run.rounds, answered(chain("bob"), "5")))
    seen = diagnose(rollouts([replace(plan("bob"), run=again)]))
    assert seen.workers["bob"] == 1.0


def test_regret_and_the_gap_to_the_ceiling_are_taken_from_the_baselines() -> None:
    scores = rollouts([plan("ann"), plan("ann", right=False)])
    seen = diagnose(scores, baselines({"sums": 0.2}, {"sums": 0.98}))
    assert seen.regret == pytest.approx(-0.3)
    assert seen.ceiling_gap == pytest.approx(0.48)
    unknown = diagnose(scores)
    assert (unknown.regret, unknown.ceiling_gap) == (None, None)


def test_references_by_kind_are_weighed_by_the_rollouts_of_each_kind_they_know() -> None:
    mixed = [
        *rollouts([plan("ann")] * 3, kind="sums"),
        *rollouts([plan("ann", right=False)], kind="words"),
        *rollouts([plan("ann", right=False)], kind="unheard of"),
    ]
    seen = diagnose(mixed, baselines({"sums": 0.5, "words": 0.1}))
    assert seen.regret == pytest.approx((3 * (0.5 - 1) + (0.1 - 0)) / 4)
    assert diagnose(mixed, baselines({}, {"other": 1.0})).ceiling_gap is None


def test_a_group_has_spread_when_its_rewards_differ() -> None:
    right, wrong = plan("ann"), plan("ann", right=False)
    scores = [right, wrong, right, right, wrong, wrong, DROPPED, right]
    assert diagnose(rollouts(scores, per_group=2)).groups_with_reward_variance == 0.25


def test_lengths_are_reported_against_the_limit() -> None:
    long, short = rollouts([plan("ann")], tokens=160), rollouts([plan("ann")] * 3, tokens=40)
    seen = diagnose([*long, *short], max_tokens=160)
    assert (seen.mean_tokens, seen.max_plan_tokens, seen.truncated_rate) == (70.0, 160, 0.25)


def test_samples_are_the_best_and_the_worst_of_different_groups() -> None:
    good, poor = plan("ann"), plan("bob", right=False)
    seen = diagnose(rollouts([good, MALFORMED, good, poor, poor, MALFORMED], per_group=2))
    assert [sample.reward for sample in seen.samples] == [1.0, 1.0, 0.0, 0.0]
    best, *_, worst = seen.samples
    assert (best.question, best.text, best.answer) == ("What is two and two?", "the plan", "4")
    assert (worst.text, worst.answer, worst.problem) == ("er", "", "plan: no lists")


def test_few_rollouts_are_not_shown_twice() -> None:
    assert len(diagnose(rollouts([plan("ann")])).samples) == 1


def test_metrics_are_flat_numbers_that_json_can_write() -> None:
    seen = diagnose(rollouts([plan("ann"), plan("ann", "bob", right=False)]))
    metrics = seen.as_metrics()
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
    assert all(type(value) is float for value in metrics.values())
    assert metrics["accuracy/sums"] == metrics["steps/1"] == metrics["shape/chain"] == 0.5
    assert metrics["worker/ann"] == metrics["largest_worker_share"] == pytest.approx(2 / 3)
    assert "regret" not in metrics


def test_a_step_in_which_nothing_could_be_graded_is_reported_without_numbers_it_has_not() -> None:
    seen = diagnose(rollouts([DROPPED, DROPPED]))
    assert (seen.accuracy, seen.reward, seen.groups_with_reward_variance) == (None, None, None)
    none_valid = diagnose(rollouts([MALFORMED]))
    assert (none_valid.entropy_bits, none_valid.mean_steps) == (None, None)
    assert json.dumps([seen.as_metrics(), none_valid.as_metrics()], allow_nan=False)


def test_no_rollouts_are_refused() -> None:
    with pytest.raises(UsageError, match="no rollouts"):
        diagnose([])


def test_later_rounds_tell_what_was_accepted_and_what_was_mended() -> None:
    kept_right, kept_wrong = replace(ACCEPTED, was_right=True), replace(ACCEPTED, was_right=False)
    scores = [
        kept_right,
        kept_right,
        kept_right,
        replace(plan("ann"), was_right=True),
        replace(kept_wrong, right=False),
        replace(plan("bob"), was_right=False),
        plan("cid"),
    ]
    seen = diagnose([Rollout(0, score, 9, POOL) for score in scores])
    assert seen.second_round_rates == {
        "accepted_right": 0.75,
        "accepted_wrong": 0.5,
        "corrected": 0.5,
    }
    assert seen.as_metrics()["second_round/corrected"] == 0.5
    assert diagnose([Rollout(0, plan("ann"), 9, POOL)]).second_round_rates == {}
