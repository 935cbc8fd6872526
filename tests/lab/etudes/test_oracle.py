from __future__ import annotations

import pytest

from podium.engine.requests import PriorResult, compose_prompt
from podium_lab.etudes.oracle import ROUND_BEFORE, VisibleStep, oracle_reply, read_message
from podium_lab.etudes.values import UNSURE


def message(subtask: str, *pairs: tuple[str, str]) -> str:
    shown = [PriorResult(str(n), text, reply) for n, (text, reply) in enumerate(pairs)]
    return compose_prompt(subtask, question=None, prior=shown, is_final=False)


@pytest.mark.parametrize(
    ("family", "subtask", "answer"),
    [
        ("arithmetic", "add 5 to 12", "17"),
        ("arithmetic", "Then add 5 to 12.", "17"),
        ("arithmetic", "What is 12 plus 5?", "17"),
        ("arithmetic", "9 less than 30", "21"),
        ("lists", "find the largest of 3, 9 and 4", "9"),
        ("lists", "sort 9, 3, 4", "3, 4, 9"),
        ("lists", "the item of fox, moon, sun, bell, box whose position is 2", "moon"),
        ("words", "the opposite of COLD", "warm"),
        ("calendar", "which day is 3 days after Saturday", "Tuesday"),
        ("calendar", "the season of March", "spring"),
        ("translation", "translate 12 into Esperanto", "dek du"),
        ("codes", "write 44 in Roman numerals", "XLIV"),
        ("codes", "the number of days in 3 weeks", "21"),
    ],
)
def test_a_perfect_specialist_knows_its_skill(family: str, subtask: str, answer: str) -> None:
    assert oracle_reply(family, subtask) == answer


@pytest.mark.parametrize(
    "subtask",
    [
        "the opposite of cold",
        "add 5 to it",
        "add the two results",
        "Add 5 to 12, then double it.",
        "What is the capital of Japan?",
        "",
    ],
)
def test_it_does_not_know_what_is_not_its_skill_or_lacks_its_input(subtask: str) -> None:
    assert oracle_reply("arithmetic", subtask) == UNSURE


def test_it_means_the_last_result_that_fits() -> None:
    shown = (("double 4", "8"), ("the opposite of cold", "warm"))
    assert oracle_reply("arithmetic", message("add 5 to it", *shown)) == "13"
    assert oracle_reply("translation", message("say it in Esperanto", *shown)) == "varma"


def test_a_noun_says_which_result_is_meant() -> None:
    shown = (("the fair month of Tarskal", "May"), ("the market day of Tarskal", "Monday"))
    assert oracle_reply("words", message("count the letters of that month", *shown)) == "3"
    assert oracle_reply("words", message("count the letters of that day", *shown)) == "6"


def test_two_results_are_those_that_no_later_step_has_taken() -> None:
    shown = (("double 4", "8"), ("write the Esperanto number du in digits", "2"), ("halve 6", "3"))
    chain = (shown[0], ("the largest of that number, 3, 5", "8"), shown[2])
    assert oracle_reply("lists", message("sort the two results", *shown)) == "2, 3"
    assert oracle_reply("lists", message("sort the two results", *chain)) == "3, 8"


def test_words_of_a_visible_step_stand_for_its_result() -> None:
    shown = (("the largest of 3, 9, 4", "9"), ("the number of days in May", "31"))
    subtask = "What is the sum of the largest of 3, 9, 4 and the number of days in May?"
    assert oracle_reply("arithmetic", message(subtask, *shown)) == "40"


def test_no_step_continues_from_an_unknown_result() -> None:
    shown = (("double 4", "8"), ("halve the number 12", UNSURE))
    assert oracle_reply("arithmetic", message("add 5 to it", shown[1])) == UNSURE
    assert oracle_reply("arithmetic", message("add 5 to it", *shown)) == UNSURE
    assert oracle_reply("arithmetic", message("add the two results", *shown)) == UNSURE


def test_unknown_results_that_cannot_be_meant_do_no_harm() -> None:
    shown = (("double 4", "8"), ("the opposite of cold", UNSURE))
    assert oracle_reply("arithmetic", message("add 5 to it", *shown)) == "13"
    assert oracle_reply("arithmetic", message("add 5 to it", *reversed(shown))) == "13"
    assert oracle_reply("arithmetic", message("add 5 to 12", *shown)) == "17"


def second_round(subtask: str, first: list[tuple[str, str]], *now: tuple[str, str]) -> str:
    before = [PriorResult(f"{n}{ROUND_BEFORE}", *pair) for n, pair in enumerate(first)]
    shown = [PriorResult(str(n), *pair) for n, pair in enumerate(now)]
    return compose_prompt(subtask, question=None, prior=[*before, *shown], is_final=False)


@pytest.mark.parametrize("wrong", [UNSURE, "99"])
def test_a_step_that_is_done_again_means_what_it_meant_in_the_round_before(wrong: str) -> None:
    one, two, three, total = "double 4", "halve the number 12", "double 10", "add the two results"
    done = [(one, "8"), (two, "6")]
    tried = [*done, (total, wrong)]
    assert oracle_reply("arithmetic", second_round(total, tried)) == "14"
    assert oracle_reply("arithmetic", second_round(total, [*tried, ("add 5 to it", wrong)])) == "14"
    half_done = [(one, "8"), (two, wrong), (total, wrong)]
    assert oracle_reply("arithmetic", second_round(total, half_done, (two, "6"))) == "14"
    anew = [(three, wrong), (total, wrong)]
    assert oracle_reply("arithmetic", second_round(total, anew, *done)) == "14"


def test_a_message_is_read_back_as_it_was_composed() -> None:
    shown = (("say <reply> twice", "<reply>"), ("two\n\nlines", "a\n\nb"))
    subtask, visible = read_message(message("add them", *shown))
    assert subtask == "add them"
    assert visible == tuple(VisibleStep(*pair) for pair in shown)
