"""The results of `benchmarks chaos`: JSON, and the text that benchmarks/chaos/README.md has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from benchmarks.report import machine
from podium.evals.results import markdown

MIN_ANSWERED: Final = 0.99
"""The share of runs that must be answered where every worker has a fallback."""

COUNTED: Final = ("lost", "stuck", "usage_mismatch", "repeated_steps", "budget_overruns")
"""Counts that must be zero."""

_HEADINGS: Final = (
    *("part", "runs", "lost", "stuck", "answered", "usage", "repeated", "overruns", "s"),
    "what else",
)

Figure = int | float | str | None
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRow:
    """The result of one part.

    `lost` runs differ between store and client, or are missing; `stuck` runs did not end in time.
    `answered_share` covers runs with a fallback and an unlimited budget, None if a part has none.
    `broken` lists other violations, `figures` further measurements. `not_tried` says why the part
    did not run.
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
    not_tried: str = ""
    broken: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """True if nothing promised was broken; a part that did not run broke nothing."""
        return (
            not self.broken
            and all(getattr(self, name) == 0 for name in COUNTED)
            and (self.answered_share is None or self.answered_share >= MIN_ANSWERED)
        )


def summarize(rows: Sequence[ChaosRow], seed: int, *, quick: bool) -> dict[str, Any]:
    shares = [row.answered_share for row in rows if row.answered_share is not None]
    return {
        **{name: sum(getattr(row, name) for row in rows) for name in ("runs", *COUNTED)},
        "answered_share": round(min(shares), 5) if shares else None,
        "holds": all(row.holds for row in rows),
        "not_tried": [row.name for row in rows if row.not_tried],
        "parts": [asdict(row) for row in rows],
        "seed": seed,
        "quick": quick,
        **machine(),
    }


def figures_text(document: Document) -> str:
    """Return the table of a document's rows, and what it was measured with."""
    untried = ", ".join(document["not_tried"])
    of = "a tenth of everything" if document["quick"] else "everything"
    return "\n".join(
        (
            markdown(_HEADINGS, [_cells(ChaosRow(**row)) for row in document["parts"]]),
            "",
            f"With seed {document['seed']}, {of}, on {document['cpus']} cores and Python "
            f"{document['python']}. Every promise{' that was tried' if untried else ''} held: "
            f"{'yes' if document['holds'] else 'NO'}."
            f"{f' Not tried: {untried}.' if untried else ''}",
        )
    )


def _cells(row: ChaosRow) -> list[str]:
    words = f"not tried: {row.not_tried}" if row.not_tried else "; ".join((*row.broken, row.note))
    escaped = words.replace("|", "\\|")
    if row.not_tried:
        return [row.name, *[""] * 8, escaped]
    share = "" if row.answered_share is None else f"{row.answered_share:.2%}"
    counts = (row.usage_mismatch, row.repeated_steps, row.budget_overruns)
    begin = (row.name, f"{row.runs:,}", str(row.lost), str(row.stuck), share)
    return [*begin, *map(str, counts), f"{row.seconds:.0f}", escaped]
