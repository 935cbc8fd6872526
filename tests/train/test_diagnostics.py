"""What a step of training shows, on scores made up for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from podium.errors import UsageError
from podium.pool import Pool, WorkerProfile
from podium.run import Round, Run
from podium.train.diagnostics import (
    References,
    Rollout,
    StepDiagnostics,
    Watch,
    diagnose,
)
from podium.train.score import Score
from podium.workflow import Step, Workflow
from support.rounds import answered

POOL = Pool(tuple(WorkerProfile(name=name) for name in ("ann", "bob", "cid", "dan")))


def chain(*workers: str) -> Workflow:
    return Workflow(
        tuple(
            Step(worker, "do it", (index - 1,) if index else ())
            for index, worker in enumerate(workers)
        )
    )


def run_of(round_: Round, answer: str = "4") -> Run:
    return Run(
        id="r",
        question="q",
        status="answered",
        pool=POOL,
        conductor="scored",
        created_at="",
        rounds=(round_,),
        answer=answer,
    )


def plan(*workers: str, right: bool = True, workflow: Workflow | None = None) -> Score:
    workflow = workflow or chain(*workers)
    return Score(
        1.0 if right else 0.5,
        run=run_of(answered(workflow, "4")),
        workflow=workflow,
        right=right,
        question="What is two and two?",
        text="the plan",
    )


MALFORMED = Score(0.0, valid=False, problem="plan: no lists", question="q", text="er")
DROPPED = replace(plan("ann"), reward=None, right=False, problem="step 0 (ann): down")
ACCEPTED = Score(1.0, run=run_of(Round(1, None, accepted=True)), right=True)


def rollouts(
    scores: Sequence[Score], *, per_group: int = 4, kind: str = "sums", tokens: int = 50
) -> list[Rollout]:
    return [
        Rollout(index // per_group, score, tokens, POOL, kind) for index, score in enumerate(scores)
    ]


def healthy() -> list[Score]:
    """Four workers, plans of one and two steps, some right and some wrong, in every group."""
    return [
        plan("ann"),
        plan("bob", "cid", right=False),
        plan("cid", "dan"),
        plan("dan", "bob", right=False),
    ] * 5


# ---- numbers


def test_rates_tell_valid_right_and_dropped_apart() -> None:
    scores = [plan("ann"), plan("bob"), plan("cid", right=False), MALFORMED, DROPPED]
    seen = diagnose(rollouts(scores))
    assert seen.rollouts == 5
    assert seen.valid_rate == 0.8
    assert seen.accuracy == 0.5
    assert seen.accuracy_given_valid == pytest.approx(2 / 3)
    assert seen.dropped == 0.2
    assert seen.dropped_for == "step 0 (ann): down"
    assert seen.reward == pytest.approx((1 + 1 + 0.5 + 0) / 4)


def test_accuracy_is_told_by_kind() -> None:
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
    assert seen.one_step == pytest.approx(1 / 3)


def test_workers_are_counted_by_steps_and_those_nobody_asked_are_told_too() -> None:
    seen = diagnose(rollouts([plan("ann"), plan("ann", "bob"), plan("cid")]))
    assert seen.workers == {"ann": 0.5, "bob": 0.25, "cid": 0.25, "dan": 0.0}
    assert seen.entropy_bits == pytest.approx(1.5)
    assert seen.largest_worker == ("ann", 0.5)


def test_a_step_that_was_skipped_asked_nobody() -> None:
    whole = answered(chain("ann", "bob"), "4")
    skipped = replace(whole, steps=(whole.steps[0], replace(whole.steps[1], status="skipped")))
    seen = diagnose(rollouts([replace(plan("ann", "bob"), run=run_of(skipped))]))
    assert seen.workers["ann"] == 1.0


def test_the_earlier_round_is_not_counted_again() -> None:
    run = run_of(answered(chain("ann", "ann"), "4"))
    again = replace(run, rounds=(*run.rounds, answered(chain("bob"), "5")))
    seen = diagnose(rollouts([replace(plan("bob"), run=again)]))
    assert seen.workers["bob"] == 1.0


def test_regret_and_the_gap_to_the_ceiling_are_taken_from_the_references() -> None:
    scores = rollouts([plan("ann"), plan("ann", right=False)])
    seen = diagnose(scores, References(best_single=0.2, ceiling=0.98))
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
    seen = diagnose(mixed, References(best_single={"sums": 0.5, "words": 0.1}))
    assert seen.regret == pytest.approx((3 * (0.5 - 1) + (0.1 - 0)) / 4)
    assert diagnose(mixed, References(ceiling={"other": 1.0})).ceiling_gap is None


def test_a_group_has_spread_when_its_rewards_differ() -> None:
    right, wrong = plan("ann"), plan("ann", right=False)
    scores = [right, wrong, right, right, wrong, wrong, DROPPED, right]
    assert diagnose(rollouts(scores, per_group=2)).groups_with_spread == 0.25


def test_lengths_are_told_against_the_limit() -> None:
    long, short = rollouts([plan("ann")], tokens=160), rollouts([plan("ann")] * 3, tokens=40)
    seen = diagnose([*long, *short], References(max_tokens=160))
    assert (seen.mean_tokens, seen.most_tokens, seen.at_the_limit) == (70.0, 160, 0.25)


def test_samples_are_the_best_and_the_worst_of_different_groups() -> None:
    good, poor = plan("ann"), plan("bob", right=False)
    seen = diagnose(rollouts([good, MALFORMED, good, poor, poor, MALFORMED], per_group=2))
    assert [sample.reward for sample in seen.samples] == [1.0, 1.0, 0.0, 0.0]
    assert str(seen.samples[0]) == "1 sums\nWhat is two and two?\nthe plan\n-> 4"
    assert str(seen.samples[-1]).endswith("er\n-> plan: no lists")


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


def test_a_step_in_which_nothing_could_be_graded_is_told_without_numbers_it_has_not() -> None:
    seen = diagnose(rollouts([DROPPED, DROPPED]))
    assert (seen.accuracy, seen.reward, seen.groups_with_spread) == (None, None, None)
    none_valid = diagnose(rollouts([MALFORMED]))
    assert (none_valid.entropy_bits, none_valid.mean_steps) == (None, None)
    assert json.dumps([seen.as_metrics(), none_valid.as_metrics()], allow_nan=False)


def test_no_rollouts_are_refused() -> None:
    with pytest.raises(UsageError, match="no rollouts"):
        diagnose([])


# ---- words


def warned(scores: Sequence[Score], **more: object) -> dict[str, str]:
    return diagnose(rollouts(scores), References(**more)).warnings()  # type: ignore[arg-type]


def test_a_healthy_step_warns_of_nothing() -> None:
    assert warned(healthy(), max_tokens=160) == {}


def test_a_few_rollouts_are_no_reason_to_warn() -> None:
    assert warned([MALFORMED] * 15) == {}
    assert warned([MALFORMED] * 16) != {}


def test_leaning_on_one_worker_and_collapsing_onto_it_are_told_apart() -> None:
    mixed = [plan("ann", right=bool(n % 2)) for n in range(17)]
    leaning = warned([*mixed, plan("bob"), plan("cid"), plan("dan")])
    assert "leans on one worker: ann has 85% of the steps" in leaning["leaning"]
    collapsed = warned([*mixed, plan("bob")])
    assert "has collapsed onto one worker: ann has 94%" in collapsed["collapse"]
    assert "over 4 workers is 0.31 bits" in collapsed["collapse"]
    assert "leaning" not in collapsed


def test_a_pool_of_one_worker_cannot_collapse_onto_it() -> None:
    alone = Pool((WorkerProfile(name="ann"),))
    scores = [Rollout(n // 4, plan("ann", right=n % 2 == 0), 50, alone) for n in range(20)]
    assert diagnose(scores).warnings() == {}


def test_one_step_for_everything_is_told_while_what_needs_more_is_wrong() -> None:
    one_step = [plan(worker, right=worker == "ann") for worker in ("ann", "bob", "cid", "dan")] * 5
    assert "100% of the plans have one step" in warned(one_step)["steps"]
    assert "sums 0.25" in warned(one_step, multi_step_kinds={"sums"})["steps"]
    assert "steps" not in warned(one_step, multi_step_kinds={"chains"})
    solved = [plan(worker) for worker in ("ann", "bob", "cid", "dan")] * 5
    assert "steps" not in warned(solved, multi_step_kinds={"sums"})


def test_few_valid_plans_are_told() -> None:
    words = warned([*healthy()[:8], *[MALFORMED] * 12])["valid"]
    assert words.startswith("only 40% of the texts are plans")


def test_texts_at_the_limit_are_told() -> None:
    assert "100% of the texts were cut off at 50" in warned(healthy(), max_tokens=50)["length"]


def test_groups_without_spread_are_told_with_the_likely_reason() -> None:
    workers = ("ann", "bob", "cid", "dan")
    easy = [plan(worker, "ann") for worker in workers] * 5
    hard = [plan(worker, "ann", right=False) for worker in workers] * 5
    assert "too easy" in warned(easy)["spread"]
    assert "too hard" in warned(hard)["spread"]


def test_many_dropped_rollouts_are_told_with_the_commonest_reason() -> None:
    words = warned([*healthy(), *[DROPPED] * 10])["dropped"]
    assert words == "33% of the rollouts were dropped, most for: step 0 (ann): down"


# ---- over time


def step(*, malformed: int = 0, tokens: int = 50) -> StepDiagnostics:
    scores = [*healthy()[: 20 - malformed], *[MALFORMED] * malformed]
    return diagnose(rollouts(scores, tokens=tokens))


def test_a_fall_of_valid_plans_by_a_third_is_told() -> None:
    assert step(malformed=6).warnings([step()]) == {}
    words = step(malformed=7).warnings([step(malformed=2), step(), step(malformed=4)])
    assert "valid plans fell from 100% to 65% within 3 steps" in words["valid"]


def test_texts_that_double_in_length_are_told() -> None:
    assert step(tokens=88).warnings([step(tokens=44)]) == {}
    words = step(tokens=103).warnings([step(tokens=44), step(tokens=60)])
    assert "texts grew from 44 to 103 tokens within 2 steps" in words["length"]


def test_a_watch_compares_with_the_steps_of_its_window_alone() -> None:
    watch = Watch(window=2)
    assert watch.see(step()) == ()
    for malformed in (3, 5, 7):
        assert watch.see(step(malformed=malformed)) == ()
    assert len(watch.history) == 2
    (words,) = watch.see(step(malformed=11))
    assert "fell from 75% to 45% within 2 steps" in words


def test_a_watch_tells_a_warning_once_in_its_window() -> None:
    watch = Watch(window=3)
    told = [len(watch.see(step(malformed=12))) for _ in range(7)]
    assert told == [1, 0, 0, 1, 0, 0, 1]


def test_a_watch_over_no_steps_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Watch(window=0)


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
    assert seen.later == {"accepted_right": 0.75, "accepted_wrong": 0.5, "mended": 0.5}
    assert seen.as_metrics()["later/mended"] == 0.5
    assert diagnose([Rollout(0, plan("ann"), 9, POOL)]).later == {}
