from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from podium.routing.encoders import (  # noqa: E402
    HashedEncoder,
    ScoringEncoder,
    joined,
    read_encoder,
)
from podium.routing.nearness import NearScores  # noqa: E402
from podium.routing.words import WordScores  # noqa: E402
from support.routing import PLAYS, SUMS  # noqa: E402

TEXTS = (*SUMS, *PLAYS) * 30
REWARDS = np.array(([[1.0, 1.0]] * 4 + [[0.0, 1.0]] * 4) * 30)


def test_words_tell_what_is_earned_where_they_stand() -> None:
    sums, plays = WordScores.fitted(TEXTS, REWARDS).score([SUMS[0], PLAYS[0]])
    assert sums[0] == pytest.approx(0.5, abs=0.1)
    assert plays[0] == pytest.approx(-0.5, abs=0.1)
    assert (sums[1], plays[1]) == (0.0, 0.0)  # who is always right is so whatever the words


def test_a_text_without_words_has_a_score_too() -> None:
    assert np.isfinite(WordScores.fitted(TEXTS, REWARDS).score(["", "zzz"])).all()


def test_a_neighbourhood_tells_what_is_earned_in_it() -> None:
    vectors = HashedEncoder.fitted(TEXTS).encode(TEXTS)
    sums, *_, plays = NearScores.fitted(vectors, REWARDS).score(vectors[:8])
    assert sums[0] > 0.2
    assert plays[0] < -0.2


@pytest.mark.parametrize("place", [0, 1])
def test_what_was_not_asked_counts_as_the_average(place: int) -> None:
    rewards = REWARDS.copy()
    rewards[::3, place] = np.nan
    found = WordScores.fitted(TEXTS, rewards).score([SUMS[0]])
    assert found == pytest.approx(WordScores.fitted(TEXTS, REWARDS).score([SUMS[0]]), abs=0.2)


def test_opinions_that_were_written_down_are_the_same() -> None:
    encoder = HashedEncoder.fitted(TEXTS)
    vectors = encoder.encode(TEXTS)
    near, words = NearScores.fitted(vectors, REWARDS), WordScores.fitted(TEXTS, REWARDS)
    found = ScoringEncoder(encoder, near, words)
    again = read_encoder(found.document())
    assert np.allclose(again.encode(TEXTS[:8]), found.encode(TEXTS[:8]))
    assert np.allclose(found.encode(TEXTS), joined(near.score(vectors), words.score(TEXTS)))
