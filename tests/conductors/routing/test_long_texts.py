from __future__ import annotations

from pathlib import Path

import pytest

from podium.conductors.routing.arrays import keep_both_ends

np = pytest.importorskip("numpy")

from podium.conductors.routing import encoders
from podium.conductors.routing.encoders import HashedEncoder
from podium.conductors.routing.scores import MAX_CHARACTERS, TokenCounts, WordScores
from support.routing import PLAYS, SUMS

TEXTS = (*SUMS, *PLAYS) * 30
REWARDS = np.array(([[1.0, 1.0]] * 4 + [[0.0, 1.0]] * 4) * 30)
BETWEEN = "lorem " * encoders.MAX_CHARACTERS


def test_a_short_text_is_read_as_it_is_and_a_long_one_at_its_ends() -> None:
    assert keep_both_ends("What is it?", 11) == "What is it?"
    assert keep_both_ends("beginning and end", 6) == "beg\nend"


def test_half_of_a_surrogate_pair_can_be_read() -> None:
    assert keep_both_ends("what is \ud83d?", 20) == "what is ??"
    assert keep_both_ends("🙂 is what?", 4) == "🙂 \nt?"
    torn, whole = HashedEncoder.fit(TEXTS).encode([f"{SUMS[0]} \ud83d", f"{SUMS[0]} ?"])
    assert torn == pytest.approx(whole)


def test_the_words_between_the_ends_of_a_long_question_are_not_read() -> None:
    scores = WordScores.fit(TokenCounts.of(TEXTS), REWARDS)
    plain = f"{PLAYS[0]} {BETWEEN} {PLAYS[1]}"
    hidden = f"{PLAYS[0]} {BETWEEN[: len(BETWEEN) // 2]} {SUMS[0] * 100} {BETWEEN} {PLAYS[1]}"
    one, other = scores.score(TokenCounts.of([plain, hidden]))
    assert one == pytest.approx(other, abs=1e-6)


def test_an_encoder_of_words_reads_no_more_than_both_ends_either() -> None:
    encoder = HashedEncoder.fit([*TEXTS, BETWEEN])
    plain, hidden = encoder.encode(
        [f"{PLAYS[0]} {BETWEEN}", f"{PLAYS[0]} {BETWEEN} {SUMS[0] * 100} {BETWEEN}"]
    )
    assert plain == pytest.approx(hidden, abs=1e-6)


@pytest.mark.parametrize("question", [f"{BETWEEN} {PLAYS[0]}", f"{PLAYS[0]} {BETWEEN}"])
def test_both_ends_of_a_long_question_have_a_say(question: str) -> None:
    scores = WordScores.fit(TokenCounts.of(TEXTS), REWARDS)
    (said,), (unsaid,) = (
        scores.score(TokenCounts.of([question])),
        scores.score(TokenCounts.of([BETWEEN])),
    )
    assert said[0] < unsaid[0]
    encoder = HashedEncoder.fit([*TEXTS, BETWEEN])
    vectors = encoder.encode([question, BETWEEN, PLAYS[0]])
    assert vectors[0] @ vectors[2] > vectors[1] @ vectors[2]


def test_the_page_says_how_many_characters_are_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "routing.md").read_text("utf-8")
    words = " ".join(page.split())
    assert f"the first and the last {MAX_CHARACTERS // 2:,} characters" in words
    assert f"{encoders.MAX_CHARACTERS:,} characters take the place of the tokens" in words


def test_the_page_says_that_no_file_keeps_how_many_characters_are_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "routing.md").read_text("utf-8")
    kept = {
        *HashedEncoder.fit(TEXTS).document(),
        *WordScores.fit(TokenCounts.of(TEXTS), REWARDS).document(),
    }
    assert kept == {"name", "weights", "basis", "buckets", "rarity", "table", "unmet"}
    said = "How many characters are read is fixed in Podium, the same for all routers, and no file"
    assert said in " ".join(page.split())
