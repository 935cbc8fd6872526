from __future__ import annotations

from collections import Counter

from podium_lab.etudes.values import (
    MONTHS,
    WEEKDAYS,
    WORDS,
    esperanto_numbers,
    esperanto_words,
    number,
    opposites,
    plurals,
    towns,
)


def test_every_word_day_and_month_has_an_esperanto_word_of_its_own() -> None:
    table = esperanto_words()
    assert set(table) == {*WORDS, *WEEKDAYS, *MONTHS}
    assert max(Counter(table.values()).values()) == 1
    assert len(WORDS) >= 120


def test_numbers_in_esperanto() -> None:
    names = {int(value.text): word.text for value, word in esperanto_numbers().items()}
    assert set(names) == set(range(21))
    assert names[0] == "nul"
    assert names[9] == "naŭ"
    assert names[10] == "dek"
    assert names[19] == "dek naŭ"
    assert names[20] == "dudek"


def test_opposites_go_both_ways() -> None:
    table = opposites()
    assert all(table[table[word]] == word != table[word] for word in table)
    assert set(table) <= set(WORDS)


def test_plurals_differ_from_their_nouns() -> None:
    assert all(noun.text != plural.text for noun, plural in plurals().items())


def test_a_motto_belongs_to_one_town() -> None:
    assert len(towns()) == 60
    assert len({town.motto for town in towns()}) == 60
    assert {town.motto for town in towns()} <= set(WORDS)
    assert {town.market for town in towns()} == set(WEEKDAYS)
    assert {town.fair for town in towns()} == set(MONTHS)
    assert all(number(1) != town.bridges for town in towns())
