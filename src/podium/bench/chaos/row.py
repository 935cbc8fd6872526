"""What `podium bench chaos` found: a row for each part, as a table, and as one line of JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

LEAST_ANSWERED: Final = 0.99
"""The share of runs that must be answered where every worker has a fallback."""

COUNTED: Final = ("lost", "stuck", "usage_mismatch", "repeated_steps", "budget_overruns")
"""What there must be none of."""

Figure = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRow:
    """What one part found.

    `lost` runs are not in the store as they ended, or did not reach who asked as they are there;
    `stuck` ones did not end in time. `answered_share` is of the runs that had a fallback and all
    the budget they needed, None where a part has none of those. `broken` says in words what else
    did not hold; `figures` are what was measured besides.
    """

    name: str
    runs: int
    lost: int = 0
    stuck: int = 0
    answered_share: float | None = None
    usage_mismatch: int = 0
    repeated_steps: int = 0
    budget_overruns: int = 0
    seconds: float = 0.0
    note: str = ""
    broken: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether nothing that is promised was broken."""
        return (
            not self.broken
            and all(getattr(self, name) == 0 for name in COUNTED)
            and (self.answered_share is None or self.answered_share >= LEAST_ANSWERED)
        )

    def document(self) -> dict[str, Any]:
        """As plain JSON values."""
        share = self.answered_share
        return {
            "name": self.name,
            "runs": self.runs,
            "lost": self.lost,
            "stuck": self.stuck,
            "answered_share": None if share is None else round(share, 5),
            "usage_mismatch": self.usage_mismatch,
            "repeated_steps": self.repeated_steps,
            "budget_overruns": self.budget_overruns,
            "seconds": round(self.seconds, 2),
            "note": self.note,
            "broken": list(self.broken),
            **({"figures": dict(self.figures)} if self.figures else {}),
        }


def row_of(document: Mapping[str, Any]) -> ChaosRow:
    """The row that `document` was made of."""
    return ChaosRow(**{**document, "broken": tuple(document["broken"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosFigures:
    """The rows of all parts that were run. `peers` stand beside ours and are in no sum."""

    parts: Sequence[ChaosRow]
    peers: Sequence[ChaosRow] = ()
    seed: int = 0
    quick: bool = False

    @property
    def holds(self) -> bool:
        """Whether every part held what is promised."""
        return all(row.holds for row in self.parts)

    @property
    def answered_share(self) -> float | None:
        """The lowest of the parts', for the promise is made for each."""
        shares = [row.answered_share for row in self.parts if row.answered_share is not None]
        return min(shares, default=None)

    def document(self) -> dict[str, Any]:
        """As plain JSON values: the sums first."""
        share = self.answered_share
        return {
            "runs": sum(row.runs for row in self.parts),
            "lost": sum(row.lost for row in self.parts),
            "stuck": sum(row.stuck for row in self.parts),
            "answered_share": None if share is None else round(share, 5),
            **{name: sum(getattr(row, name) for row in self.parts) for name in COUNTED[2:]},
            "holds": self.holds,
            "parts": [row.document() for row in self.parts],
            "peers": [row.document() for row in self.peers],
            "seed": self.seed,
            "quick": self.quick,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        }

    def as_json(self) -> str:
        """One line, for programs."""
        return json.dumps(self.document())

    def as_table(self) -> Table:
        """For people."""
        from rich.table import Table

        table = Table(title="what held while things broke" + (" (quick)" if self.quick else ""))
        table.add_column("part")
        for heading in ("runs", "lost", "stuck", "answered", "usage", "repeated", "overruns", "s"):
            table.add_column(heading, justify="right")
        table.add_column("holds")
        table.add_column("what else", overflow="fold")
        for row in (*self.parts, *self.peers):
            table.add_row(*_cells(row, is_peer=row in self.peers))
        return table


def _cells(row: ChaosRow, *, is_peer: bool) -> tuple[str, ...]:
    share = row.answered_share
    verdict = "beside" if is_peer else "yes" if row.holds else "NO"
    return (
        row.name,
        f"{row.runs:,}",
        str(row.lost),
        str(row.stuck),
        "" if share is None else f"{share:.2%}",
        str(row.usage_mismatch),
        str(row.repeated_steps),
        str(row.budget_overruns),
        f"{row.seconds:.1f}",
        verdict,
        "; ".join((*row.broken, row.note) if row.note else row.broken),
    )
