"""Research baselines among routers: RouterDC, Smoothie and MASRouter. They need numpy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from podium.evals.strategies.routers import RouterClass
from podium_lab.routers.masrouter import MasRouter
from podium_lab.routers.routerdc import RouterDC
from podium_lab.routers.smoothie import SmoothieGlobal, SmoothieLocal

RESEARCH_ROUTERS: Final[Mapping[str, RouterClass]] = MappingProxyType(
    {"routerdc": RouterDC, "smoothie": SmoothieGlobal, "smoothie-local": SmoothieLocal}
)
"""Routers by the names of their strategies."""

__all__ = ["RESEARCH_ROUTERS", "MasRouter", "RouterDC", "SmoothieGlobal", "SmoothieLocal"]
