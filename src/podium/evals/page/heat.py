"""Who does what: how the steps of a strategy are spread over workers and roles."""

from __future__ import annotations

from typing import Final

from podium.evals.page.axes import SMALL, WIDTH, shortened
from podium.evals.page.numbers import percent
from podium.evals.page.scene import Box, Scene, Shape, Words
from podium.evals.roles import Role
from podium.evals.row import Row

NAMES: Final = 106.0
"""How wide the column of the workers' names is."""

CELL, GAP, HEAD = 30.0, 3.0, 26.0
MOST_WORKERS: Final = 16
LEAST_INK, MOST_INK = 0.05, 0.6
"""How much colour a cell has: so little for nothing, and no more than lets its number be read."""

_SHORT: Final = {Role.HAND_OVER: "hand over"}


def who_does_what(row: Row) -> Scene:
    """A cell for each worker and role: the share of all steps that it stands for."""
    counts = row.workers_by_role
    total = sum(counts.values()) or 1
    workers = [name for name, _ in row.worker_counts.most_common(MOST_WORKERS)]
    columns = [*Role]
    wide = (WIDTH - NAMES) / (len(columns) + 1)
    shapes: list[Shape] = [
        Words(NAMES + wide * (place + 0.5), 16, _SHORT.get(role, role.value), "muted", 10, "middle")
        for place, role in enumerate(columns)
    ]
    shapes.append(Words(WIDTH - wide / 2, 16, "all", "muted", SMALL, "middle"))
    most = max(counts.values(), default=1)
    for line, worker in enumerate(workers):
        y = HEAD + line * (CELL + GAP)
        name = shortened(worker, int(NAMES / (SMALL * 0.58)))
        shapes.append(Words(0, y + CELL / 2 + 4, name, size=SMALL + 1))
        for place, role in enumerate(columns):
            count = counts[worker, role.value]
            hint = f"{worker}, {role.value}: {count} of {total} steps"
            shade = LEAST_INK + (MOST_INK - LEAST_INK) * count / most
            x = NAMES + wide * place
            shapes.append(Box(x, y, wide - GAP, CELL, "conducted", shade, hint))
            if count:
                middle, told = x + (wide - GAP) / 2, _share(count, total)
                shapes.append(Words(middle, y + CELL / 2 + 4, told, "ink", SMALL, "middle"))
        share = _share(sum(counts[worker, role.value] for role in columns), total)
        shapes.append(
            Words(WIDTH - wide / 2, y + CELL / 2 + 4, share, "ink", SMALL, "middle", True)
        )
    described = "; ".join(
        f"{worker} {role} {percent(count / total)}"
        for (worker, role), count in counts.most_common()
    )
    height = HEAD + len(workers) * (CELL + GAP) + 4
    title = f"Who does what: {row.strategy}"
    return Scene("who-does-what", title, described, WIDTH, height, shapes)


def _share(count: int, total: int) -> str:
    share = count / total * 100
    return f"{share:.0f}" if share >= 1 else "<1"
