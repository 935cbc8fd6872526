"""The skills of the seven families, by name.

arithmetic   sums, differences, products, doubles, halves
lists        largest, smallest, first, last, count, ascending order
words        opposites, plurals, letters, alphabetical order, hyphens
calendar     weekdays, months, seasons
facts        an invented archive of towns
translation  Esperanto
codes        Roman numerals, places in the alphabet, units
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from podium_lab.etudes.skills import arithmetic, calendar, codes, knowledge, lists, words
from podium_lab.etudes.skills.base import COUNT, FAMILIES, ITEMS, Arguments, Family, Skill

SKILLS: Final = MappingProxyType(
    {
        skill.name: skill
        for module in (arithmetic, lists, words, calendar, knowledge, codes)
        for skill in module.SKILLS
    }
)

__all__ = ["COUNT", "FAMILIES", "ITEMS", "SKILLS", "Arguments", "Family", "Skill"]
