"""Print the choices of the études' router for unseen questions: the table in
docs/reference/etudes.md.

    python scripts/embedded_choices.py

No worker is called: the right choice for an étude of one skill is its specialist, for an everyday
question the generalist, and for an étude of several steps the conductor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Final

from podium.client.assembly import load_router
from podium.config import load
from podium.config.sources import ETUDES_POOL
from podium_lab.etudes import Etudes, everyday_questions
from podium_lab.etudes.shapes import USUAL, EtudeShape
from podium_lab.etudes.workers import GENERALIST

SEED: Final = 0
OF_EACH_KIND: Final = 300
CONDUCTOR: Final = ""


def main() -> None:
    """Print the table, a line for each kind of question."""
    for line in asyncio.run(_lines()):
        print(line)  # noqa: T201 - it is a script


async def _lines() -> list[str]:
    settings = load(ETUDES_POOL)
    mini = load_router(settings)
    assert mini is not None, "the études' pool has a router"
    lines = []
    for kind, questions in _questions().items():
        right = escalated = 0
        for question, owner in questions:
            routed = await mini.decide(question, settings.pool, None)
            escalated += routed.escalated
            right += not routed.escalated and routed.worker == owner
        wrong = len(questions) - right - escalated
        lines.append(f"{len(questions)} {kind}: {right} right, {escalated} passed on, {wrong} else")
    return lines


def _questions() -> dict[str, list[tuple[str, str]]]:
    """Return questions of each kind, each with the right choice."""
    several = dict(USUAL)
    del several[EtudeShape.ONE]
    return {
        "of one skill": list(_etudes({EtudeShape.ONE: 1.0})),
        "of several steps": [(question, CONDUCTOR) for question, _ in _etudes(several)],
        "everyday": [(question, GENERALIST) for question in everyday_questions("test")],
    }


def _etudes(shapes: dict[EtudeShape, float]) -> Iterator[tuple[str, str]]:
    for etude in islice(Etudes(SEED, "test").stream(shapes), OF_EACH_KIND):
        yield etude.question, etude.families[0]


if __name__ == "__main__":
    main()
