from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from podium.evals.strategies.routing_curves import GapRecovery, ranks

WEAKER = np.array([0.0, 1.0, 1.0, 0.0])
STRONGER = np.array([1.0, 1.0, 1.0, 1.0])


def area(*preferences: float) -> float:
    return GapRecovery(np.array(preferences), WEAKER, STRONGER).share().value


def test_a_router_that_tells_nothing_apart_recovers_one_half() -> None:
    assert area(1, 1, 1, 1) == 0.5


def test_the_area_is_that_under_the_curve_from_the_weaker_to_the_stronger_worker() -> None:
    assert area(4, 2, 1, 3) == pytest.approx(0.75)
    assert area(1, 3, 4, 2) == pytest.approx(0.25)
    assert area(2, 1, 1, 2) == pytest.approx(0.75)  # equals are sent in proportion


def test_the_interval_is_over_questions() -> None:
    rng = np.random.default_rng(0)
    weaker = (rng.random(500) < 0.5).astype(np.float64)
    share = GapRecovery(-weaker + rng.normal(size=500), weaker, np.ones(500)).share()
    assert share.low < share.value < share.high
    assert 0.02 < share.high - share.low < 0.2


def test_a_router_has_no_lead_on_itself() -> None:
    router = GapRecovery(np.array([4.0, 2.0, 1.0, 3.0]), WEAKER, STRONGER)
    lead = router.lead(router)
    assert (lead.value, lead.low, lead.high) == (0.0, 0.0, 0.0)
    other = GapRecovery(np.array([1.0, 3.0, 4.0, 2.0]), WEAKER, STRONGER)
    assert router.lead(other).value == pytest.approx(0.5)


def test_preferences_of_different_folds_are_ranks_within_each() -> None:
    found = ranks(np.array([10.0, 0.1, 30.0, 0.2, 10.0]), [(0, 2, 4), (1, 3)])
    assert found.tolist() == pytest.approx([0, 0, 2 / 3, 0.5, 0])
