"""The results of `benchmarks chaos`: text, JSON and the table of benchmarks/chaos/README.md.

python -m benchmarks.chaos.report results/chaos.json benchmarks/chaos/README.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.report import NONE_YET, machine, markdown_row
from podium._util.files import replace_parts

_MADE: Final = "made by python -m benchmarks.chaos.report, not by hand"

MIN_ANSWERED: Final = 0.99
"""The share of runs that must be answered where every worker has a fallback."""

COUNTED: Final = ("lost", "stuck", "usage_mismatch", "repeated_steps", "budget_overruns")
"""Counts that must be zero."""

HEADINGS: Final = (
    *("part", "runs", "lost", "stuck", "answered"),
    *("usage", "repeated", "overruns", "s"),
)
_RULE: Final = ("---", *["--:"] * 8, "---")
Figure = int | float | str | None


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
        """True if nothing promised was broken."""
        return (
            not self.broken
            and all(getattr(self, name) == 0 for name in COUNTED)
            and (self.answered_share is None or self.answered_share >= MIN_ANSWERED)
        )

    def document(self) -> dict[str, Any]:
        document = {**asdict(self), "broken": list(self.broken), "seconds": round(self.seconds, 2)}
        if self.answered_share is not None:
            document["answered_share"] = round(self.answered_share, 5)
        if not self.figures:
            del document["figures"]
        return document


def row_of(document: Mapping[str, Any]) -> ChaosRow:
    return ChaosRow(**{**document, "broken": tuple(document["broken"])})


def _cells(row: ChaosRow) -> tuple[str, ...]:
    share = row.answered_share
    return (
        row.name,
        f"{row.runs:,}",
        *(str(getattr(row, name)) for name in COUNTED[:2]),
        "" if share is None else f"{share:.2%}",
        *(str(getattr(row, name)) for name in COUNTED[2:]),
        f"{row.seconds:.0f}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosFigures:
    """The rows of all parts. `peers` are listed beside ours and are in no sum."""

    parts: Sequence[ChaosRow]
    peers: Sequence[ChaosRow] = ()
    seed: int = 0
    quick: bool = False

    @property
    def holds(self) -> bool:
        """True if every part held; a part that did not run broke nothing."""
        return all(row.holds for row in self.parts)

    def beside(self, earlier: Mapping[str, Any]) -> ChaosFigures:
        """Merge rows of other parts from an earlier document of the same seed and extent."""
        if (earlier["seed"], earlier["quick"]) != (self.seed, self.quick):
            return self
        return replace(
            self,
            parts=_merge(earlier["parts"], self.parts),
            peers=_merge(earlier["peers"], self.peers),
        )

    def document(self) -> dict[str, Any]:
        shares = [row.answered_share for row in self.parts if row.answered_share is not None]
        sums = {name: sum(getattr(row, name) for row in self.parts) for name in ("runs", *COUNTED)}
        return {
            **sums,
            "answered_share": round(min(shares), 5) if shares else None,
            "holds": self.holds,
            "not_tried": [row.name for row in self.parts if row.not_tried],
            "parts": [row.document() for row in self.parts],
            "peers": [row.document() for row in self.peers],
            "seed": self.seed,
            "quick": self.quick,
            **machine(),
        }

    def as_text(self) -> str:
        return figures_text(self.document())


def _merge(before: Iterable[Mapping[str, Any]], now: Iterable[ChaosRow]) -> tuple[ChaosRow, ...]:
    """Keep each part once, in its latest form."""
    return tuple({row.name: row for row in (*map(row_of, before), *now)}.values())


def updated(page: str, results: Path) -> str:
    """Return the page with the results of that file between its marks."""
    return replace_parts(page, _MADE, {"figures": figures_of(results) + "\n"})


def figures_of(results: Path) -> str:
    return figures_text(json.loads(results.read_text("utf-8"))) if results.is_file() else NONE_YET


def figures_text(document: Mapping[str, Any]) -> str:
    """Return the table of a document's rows, and what it was measured with."""
    rows = map(row_of, (*document["parts"], *document["peers"]))
    untried = ", ".join(document["not_tried"])
    of = "a tenth of everything" if document["quick"] else "everything"
    return "\n".join(
        (
            markdown_row((*HEADINGS, "what else")),
            f"|{'|'.join(_RULE)}|",
            *map(_markdown, rows),
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
    return markdown_row((*_cells(row), escaped))


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(updated(target.read_text("utf-8"), source), "utf-8")
