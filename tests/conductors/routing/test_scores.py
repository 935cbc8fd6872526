from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from podium.conductors.routing.arrays import normalize_rows
from podium.conductors.routing.encoders import (
    HashedEncoder,
    ScoringEncoder,
    average_head,
    join_scores,
    read_encoder,
)
from podium.conductors.routing.scores import SHARPNESSES, NeighbourScores, TokenCounts, WordScores
from support.routing import PLAYS, SUMS

TEXTS = (*SUMS, *PLAYS) * 30
ROW = np.zeros((1, 2))
COUNTED = TokenCounts.of(TEXTS)
REWARDS = np.array(([[1.0, 1.0]] * 4 + [[0.0, 1.0]] * 4) * 30)


def test_words_tell_what_is_earned_where_they_stand() -> None:
    sums, plays = WordScores.fit(COUNTED, REWARDS).score(TokenCounts.of([SUMS[0], PLAYS[0]]))
    assert sums[0] == pytest.approx(0.5, abs=0.1)
    assert plays[0] == pytest.approx(-0.5, abs=0.1)
    assert (sums[1], plays[1]) == (0.0, 0.0)  # who is always right is so whatever the words


def test_a_text_without_words_has_a_score_too() -> None:
    assert np.isfinite(WordScores.fit(COUNTED, REWARDS).score(TokenCounts.of(["", "zzz"]))).all()


def test_a_neighbourhood_predicts_the_reward_in_it() -> None:
    vectors = HashedEncoder.fit(TEXTS).encode(TEXTS)
    sums, *_, plays = NeighbourScores.fit(vectors, REWARDS).score(vectors[:8])
    assert sums[0] > 0.2
    assert plays[0] < -0.2


@pytest.mark.parametrize("place", [0, 1])
def test_what_was_not_asked_counts_as_the_average(place: int) -> None:
    rewards = REWARDS.copy()
    rewards[::3, place] = np.nan
    found = WordScores.fit(COUNTED, rewards).score(TokenCounts.of([SUMS[0]]))
    whole = WordScores.fit(COUNTED, REWARDS).score(TokenCounts.of([SUMS[0]]))
    assert found == pytest.approx(whole, abs=0.2)


def test_opinions_that_were_written_down_are_the_same() -> None:
    encoder = HashedEncoder.fit(TEXTS)
    vectors = encoder.encode(TEXTS)
    near, words = NeighbourScores.fit(vectors, REWARDS), WordScores.fit(COUNTED, REWARDS)
    found = ScoringEncoder(encoder, near, words)
    again = read_encoder(found.document())
    assert np.allclose(again.encode(TEXTS[:8]), found.encode(TEXTS[:8]))
    assert np.allclose(found.encode(TEXTS), join_scores(near.score(vectors), words.score(COUNTED)))


def test_what_was_counted_once_is_the_same_in_parts() -> None:
    places = [5, 0, 7]
    part, anew = COUNTED.take(places), TokenCounts.of([TEXTS[place] for place in places])
    assert len(part) == 3
    assert (part.buckets == anew.buckets).all()
    assert (part.counts == anew.counts).all()
    assert (part.begins == anew.begins).all()


def test_a_file_has_room_only_for_words_that_were_met() -> None:
    scores = WordScores.fit(COUNTED, REWARDS)
    document = scores.document()
    assert document["table"]["shape"] == [len(np.unique(COUNTED.buckets)), 2]
    again = WordScores.read(document)
    asked = TokenCounts.of([*SUMS, "Who wrote an unheard-of thing?", ""])
    assert (again.score(asked) == scores.score(asked)).all()


def test_words_that_were_never_met_dilute_what_the_others_tell() -> None:
    scores = WordScores.fit(COUNTED, REWARDS)
    plain, diluted = scores.score(TokenCounts.of([PLAYS[0], f"{PLAYS[0]} qwerty uiop asdf"]))
    assert plain[0] < diluted[0] < 0


def test_a_capitalized_name_differs_from_the_same_word() -> None:
    texts = ("who is Rose", "what is a rose") * 40
    rewards = np.array([[1.0, 0.0], [0.0, 1.0]] * 40)
    scores = WordScores.fit(TokenCounts.of(texts), rewards)
    name, word = scores.score(TokenCounts.of(["Rose", "rose"]))
    assert name[0] > word[0]


def test_the_chosen_sharpness_separates_questions_best() -> None:
    """Two kinds of question that lie so near to each other that a dull eye takes them for one."""
    rng = np.random.default_rng(0)
    kinds = np.array([[1.0, 0.3], [1.0, -0.3]])[np.arange(400) % 2]
    vectors = normalize_rows(np.hstack([kinds, 0.05 * rng.normal(size=(400, 6))]))
    rewards = np.stack([np.arange(400) % 2, np.ones(400)], axis=1).astype(np.float64)
    near = NeighbourScores.fit(vectors, rewards)
    assert near.sharpness == max(SHARPNESSES)
    assert NeighbourScores.read(near.document()).sharpness == near.sharpness


def test_a_plain_head_averages_both_opinions() -> None:
    near, words = np.array([[0.1, 0.4]]), np.array([[0.3, -0.2]])
    assert join_scores(near, words) @ average_head(2) == pytest.approx(np.array([[0.2, 0.1]]))
