from __future__ import annotations

from pathlib import Path

import pytest

from podium.conductors.routing.arrays import keep_both_ends

np = pytest.importorskip("numpy")

from podium.conductors.routing import encoders
from podium.conductors.routing.encoders import HashedEncoder
from support.routing import PLAYS, SUMS

TEXTS = (*SUMS, *PLAYS) * 30
BETWEEN = "lorem " * encoders.MAX_CHARACTERS


def test_a_short_text_is_read_as_it_is_and_a_long_one_at_its_ends() -> None:
    assert keep_both_ends("What is it?", 11) == "What is it?"
    assert keep_both_ends("beginning and end", 6) == "beg\nend"


def test_half_of_a_surrogate_pair_can_be_read() -> None:
    assert keep_both_ends("what is \ud83d?", 20) == "what is ??"
    assert keep_both_ends("🙂 is what?", 4) == "🙂 \nt?"
    torn, whole = HashedEncoder.fit(TEXTS).encode([f"{SUMS[0]} \ud83d", f"{SUMS[0]} ?"])
    assert torn == pytest.approx(whole)


def test_an_encoder_of_words_reads_no_more_than_both_ends_either() -> None:
    encoder = HashedEncoder.fit([*TEXTS, BETWEEN])
    plain, hidden = encoder.encode(
        [f"{PLAYS[0]} {BETWEEN}", f"{PLAYS[0]} {BETWEEN} {SUMS[0] * 100} {BETWEEN}"]
    )
    assert plain == pytest.approx(hidden, abs=1e-6)


@pytest.mark.parametrize("question", [f"{BETWEEN} {PLAYS[0]}", f"{PLAYS[0]} {BETWEEN}"])
def test_both_ends_of_a_long_question_have_a_say(question: str) -> None:
    encoder = HashedEncoder.fit([*TEXTS, BETWEEN])
    vectors = encoder.encode([question, BETWEEN, PLAYS[0]])
    assert vectors[0] @ vectors[2] > vectors[1] @ vectors[2]


def test_the_page_says_how_many_characters_are_read() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "routing.md").read_text("utf-8")
    words = " ".join(page.split())
    assert f"the first and the last {encoders.MAX_CHARACTERS // 2:,} characters" in words
