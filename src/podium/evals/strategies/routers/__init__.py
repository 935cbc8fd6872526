"""Routers that are learned: who answers a question, from who was right on others.

    constant          always the worker that was best in training
    neighbours        the worker that was best on the most similar questions
    router            Podium's own: soft targets, then evolution (`podium.routing`)
    routerdc          RouterDC, by dual contrastive learning
    smoothie          Smoothie, global: whose replies agree with everybody's, without labels
    smoothie-local    the same near the question
    masrouter         MASRouter: not one worker, but a plan of several

They need numpy, and `router` the package cmaes beside it. What they learn from is found out in
`podium.evals.strategies.fit`; they are written down and read back by
`podium.evals.strategies.learned`. Only what learns imports this package, when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from podium.evals.strategies.routers.base import (
    ConstantRouter,
    HeadRouter,
    NeighbourRouter,
    Outcomes,
    Router,
    chosen,
)
from podium.evals.strategies.routers.encoder import MakeEncoder, encoder_maker
from podium.evals.strategies.routers.masrouter import MasRouter
from podium.evals.strategies.routers.routerdc import RouterDC
from podium.evals.strategies.routers.smoothie import SmoothieGlobal, SmoothieLocal


class RouterKind(Protocol):
    """A class of routers: how one is learned, and how one is read back."""

    def fitted(self, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> Router:
        """The router that comes of these outcomes."""
        ...

    def read(self, workers: tuple[str, ...], document: Mapping[str, Any]) -> Router:
        """The router that was written down."""
        ...


ROUTERS: Final[Mapping[str, RouterKind]] = MappingProxyType(
    {
        "constant": ConstantRouter,
        "neighbours": NeighbourRouter,
        "router": HeadRouter,
        "routerdc": RouterDC,
        "smoothie": SmoothieGlobal,
        "smoothie-local": SmoothieLocal,
    }
)
"""The routers that choose one worker, by the names of their strategies."""

__all__ = [
    "ROUTERS",
    "ConstantRouter",
    "HeadRouter",
    "MakeEncoder",
    "MasRouter",
    "NeighbourRouter",
    "Outcomes",
    "Router",
    "RouterDC",
    "RouterKind",
    "SmoothieGlobal",
    "SmoothieLocal",
    "chosen",
    "encoder_maker",
]
