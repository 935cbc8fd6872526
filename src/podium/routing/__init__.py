"""Routing by learning: which worker answers a question, for how much, and how surely.

    router        what was learned, and its decisions
    dial          what the position between cheapest and best means, learned from the log
    embedding     all-MiniLM-L6-v2 in numpy: vectors of questions without torch
    shipped       routers that come with Podium
    encoders      vectors of questions in general, by meaning and by words
    ends          what of a long question is read
    separable     separable CMA-ES, for routers and coordinators
    seeds         what all that is random begins with
    arrays, adam  what all of them compute with

Needs numpy and more of the extra `router`, so it is imported by whoever routes, when they do.
Asking the worker that was chosen is the conductor's business.
"""

from __future__ import annotations

from podium.routing.embedding import Embedder
from podium.routing.router import Decision, Known, LearnedRouter
from podium.routing.shipped import shipped_router

__all__ = ["Decision", "Embedder", "Known", "LearnedRouter", "shipped_router"]
