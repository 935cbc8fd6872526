from __future__ import annotations

import re

import pytest

from podium_lab.etudes import FAMILIES, Split
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.etude import (
    CLAUSE_KINDS,
    connectives,
    nestings,
    phrases,
    references,
    wording,
)
from podium_lab.etudes.skills import SKILLS
from podium_lab.etudes.values import read_table
from podium_lab.etudes.workers import ROLES, descriptions


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_has_many_phrasings_and_others_for_testing(skill: str) -> None:
    train = [phrase.template for phrase in phrases(skill, "train")]
    test = [phrase.template for phrase in phrases(skill, "test")]
    assert len(set(train)) == len(train) >= 8
    assert len(set(test)) == len(test) >= 4
    assert {_with_any_slots(text) for text in train}.isdisjoint(map(_with_any_slots, test))


def _with_any_slots(template: str) -> str:
    """The words alone: exchanging the arguments makes no new phrasing."""
    return re.sub(r"\{\w+\}", "{}", template)


@pytest.mark.parametrize("skill", SKILLS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_phrase_has_a_slot_for_every_argument_once(skill: str, split: Split) -> None:
    for _, template in phrases(skill, split):
        for slot in SKILLS[skill].slots:
            assert template.count(f"{{{slot}}}") == 1, template
        assert template.count("{") == len(SKILLS[skill].slots), template


def test_no_phrase_means_two_skills() -> None:
    seen: dict[str, str] = {}
    for skill in SKILLS:
        for split in SPLITS:
            for _, template in phrases(skill, split):
                assert seen.setdefault(template, skill) == skill, template


def test_connecting_words_of_the_splits_are_disjoint() -> None:
    tables = wording()
    for name in ("orders", "frames", "reference", "references"):
        train, test = tables[name]["train"], tables[name]["test"]
        for group in train:
            assert set(train[group]).isdisjoint(test[group]), (name, group)
    assert set(connectives("train")).isdisjoint(connectives("test"))
    assert {n.frame for n in nestings("train")}.isdisjoint(n.frame for n in nestings("test"))
    for size in (1, 2, 3):
        known, new = references("train", size), references("test", size)
        assert set(known.plain + known.pronoun).isdisjoint(new.plain + new.pronoun)


def test_descriptions_of_the_splits_are_disjoint_and_fit_one_role() -> None:
    seen: dict[str, str] = {}
    for role in ROLES:
        train, test = descriptions(role, "train"), descriptions(role, "test")
        assert len(train) >= 6
        assert len(test) >= 3
        assert set(train).isdisjoint(test)
        for line in (*train, *test):
            assert seen.setdefault(line, role) == role


@pytest.mark.parametrize("family", FAMILIES)
def test_a_table_of_phrases_holds_the_skills_of_its_family(family: str) -> None:
    table = read_table(f"phrases/{family}.toml")
    assert set(table) == {name for name, skill in SKILLS.items() if skill.family == family}
    for splits in table.values():
        assert set(splits) == set(SPLITS)
        assert all(set(by_kind) == set(CLAUSE_KINDS) for by_kind in splits.values())
