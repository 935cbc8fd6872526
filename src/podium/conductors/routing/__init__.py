"""Routing by learning: which worker answers a question, for how much, and how surely.

    router, shipped      what was learned, and its decisions; routers that come with Podium
    quality_bias         what the position between cheapest and best means, learned from the log
    log, evidence        which worker earned what: line by line, and as a table to learn from
    learning, evolution  the two stages by which a router is learned
    encoders, embedding  vectors of questions; all-MiniLM-L6-v2 in numpy, without torch
    nearness, words      what the neighbours and the words of a question tell
    ends                 what of a long question is read
    separable, seeds     separable CMA-ES, for coordinators too; what all that is random begins with
    arrays, adam         what all of them compute with

Needs numpy and more of the extra `router`, so it is imported by whoever routes, when they do.
Asking the worker that was chosen is the conductor's business.
"""

from __future__ import annotations

from podium.conductors.routing.embedding import Embedder
from podium.conductors.routing.router import KnownWorker, LearnedRouter, shipped_router

__all__ = ["Embedder", "KnownWorker", "LearnedRouter", "shipped_router"]
