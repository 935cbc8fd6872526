from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from podium.engine.reply_stream import ResumableText


def hear(words: ResumableText, *pieces: str) -> str:
    return "".join(words.receive(piece) for piece in pieces)


def test_text_is_sent_as_it_comes() -> None:
    words = ResumableText()
    assert [words.receive(piece) for piece in ("a ", "b")] == ["a ", "b"]
    assert (words.sent, words.whole("a b")) == ("a b", "a b")


def test_a_continued_reply_is_sent_from_where_it_broke_off() -> None:
    words = ResumableText()
    hear(words, "one two")
    words.break_off()
    assert (words.prior_text, hear(words, " three", " four")) == ("one two", " three four")
    assert words.whole(" three four") == "one two three four"


def test_a_restarted_reply_is_not_sent_twice() -> None:
    words = ResumableText()
    hear(words, "one ", "two")
    words.break_off()
    assert [words.receive(piece) for piece in ("one", " two", " three")] == ["", "", " three"]
    assert words.whole("one two three") == "one two three"


def test_a_continuation_that_resembles_the_start_is_sent_whole() -> None:
    words = ResumableText()
    hear(words, "The cat sat. ")
    words.break_off()
    assert hear(words, "The", " dog ran.") == "The dog ran."
    assert words.whole("The dog ran.") == "The cat sat. The dog ran."


def test_a_long_repetition_is_held_back_in_no_time() -> None:
    words = ResumableText()
    pieces = [f"{number} and so on " * 10 for number in range(20_000)]
    hear(words, *pieces)
    words.break_off()
    began = time.process_time()
    assert hear(words, *pieces, "the end") == "the end"
    assert time.process_time() - began < 1.0, "not with the square of its length"


@given(st.lists(st.text("ab ", max_size=4), max_size=6), st.lists(st.text("ab ", max_size=4)))
def test_the_sent_text_is_always_a_prefix_of_the_whole(before: list[str], after: list[str]) -> None:
    words = ResumableText()
    result = hear(words, *before)
    words.break_off()
    result += hear(words, *after)
    whole = words.whole("".join(after))
    assert whole.startswith(result)
    assert result == words.sent
    assert result.startswith("".join(before))
