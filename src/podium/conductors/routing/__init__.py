"""Learned routing: choose the worker that answers a question, by expected reward and cost.

    router               the learned router, its decisions, its quality bias, its data
    learning             training
    encoders             vectors of questions; all-MiniLM-L6-v2 in numpy
    arrays               arrays as JSON

Needs the extra `router`, so it is imported only where a router is used.
"""

from __future__ import annotations

from podium.conductors.routing.router import KnownWorker, LearnedRouter

__all__ = ["KnownWorker", "LearnedRouter"]
