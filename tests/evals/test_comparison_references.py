from __future__ import annotations

from collections.abc import Sequence

import pytest

from evals.samples import sample
from podium.evals.comparison import PER_TASK_BEST, find_references
from podium.evals.results import StrategyRow


def row(strategy: str, outcomes: Sequence[bool], **more: object) -> StrategyRow:
    """A row over the tasks t0, t1, … with these outcomes."""
    return StrategyRow(
        strategy, tuple(sample(o, task=f"t{n}", **more) for n, o in enumerate(outcomes))
    )


ANN = row("single:ann", [True, False, False, True], worker_tokens=50)
BOB = row("single:bob", [True, True, False, False], worker_tokens=10)


def test_the_ceiling_is_the_best_worker_for_each_task_and_of_several_the_thriftiest() -> None:
    ceiling = find_references([ANN, BOB]).best_per_task
    assert ceiling is not None
    assert ceiling.strategy == PER_TASK_BEST
    assert ceiling.outcomes == {"t0": 1.0, "t1": 1.0, "t2": 0.0, "t3": 1.0}
    assert [found.worker_tokens for found in ceiling.samples] == [10, 10, 10, 50]


def test_one_worker_alone_is_no_ceiling() -> None:
    assert find_references([ANN]).best_per_task is None
    assert find_references([row("conductor", [True])]).best_single is None


def test_regret_is_what_the_ceiling_has_more() -> None:
    references = find_references([ANN, BOB])
    worse = references.document(row("conductor", [True, False, False, False]))
    assert worse["regret"]["value"] == 0.5
    assert (worse["regret"]["gained"], worse["regret"]["lost"]) == (2, 0)
    better = references.document(row("conductor", [True] * 4))
    assert better["regret"]["value"] == -0.25


def test_the_lead_is_over_the_best_single_worker_and_never_over_itself() -> None:
    third = row("single:cat", [True, True, True, False])
    references = find_references([ANN, third, BOB])
    lead = references.lead(row("conductor", [True] * 4))
    assert lead is not None
    assert lead.estimate.value == 0.25
    assert references.lead(third) is None
    named = StrategyRow("best-single", third.samples)
    assert find_references([ANN, third, named]).best_single is named
    assert find_references([ANN, third, named]).lead(third) is None


def test_compute_is_matched_by_the_cheapest_that_spends_no_less() -> None:
    best_of = [
        row(f"best-of-{n}", [True, False], worker_tokens=n * 100, orchestration_tokens=0)
        for n in (2, 4, 8)
    ]
    references = find_references(best_of)
    strategy = row("conductor", [True, True], worker_tokens=290, orchestration_tokens=10)
    matched = references.match_compute(strategy)
    assert matched is not None
    assert (matched.row.strategy, matched.unit) == ("best-of-4", "tokens")
    assert matched.compute_ratio == pytest.approx(4 / 3)
    document = references.document(strategy)["compute_matched"]
    assert (document["strategy"], document["value"]) == ("best-of-4", 0.5)
    spender = references.match_compute(row("moa", [True, True], worker_tokens=9_000))
    assert spender is not None
    assert spender.row.strategy == "best-of-8"
    assert spender.compute_ratio < 1
    assert references.match_compute(best_of[0]) is None


def test_compute_is_money_where_everything_has_a_price_and_unknown_where_nothing_is() -> None:
    paid = [row(f"best-of-{n}", [True], cost_usd=n / 10) for n in (1, 2)]
    matched = find_references(paid).match_compute(row("conductor", [True], cost_usd=0.15))
    assert matched is not None
    assert (matched.row.strategy, matched.unit) == ("best-of-2", "USD")
    vague = row("conductor", [True], worker_tokens=None)
    assert find_references(paid).match_compute(vague) is None
    assert "compute_matched" not in find_references([ANN]).document(vague)
