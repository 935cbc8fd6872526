"""Who does what: how the steps of a strategy are spread over workers and roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from podium.core.roles import Role
from podium.evals.page.axes import SMALL, WIDTH, shortened
from podium.evals.page.numbers import percent
from podium.evals.page.scene import Box, Scene, Shape, Words
from podium.evals.tables.row import Row

NAMES: Final = 106.0
"""How wide the column of the workers' names is."""

WIDE: Final = (WIDTH - NAMES) / (len(Role) + 1)
"""How wide the column of a role is, and the last one, of all roles together."""

CELL, GAP, HEAD = 30.0, 3.0, 26.0
MOST_WORKERS: Final = 16
LEAST_INK, MOST_INK = 0.05, 0.6
"""How much colour a cell has: so little for nothing, and no more than lets its number be read."""

_SHORT: Final = {Role.HAND_OVER: "hand over"}


def who_does_what(row: Row) -> Scene:
    """A cell for each worker and role: the share of all steps that it stands for."""
    counts = row.workers_by_role
    workers = [name for name, _ in row.worker_counts.most_common(MOST_WORKERS)]
    shapes: list[Shape] = [
        Words(NAMES + WIDE * (place + 0.5), 16, _SHORT.get(role, role.value), "muted", 10, "middle")
        for place, role in enumerate(Role)
    ]
    shapes.append(Words(WIDTH - WIDE / 2, 16, "all", "muted", SMALL, "middle"))
    for line, worker in enumerate(workers):
        shapes += _line(worker, counts, HEAD + line * (CELL + GAP))
    described = "; ".join(
        f"{worker} {role} {percent(count / counts.total())}"
        for (worker, role), count in counts.most_common()
    )
    height = HEAD + len(workers) * (CELL + GAP) + 4
    title = f"Who does what: {row.strategy}"
    return Scene("who-does-what", title, described, WIDTH, height, shapes)


def _line(worker: str, counts: Counter[tuple[str, str]], y: float) -> Iterator[Shape]:
    """The name of a worker, its cells, and its share of all steps."""
    total, most = counts.total(), max(counts.values())
    letters = y + CELL / 2 + 4
    yield Words(0, letters, shortened(worker, int(NAMES / (SMALL * 0.58))), size=SMALL + 1)
    for place, role in enumerate(Role):
        count, x = counts[worker, role.value], NAMES + WIDE * place
        shade = LEAST_INK + (MOST_INK - LEAST_INK) * count / most
        hint = f"{worker}, {role.value}: {count} of {total} steps"
        yield Box(x, y, WIDE - GAP, CELL, "conducted", shade, hint)
        if count:
            middle = x + (WIDE - GAP) / 2
            yield Words(middle, letters, _share(count, total), "ink", SMALL, "middle")
    share = _share(sum(counts[worker, role.value] for role in Role), total)
    yield Words(WIDTH - WIDE / 2, letters, share, "ink", SMALL, "middle", bold=True)


def _share(count: int, total: int) -> str:
    share = count / total * 100
    return f"{share:.0f}" if share >= 1 else "<1"
