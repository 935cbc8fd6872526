from __future__ import annotations

import pytest

from podium.tasks.answers import (
    ParsedNumber,
    chosen_letter,
    extract_answer,
    is_same_text,
    normalise_text,
    only_number,
    stated_number,
    whole_number,
)


def test_the_answer_is_inside_the_last_pair_of_tags() -> None:
    reply = "<idea>maybe <answer>3</answer></idea>\n<Answer>\n 4 </ANSWER> so be it"
    assert extract_answer(reply, tagged=True) == "4"


def test_without_tags_the_whole_reply_is_the_answer() -> None:
    assert extract_answer(" 4\n", tagged=False) == "4"


@pytest.mark.parametrize("reply", ["4", "<answer>4", "4</answer>", "</answer>4<answer>", ""])
def test_tagged_answers_need_a_pair_of_tags(reply: str) -> None:
    assert extract_answer(reply, tagged=True) is None


def test_an_unclosed_tag_after_a_pair_does_not_hide_the_pair() -> None:
    assert extract_answer("<answer>4</answer><answer>5", tagged=True) == "4"


def test_plain_text_keeps_the_words_alone() -> None:
    assert normalise_text(' **The  Capital**. \n"') == "the capital"


def test_an_answer_of_signs_alone_is_compared_as_it_is() -> None:
    assert is_same_text("* ", "*")
    assert not is_same_text(".", "*")


@pytest.mark.parametrize(
    "text",
    [
        "C",
        "c",
        "(C)",
        "C.",
        "C) Paris",
        "**C**",
        "C: Paris",
        "The answer is C.",
        "The answer is (C) Paris",
        "Answer: C",
        "\\boxed{C}",
        "$\\boxed{\\text{C}}$",
        "I weighed A and B. The correct option is C.",
    ],
)
def test_a_letter_is_found_however_it_is_given(text: str) -> None:
    assert chosen_letter(text) == "C"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Paris",
        "A or B",
        "A dog",
        "the answer is A; no, the answer is B",
        "Cat",
        "The answer is a dog",
        "the answer I think of",
        "the answer isn't",
    ],
)
def test_a_text_that_commits_itself_to_no_letter_chooses_none(text: str) -> None:
    assert chosen_letter(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-3.50", -3.5),
        ("−7", -7),
        (".5", 0.5),
        ("1,234,567", 1234567),
        ("$1,234.", 1234),
        ("3/4", 0.75),
        ("\\frac{3}{4}", 0.75),
        ("\\frac34", 0.75),
        ("1e3", 1000),
        ("2.5 \\times 10^{-3}", 0.0025),
        ("2 x 10^4", 20000),
        ("**12**", 12),
    ],
)
def test_a_number_is_read_however_it_is_written(text: str, value: float) -> None:
    found = whole_number(text)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert not found.percent


@pytest.mark.parametrize("text", ["", "twelve", "1/0", "1e999", "1,23,4", "3 apples", "1 2", "1,2"])
def test_partial_numbers_are_none(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("18 dollars", "She makes $18.", "x = 18", "18 m^2", "18\\%"),
        *("18\\text{ cm}^2", "18 \\mathrm{m}", "\\boxed{18}", "18 km"),
    ],
)
def test_the_only_number_of_a_text_is_found(text: str) -> None:
    found = only_number(text)
    assert found is not None
    assert found.value == 18


@pytest.mark.parametrize(
    "text", ["\\sqrt{18}", "18\\pi", "√18", "\\log 18", "\\pm 18", "18i", "18k", "x^{18}", "{18}^2"]
)
def test_a_number_that_something_else_is_made_of_is_not_the_answer(text: str) -> None:
    assert only_number(text) is None


@pytest.mark.parametrize("text", ["18 of 20", "none", "18 million", "9 + 9 = 18"])
def test_with_several_numbers_or_none_there_is_no_only_number(text: str) -> None:
    assert only_number(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("9 + 9 = 18", "9 + 9 equals 18.", "The sum of 9 and 9 is **18**.", "18 apples"),
        *("He has 9 and she 9.\n18", "In 3 weeks: 18 hours"),
    ],
)
def test_a_number_is_stated_at_the_end(text: str) -> None:
    found = stated_number(text)
    assert found is not None
    assert found.value == 18


@pytest.mark.parametrize("text", ["18 of 20", "There are 18 days in 3 weeks.", "It is 18 million"])
def test_of_several_numbers_none_is_chosen(text: str) -> None:
    assert stated_number(text) is None


@pytest.mark.parametrize(
    ("given", "reference", "close"),
    [
        ("50%", "0.5", True),
        ("50%", "50", True),
        ("0.5", "50%", True),
        ("50", "50%", True),
        ("50%", "50 percent", True),
        ("50%", "5000", False),
        ("0.5", "0.5%", True),
        ("0.5", "50", False),
        ("50%", "0.5%", False),
    ],
)
def test_a_percentage_may_be_meant_either_way_unless_both_are_written_so(
    given: str, reference: str, close: bool
) -> None:
    one, other = whole_number(given), whole_number(reference)
    assert one is not None
    assert other is not None
    assert one.is_close(other, 1e-6) is close


def test_the_tolerance_is_a_share_of_the_reference() -> None:
    assert ParsedNumber(1000.9).is_close(ParsedNumber(1000), 1e-3)
    assert not ParsedNumber(1001.1).is_close(ParsedNumber(1000), 1e-3)
    assert not ParsedNumber(0.001).is_close(ParsedNumber(0), 1e-3)
