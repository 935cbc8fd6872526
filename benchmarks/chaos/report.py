"""The results of `benchmarks chaos`: text, JSON and the table of benchmarks/chaos/README.md.

python -m benchmarks.chaos.report results/chaos.json benchmarks/chaos/README.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.report import NONE_YET, machine, markdown_row
from podium._util.files import replace_parts

_MADE: Final = "made by python -m benchmarks.chaos.report, not by hand"

MIN_ANSWERED: Final = 0.99
"""The share of runs that must be answered where every worker has a fallback."""

COUNTED: Final = ("lost", "stuck", "usage_mismatch", "repeated_steps", "budget_overruns")
"""Counts that must be zero."""

_HEAD: Final = """\
| part | runs | lost | stuck | answered | usage | repeated | overruns | s | what else |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"""

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


def read_row(document: Document) -> ChaosRow:
    return ChaosRow(**{**document, "broken": tuple(document["broken"])})


def summarize(
    rows: Sequence[ChaosRow], seed: int, *, quick: bool, earlier: Document | None = None
) -> dict[str, Any]:
    """Return the rows as JSON with their sums.

    Other rows of an `earlier` document of the same seed and extent are kept.
    """
    if earlier is not None and (earlier["seed"], earlier["quick"]) == (seed, quick):
        kept = map(read_row, earlier["parts"])
        rows = list({row.name: row for row in (*kept, *rows)}.values())
    shares = [row.answered_share for row in rows if row.answered_share is not None]
    return {
        **{name: sum(getattr(row, name) for row in rows) for name in ("runs", *COUNTED)},
        "answered_share": round(min(shares), 5) if shares else None,
        "holds": all(row.holds for row in rows),
        "not_tried": [row.name for row in rows if row.not_tried],
        "parts": [{**asdict(row), "broken": list(row.broken)} for row in rows],
        "seed": seed,
        "quick": quick,
        **machine(),
    }


def update_page(page: str, results: Path) -> str:
    """Return the page with the results of that file between its marks."""
    is_there = results.is_file()
    text = figures_text(json.loads(results.read_text("utf-8"))) if is_there else NONE_YET
    return replace_parts(page, _MADE, {"figures": text + "\n"})


def figures_text(document: Document) -> str:
    """Return the table of a document's rows, and what it was measured with."""
    untried = ", ".join(document["not_tried"])
    of = "a tenth of everything" if document["quick"] else "everything"
    return "\n".join(
        (
            _HEAD,
            *(_markdown(read_row(row)) for row in document["parts"]),
            "",
            f"With seed {document['seed']}, {of}, on {document['cpus']} cores and Python "
            f"{document['python']}. Every promise{' that was tried' if untried else ''} held: "
            f"{'yes' if document['holds'] else 'NO'}."
            f"{f' Not tried: {untried}.' if untried else ''}",
        )
    )


def _markdown(row: ChaosRow) -> str:
    words = f"not tried: {row.not_tried}" if row.not_tried else "; ".join((*row.broken, row.note))
    escaped = words.replace("|", "\\|")
    if row.not_tried:
        return f"| {row.name} |{' |' * 8} {escaped} |"
    share = "" if row.answered_share is None else f"{row.answered_share:.2%}"
    counts = (row.usage_mismatch, row.repeated_steps, row.budget_overruns)
    begin = (row.name, f"{row.runs:,}", row.lost, row.stuck, share)
    return markdown_row((*begin, *counts, f"{row.seconds:.0f}", escaped))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(update_page(target.read_text("utf-8"), source), "utf-8")
