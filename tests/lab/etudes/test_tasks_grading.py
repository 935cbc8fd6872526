from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium_lab.etudes.etude import Etude, Etudes
from podium_lab.etudes.tasks import grade, is_answer
from podium_lab.etudes.values import Kind

ETUDES = Etudes(21).sample(400)

RIGHT = [
    ("42", "42", Kind.NUMBER),
    ("42.", "42", Kind.NUMBER),
    (" 42 \n", "42", Kind.NUMBER),
    ("**42**", "42", Kind.NUMBER),
    ("The answer is 42.", "42", Kind.NUMBER),
    ("The answer is **42**.", "42", Kind.NUMBER),
    ("Answer: 42", "42", Kind.NUMBER),
    ("The correct answer is 42!", "42", Kind.NUMBER),
    ("It's 42", "42", Kind.NUMBER),
    ("= 42", "42", Kind.NUMBER),
    ("12 plus 30 is 42.", "42", Kind.NUMBER),
    ("12 + 30 = 42", "42", Kind.NUMBER),
    ("6 x 7 = 42 feet", "42", Kind.NUMBER),
    ("6 * 7 = 42", "42", Kind.NUMBER),
    ("31 days", "31", Kind.NUMBER),
    ("may", "May", Kind.MONTH),
    ("The month is May.", "May", Kind.MONTH),
    ("the month May", "May", Kind.MONTH),
    ('"hundo"', "hundo", Kind.ESPERANTO),
    ("The letter J", "J", Kind.LETTER),
    ("`XIV`", "XIV", Kind.ROMAN),
    ("3,4 , 9", "3, 4, 9", Kind.LIST),
    ("[3, 4, 9]", "3, 4, 9", Kind.LIST),
    ("3, 4 and 9", "3, 4, 9", Kind.LIST),
    ("3, 4, and 9.", "3, 4, 9", Kind.LIST),
    ("Moon-River", "moon-river", Kind.TEXT),
    ("au\u0306tuno", "a\u016dtuno", Kind.ESPERANTO),
]

WRONG = [
    ("", "42", Kind.NUMBER),
    ("43", "42", Kind.NUMBER),
    ("142", "42", Kind.NUMBER),
    ("42.5", "42", Kind.NUMBER),
    ("-42", "42", Kind.NUMBER),
    ("4 2", "42", Kind.NUMBER),
    ("42, 43", "42", Kind.NUMBER),
    ("42 or 43", "42", Kind.NUMBER),
    ("41 or 42", "42", Kind.NUMBER),
    ("The answer is 42 or 43.", "42", Kind.NUMBER),
    ("The answer is 41. The answer is 42.", "42", Kind.NUMBER),
    ("41\n42", "42", Kind.NUMBER),
    ("Is it 41? It is 42.", "42", Kind.NUMBER),
    ("The answer is not 42", "42", Kind.NUMBER),
    ("It is not 41, it is 42", "42", Kind.NUMBER),
    ("41 is close, but the answer is 42", "42", Kind.NUMBER),
    ("12 plus 31 is 42.", "42", Kind.NUMBER),
    ("41 = 42", "42", Kind.NUMBER),
    ("6 x 7 = 41 = 42", "42", Kind.NUMBER),
    ("I do not know.", "42", Kind.NUMBER),
    ("42 " * 200, "42", Kind.NUMBER),
    ("March is not it, the month is May", "May", Kind.MONTH),
    ("April comes before, so it is May", "May", Kind.MONTH),
    ("May June", "May", Kind.MONTH),
    ("hund", "hundo", Kind.ESPERANTO),
    ("autuno", "a\u016dtuno", Kind.ESPERANTO),
    ("XIIII", "XIV", Kind.ROMAN),
    ("3, 9, 4", "3, 4, 9", Kind.LIST),
    ("3, 4", "3, 4, 9", Kind.LIST),
    ("3, 4, 9, 9", "3, 4, 9", Kind.LIST),
    ("moon river", "moon-river", Kind.TEXT),
    ("river-moon", "moon-river", Kind.TEXT),
]


@pytest.mark.parametrize(("reply", "answer", "kind"), RIGHT)
def test_trivial_wrapping_does_no_harm(reply: str, answer: str, kind: Kind) -> None:
    assert is_answer(reply, answer, kind, "What is 12 plus 30?")


@pytest.mark.parametrize(("reply", "answer", "kind"), WRONG)
def test_anything_but_the_one_right_value_is_wrong(reply: str, answer: str, kind: Kind) -> None:
    assert not is_answer(reply, answer, kind, "What is 12 plus 30?")


def test_a_sentence_may_repeat_what_the_question_names() -> None:
    question = "Tell me which of 3, 9, 4 is the largest."
    assert is_answer("The largest of 3, 9, 4 is 9.", "9", Kind.NUMBER, question)
    assert not is_answer("The largest of 3, 8, 4 is 9.", "9", Kind.NUMBER, question)


@pytest.mark.parametrize("wrapping", ["{}", "{}.", " {} ", "**{}**", "The answer is {}.", '"{}"'])
def test_every_answer_is_right_in_every_wrapping(etudes: list[Etude], wrapping: str) -> None:
    for etude in etudes[::4]:
        assert grade(wrapping.format(etude.answer), etude), etude.answer
        assert grade(wrapping.format(etude.answer.upper()), etude), etude.answer


@given(one=st.sampled_from(ETUDES), other=st.sampled_from(ETUDES))
def test_the_answer_of_another_etude_is_wrong_unless_it_is_the_same(
    one: Etude, other: Etude
) -> None:
    same = one.answer.casefold() == other.answer.casefold()
    assert grade(other.answer, one) is same
    assert grade(f"The answer is {other.answer}.", one) is same


@given(etude=st.sampled_from(ETUDES), other=st.sampled_from(ETUDES))
def test_a_reply_with_two_candidates_is_wrong(etude: Etude, other: Etude) -> None:
    for reply in (f"{etude.answer} or {other.answer}", f"{other.answer}. {etude.answer}"):
        assert not grade(reply, etude)
        assert not grade(f"The answer is {reply}", etude)


@given(reply=st.text(max_size=40), etude=st.sampled_from(ETUDES))
def test_no_text_breaks_the_grader_and_rubbish_is_wrong(reply: str, etude: Etude) -> None:
    if etude.answer.casefold() not in reply.casefold():
        assert not grade(reply, etude)
