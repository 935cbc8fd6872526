from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from podium.core.errors import UsageError
from podium_lab.etudes import FAMILIES, Split
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.oracle import oracle_reply, read_message, readings
from podium_lab.etudes.training import SpecialistExample, make_specialist_examples
from podium_lab.etudes.values import UNSURE


def some(
    family: str, size: int = 400, split: Split = "train", **more: float
) -> list[SpecialistExample]:
    return list(islice(make_specialist_examples(family, 1, split, **more), size))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("split", SPLITS)
def test_a_perfect_specialist_would_reply_as_the_lesson_says(family: str, split: Split) -> None:
    for prompt, reply in some(family, 250, split):
        assert oracle_reply(family, prompt) == reply, prompt


@pytest.mark.parametrize("family", FAMILIES)
def test_lessons_come_in_every_form_that_the_family_meets(family: str) -> None:
    forms = Counter(len(read_message(lesson.prompt)[1]) for lesson in some(family))
    assert forms[0] > 40
    assert forms[1] > 40
    assert forms[2] > 20
    assert sum(count for shown, count in forms.items() if shown > 2) > 10


def test_subtasks_come_as_clauses_and_as_sentences() -> None:
    subtasks = [read_message(lesson.prompt)[0] for lesson in some("arithmetic")]
    for looks in (str.islower, lambda text: text[0].isupper(), lambda text: text[-1] in ".?"):
        assert 20 < sum(looks(text) for text in subtasks) < 380


def test_the_share_of_what_is_not_its_skill_is_a_parameter() -> None:
    assert UNSURE not in {lesson.reply for lesson in some("codes", unsure_share=0.0)}
    assert {lesson.reply for lesson in some("codes", unsure_share=1.0)} == {UNSURE}
    unsure = sum(lesson.reply == UNSURE for lesson in some("codes"))
    assert 0.06 < unsure / 400 < 0.15


def test_hard_skills_are_taught_more_often() -> None:
    lists = [oracle_skill("lists", lesson) for lesson in some("lists", 2000, unsure_share=0.0)]
    taught = Counter(lists)
    assert taught["ascending"] > 1.5 * taught["first"] > 0
    assert taught["largest"] > 1.5 * taught["last"] > 0
    calendar = [oracle_skill("calendar", lesson) for lesson in some("calendar", 2000)]
    assert Counter(calendar)["day_after"] > 2 * Counter(calendar)["season"] > 0


def oracle_skill(family: str, lesson: SpecialistExample) -> str:
    """The skill that the lesson is on, "" where it is none of the family's."""
    subtask, _ = read_message(lesson.prompt)
    skills = {reading.skill for reading in readings(subtask)}
    return next((skill.name for skill in skills if skill.family == family), "")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_round_may_show_the_first(family: str) -> None:
    shown = [read_message(lesson.prompt)[1] for lesson in some(family, 600, unsure_share=0.0)]
    seconds = [visible for visible in shown if any(step.before for step in visible)]
    assert 0.03 < len(seconds) / 600 < 0.1
    assert any(not visible[-1].before for visible in seconds)
    assert any(len(visible) > 1 and visible[-1].before for visible in seconds)


def test_an_input_that_was_not_known_makes_the_answer_unknown() -> None:
    spoiled = [
        lesson
        for lesson in some("arithmetic", 1000, unsure_share=1.0)
        if any(step.is_unknown for step in read_message(lesson.prompt)[1])
        and oracle_skill("arithmetic", lesson)
    ]
    assert len(spoiled) > 100


def test_irrelevant_figures_may_be_unknown() -> None:
    beside = [
        lesson
        for lesson in some("words", 1000, unsure_share=0.0)
        if any(step.is_unknown and not step.before for step in read_message(lesson.prompt)[1])
    ]
    assert len(beside) > 20


@pytest.mark.parametrize("family", ["arithmetic", "lists", "words", "translation", "codes"])
def test_nothing_else_is_shown_where_the_words_leave_open_how_many_are_meant(family: str) -> None:
    taught = [read_message(lesson.prompt) for lesson in some(family, 2000, unsure_share=0.0)]
    vague = [
        visible
        for subtask, visible in taught
        if " them" in subtask and "both" not in subtask and not any(step.before for step in visible)
    ]
    assert {len(visible) for visible in vague} == {2, 3}


def test_lessons_are_repeatable_and_differ_by_seed_split_and_family() -> None:
    assert some("facts", 30) == some("facts", 30)
    assert some("facts", 30) != list(islice(make_specialist_examples("facts", 2), 30))
    assert some("facts", 30) != some("facts", 30, "test")
    assert some("facts", 30) != some("words", 30)


def test_lessons_of_the_splits_share_no_message_with_a_subtask_of_its_own() -> None:
    train = {lesson.prompt for lesson in some("lists", 1500)}
    assert train.isdisjoint(lesson.prompt for lesson in some("lists", 400, "test"))


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'cooking'; there is arithmetic, lists"):
        next(make_specialist_examples("cooking", 0))
