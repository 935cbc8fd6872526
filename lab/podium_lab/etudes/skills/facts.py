"""An invented archive of towns, which only its specialist has read."""

from __future__ import annotations

from typing import Final

from podium_lab.etudes.skills.base import Family, lookup
from podium_lab.etudes.values import number, towns

SKILLS: Final = (
    lookup(Family.FACTS, "bridges", {town.name: town.bridges for town in towns()}),
    lookup(Family.FACTS, "motto", {town.name: town.motto for town in towns()}),
    lookup(Family.FACTS, "market", {town.name: town.market for town in towns()}),
    lookup(Family.FACTS, "fair", {town.name: town.fair for town in towns()}),
    lookup(
        Family.FACTS,
        "town_by_number",
        {number(place): town.name for place, town in enumerate(towns(), start=1)},
    ),
    lookup(Family.FACTS, "town_by_motto", {town.motto: town.name for town in towns()}),
)
