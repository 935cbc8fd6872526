from __future__ import annotations

import pytest

from podium.core.errors import ConfigError, UnknownWorker, UsageError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price

CHEAP = WorkerProfile(name="cheap", provider="x", price=Price(input=0.1, output=0.4))
STRONG = WorkerProfile(
    name="strong", provider="y", price=Price(input=1.0, output=9.0), fallback="cheap"
)
UNPRICED = WorkerProfile(name="unpriced", provider="x")


def test_a_worker_is_found_by_name_and_has_its_place_as_id() -> None:
    pool = Pool((CHEAP, STRONG))
    assert pool["strong"] is STRONG
    assert pool.index("strong") == 1
    with pytest.raises(UnknownWorker, match="it has cheap, strong"):
        pool["other"]


def test_names_must_differ() -> None:
    with pytest.raises(ConfigError, match="two workers are named 'cheap'"):
        Pool((CHEAP, CHEAP))


def test_a_fallback_must_be_in_the_pool() -> None:
    with pytest.raises(ConfigError, match="falls back to 'cheap'"):
        Pool((STRONG,))


def test_an_excluded_provider_takes_fallbacks_onto_it_along() -> None:
    rest = Pool((CHEAP, STRONG, UNPRICED)).without({"x"})
    assert rest.names == ("strong",)
    assert rest["strong"].fallback is None


def test_a_worker_may_not_fall_back_to_itself() -> None:
    with pytest.raises(ConfigError, match="'a' falls back to itself"):
        Pool((WorkerProfile(name="a", fallback="a"),))


def test_excluding_everyone_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves no worker"):
        Pool((CHEAP,)).without({"cheap"})


def test_best_and_cheapest_go_by_price_with_the_unknown_last() -> None:
    pool = Pool((UNPRICED, CHEAP, STRONG))
    assert pool.most_expensive is STRONG
    assert pool.cheapest is CHEAP
