from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile

np = pytest.importorskip("numpy")

from podium.conductors.routing import LearnedRouter
from podium.conductors.routing.arrays import Array, encode_array
from podium.conductors.routing.encoders import HashedEncoder
from podium.conductors.routing.router import BIAS_GRID, QualityBias
from support.routing import PLAYS, SUMS, pool_of, small_router

POOL = pool_of("cheap", "dear")
CHEAP = {"name": "cheap", "model": "cheap-model", "cost": 1.0}
DEAR = {"name": "dear", "model": "dear-model", "cost": 10.0}
CHANGED = "it was changed or damaged after it was written"


def test_at_bias_one_the_best_answers_and_at_zero_the_cheapest() -> None:
    router = small_router()
    assert {router.decide(question, POOL, 1.0).worker for question in (*SUMS, *PLAYS)} == {"dear"}
    assert {router.decide(question, POOL, 0.0).worker for question in (*SUMS, *PLAYS)} == {"cheap"}


def test_half_way_money_goes_where_it_buys_most() -> None:
    router = small_router()
    assert [router.decide(question, POOL, 0.5).worker for question in SUMS] == ["cheap"] * 4
    assert [router.decide(question, POOL, 0.5).worker for question in PLAYS] == ["dear"] * 4


def test_a_decision_has_expected_rewards_and_confidence() -> None:
    router = small_router()
    easy, hard = (router.decide(question, POOL, 0.0) for question in (SUMS[0], PLAYS[0]))
    assert easy.scores == pytest.approx({"cheap": 0.9, "dear": 0.95}, abs=0.02)
    assert hard.confidence < 0.5 < easy.confidence


def test_expected_rewards_are_clipped_and_still_tell_workers_apart() -> None:
    """A line goes on beyond 1, where all would look alike."""
    router = small_router()
    everywhere = np.zeros_like(router.head)
    everywhere[-1] = 1.0
    decision = replace(router, head=router.head + everywhere).decide(SUMS[0], POOL, 1.0)
    assert decision.scores == {"cheap": 1.0, "dear": 1.0}
    assert decision.worker == "dear"
    assert 0.5 < decision.confidence < 1
    doubtful = replace(router, head=router.head - 2 * everywhere).decide(SUMS[0], POOL, 1.0)
    assert (doubtful.scores, doubtful.worker) == ({"cheap": 0.0, "dear": 0.0}, "dear")
    assert 0 < doubtful.confidence < 0.5


def test_the_quality_bias_chooses_among_workers_of_enough_confidence() -> None:
    """At a quarter of the quality bias the router would have `cheap` tell who wrote a play, with
    little chance to be right; where it has to be sure, `dear` is."""
    router = replace(small_router(), quality_bias=QualityBias((1.0,) * len(BIAS_GRID)))
    free = router.decide(PLAYS[0], POOL, 0.25)
    assert (free.worker, free.confidence < 0.5) == ("cheap", True)
    sure = router.decide(PLAYS[0], POOL, 0.25, 0.5)
    assert (sure.worker, sure.confidence >= 0.5) == ("dear", True)
    assert sure.scores == free.scores
    assert router.decide(SUMS[0], POOL, 0.25, 0.5).worker == "cheap"
    assert router.decide(PLAYS[0], POOL, 0.0, 0.5).worker == "cheap"


def test_without_a_confident_choice_the_most_likely_worker_is_chosen() -> None:
    decision = small_router().decide(PLAYS[0], POOL, 0.05, 0.99)
    assert decision.worker == "dear"
    assert 0.5 < decision.confidence < 0.99


def test_a_decision_reads_the_question_once(monkeypatch: pytest.MonkeyPatch) -> None:
    router, read = small_router(), []
    encode = HashedEncoder.encode

    def counted(encoder: HashedEncoder, questions: Sequence[str]) -> Array:
        read.append(tuple(questions))
        return encode(encoder, questions)

    monkeypatch.setattr(HashedEncoder, "encode", counted)
    for confidence in (0.0, 0.5, 1.0):
        router.decide(PLAYS[0], POOL, 0.5, confidence)
    assert read == [(PLAYS[0],)] * 3


def test_the_order_of_the_pool_does_not_matter() -> None:
    turned = pool_of("dear", "cheap")
    small_router().check(turned)
    assert small_router().decide(PLAYS[0], turned, 1.0).worker == "dear"


def test_a_worker_that_is_excluded_is_not_chosen() -> None:
    assert small_router().decide(PLAYS[0], POOL.without({"dear"}), 1.0).worker == "cheap"


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (pool_of("cheap", "dear", "other"), "other is new"),
        (pool_of("cheap"), "dear is gone"),
        (
            Pool((*pool_of("cheap").workers, WorkerProfile(name="grand", model="dear-model"))),
            "dear is now called grand",
        ),
        (
            Pool((*pool_of("cheap").workers, WorkerProfile(name="dear", model="newer"))),
            "dear was the model dear-model and is newer",
        ),
    ],
)
def test_a_pool_that_changed_is_refused_by_what_changed(pool: Pool, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{message}; train it again"):
        small_router().check(pool)


def test_a_conductor_in_the_pool_is_no_change() -> None:
    nested = WorkerProfile(name="podium", provider=CONDUCTOR_PROVIDER)
    small_router().check(Pool((*POOL.workers, nested)))


def test_a_worker_of_another_model_is_not_routed_to() -> None:
    renewed = Pool((*pool_of("cheap").workers, WorkerProfile(name="dear", model="newer")))
    assert small_router().decide(PLAYS[0], renewed, 1.0).worker == "cheap"


def test_a_pool_of_strangers_is_refused() -> None:
    with pytest.raises(UsageError, match="trained with cheap, dear, and the pool has other"):
        small_router().decide(SUMS[0], pool_of("other"), 1.0)


def test_a_router_that_was_saved_decides_alike(tmp_path: Path) -> None:
    router = small_router()
    router.save(tmp_path / "deep" / "router.json")
    again = LearnedRouter.load(tmp_path / "deep" / "router.json")
    assert again.workers == router.workers
    for question in (*SUMS, *PLAYS):
        assert again.decide(question, POOL, 0.5) == router.decide(question, POOL, 0.5)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make it by `podium train router`"):
        LearnedRouter.load(tmp_path / "router.json")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": "other"}, "not a router file of `podium train router`"),
        ({"version": 1}, "version 1 cannot be read, only 4, .*`podium train router RECIPE`"),
        ({"workers": [{"name": "cheap"}]}, CHANGED),
        ({"workers": []}, CHANGED),
        ({"workers": [dict(CHEAP, cost=-1.0), DEAR]}, CHANGED),
        ({"workers": [CHEAP, dict(DEAR, name="cheap")]}, CHANGED),
        ({"quality_bias": {"cost_weights": [1.0]}}, CHANGED),
        ({"quality_bias": {"cost_weights": [float("nan")] * 21}}, CHANGED),
        ({"quality_bias": {"cost_weights": [10**400] * 21}}, CHANGED),
        ({"head": None}, CHANGED),
        ({"head": encode_array(np.zeros((3, 2)))}, CHANGED),
        ({"head": encode_array(np.full((9, 2), np.nan))}, CHANGED),
        ({"calibration": {"slope": float("inf"), "midpoint": 0.5}}, CHANGED),
        ({"encoder": {"name": "os:system"}}, CHANGED),
        ({"encoder": {"name": "hashed", "weights": encode_array(np.zeros(3))}}, CHANGED),
        ({"sha256": 7}, CHANGED),
    ],
)
def test_a_file_that_is_damaged_is_named_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = tmp_path / "router.json"
    small_router().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(ConfigError, match=f"{path}: .*{message}"):
        LearnedRouter.load(path)


def test_a_file_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ConfigError, match=f"{path}: nested deeper than can be read"):
        LearnedRouter.load(path)


def test_worker_prices_may_be_zero() -> None:
    router = small_router()
    free = replace(router, workers=tuple(replace(known, cost=0.0) for known in router.workers))
    assert free.decide(PLAYS[0], POOL, 0.0).worker == "dear"


def test_a_worker_without_a_logged_model_is_known_by_its_name() -> None:
    router = small_router()
    unsaid = replace(router, workers=tuple(replace(known, model="") for known in router.workers))
    unsaid.check(POOL)
    assert all(unsaid.knows(worker) for worker in POOL)
    assert unsaid.decide(PLAYS[0], POOL, 1.0).worker == "dear"
    with pytest.raises(ConfigError, match="other is new"):
        unsaid.check(pool_of("cheap", "dear", "other"))
