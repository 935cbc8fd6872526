"""What shows a collapse, and what does not."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.pool import Pool, WorkerProfile
from podium.train.diagnostics import (
    Rollout,
    StepDiagnostics,
    collapse_warnings,
    diagnose,
)
from podium.train.score import Score
from support.rollouts import DROPPED, MALFORMED, plan, rollouts


def healthy() -> list[Score]:
    """Four workers, plans of one and two steps, some right and some wrong, in every group."""
    return [
        plan("ann"),
        plan("bob", "cid", right=False),
        plan("cid", "dan"),
        plan("dan", "bob", right=False),
    ] * 5


def warned(scores: Sequence[Score], max_tokens: int | None = None) -> dict[str, str]:
    return collapse_warnings(diagnose(rollouts(scores), max_tokens=max_tokens))


def test_a_healthy_step_gives_no_warning() -> None:
    assert warned(healthy(), max_tokens=160) == {}


def test_a_few_rollouts_are_no_reason_to_warn() -> None:
    assert warned([MALFORMED] * 15) == {}
    assert warned([MALFORMED] * 16) != {}


def test_leaning_on_one_worker_and_collapsing_onto_it_are_distinguished() -> None:
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
    assert collapse_warnings(diagnose(scores)) == {}


def test_one_step_for_everything_is_reported_while_answers_are_mostly_wrong() -> None:
    one_step = [plan(worker, right=worker == "ann") for worker in ("ann", "bob", "cid", "dan")] * 5
    words = warned(one_step)["steps"]
    assert "100% of the plans have one step" in words
    assert "sums 0.25" in words
    solved = [plan(worker) for worker in ("ann", "bob", "cid", "dan")] * 5
    assert "steps" not in warned(solved)


def test_few_valid_plans_are_reported() -> None:
    words = warned([*healthy()[:8], *[MALFORMED] * 12])["valid"]
    assert words.startswith("only 40% of the texts are plans")


def test_texts_at_the_limit_are_reported() -> None:
    assert "100% of the texts were cut off at 50" in warned(healthy(), max_tokens=50)["length"]


def test_groups_without_spread_are_reported_with_the_likely_reason() -> None:
    workers = ("ann", "bob", "cid", "dan")
    easy = [plan(worker, "ann") for worker in workers] * 5
    hard = [plan(worker, "ann", right=False) for worker in workers] * 5
    assert "too easy" in warned(easy)["reward_variance"]
    assert "too hard" in warned(hard)["reward_variance"]


def test_many_dropped_rollouts_are_reported_with_the_commonest_reason() -> None:
    words = warned([*healthy(), *[DROPPED] * 10])["dropped"]
    assert words == "33% of the rollouts were dropped, most for: step 0 (ann): down"


# ---- over time


def step(*, malformed: int = 0, tokens: int = 50) -> StepDiagnostics:
    scores = [*healthy()[: 20 - malformed], *[MALFORMED] * malformed]
    return diagnose(rollouts(scores, tokens=tokens))


def test_a_fall_of_valid_plans_by_a_third_is_reported() -> None:
    assert collapse_warnings(step(malformed=6), [step()]) == {}
    words = collapse_warnings(step(malformed=7), [step(malformed=2), step(), step(malformed=4)])
    assert "valid plans fell from 100% to 65% within 3 steps" in words["valid"]


def test_texts_that_double_in_length_are_reported() -> None:
    assert collapse_warnings(step(tokens=88), [step(tokens=44)]) == {}
    words = collapse_warnings(step(tokens=103), [step(tokens=44), step(tokens=60)])
    assert "texts grew from 44 to 103 tokens within 2 steps" in words["length"]
