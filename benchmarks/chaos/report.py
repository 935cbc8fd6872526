"""The results of `benchmarks chaos`: text, JSON and the table of docs/chaos.md.

python -m benchmarks.chaos.report results/chaos.json docs/chaos.md
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from podium._util.files import replace_parts

_MADE: Final = "made by python -m benchmarks.chaos.report, not by hand"
NONE_YET: Final = "Nothing was measured yet."

_HEAD: Final = """\
| part | runs | lost | stuck | answered | usage | repeated | overruns | s | what else |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"""


def updated(page: str, results: Path) -> str:
    """Return the page with the results of that file between its marks."""
    return replace_parts(page, _MADE, {"figures": figures_of(results) + "\n"})


def figures_of(results: Path) -> str:
    """Return the results of that file as a Markdown table."""
    if not results.is_file():
        return NONE_YET
    return "\n".join(_lines(json.loads(results.read_text("utf-8"))))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield _HEAD
    for row in (*document["parts"], *document["peers"]):
        yield _line(row)
    untried = ", ".join(document["not_tried"])
    of = "a tenth of everything" if document["quick"] else "everything"
    yield ""
    yield (
        f"With seed {document['seed']}, {of}, on {document['cpus']} cores and Python "
        f"{document['python']}. Every promise{' that was tried' if untried else ''} held: "
        f"{'yes' if document['holds'] else 'NO'}.{f' Not tried: {untried}.' if untried else ''}"
    )


def _line(row: Mapping[str, Any]) -> str:
    if row["not_tried"]:
        return f"| {row['name']} |{' |' * 8} not tried: {_escaped(row['not_tried'])} |"
    share = row["answered_share"]
    cells = (
        row["name"],
        f"{row['runs']:,}",
        row["lost"],
        row["stuck"],
        "" if share is None else f"{share:.2%}",
        row["usage_mismatch"],
        row["repeated_steps"],
        row["budget_overruns"],
        f"{row['seconds']:.0f}",
        _escaped("; ".join((*row["broken"], row["note"]))),
    )
    return f"| {' | '.join(map(str, cells))} |"


def _escaped(words: str) -> str:
    return words.replace("|", "\\|")


LEAST_ANSWERED: Final = 0.99
"""The share of runs that must be answered where every worker has a fallback."""

COUNTED: Final = ("lost", "stuck", "usage_mismatch", "repeated_steps", "budget_overruns")
"""Counts that must be zero."""

COLUMNS: Final = "{:<15} {:>7} {:>4} {:>5} {:>8} {:>5} {:>8} {:>8} {:>4}  {}"
"""A line of text that fits 80 columns."""

HEADINGS: Final = (
    *("part", "runs", "lost", "stuck", "answered", "usage", "repeated", "overruns"),
    *("s", "holds"),
)

Figure = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRow:
    """The result of one part.

    `lost` runs differ between store and client, or are missing; `stuck` runs did not end in time.
    `answered_share` covers runs with a fallback and an unlimited budget, None if a part has none.
    `broken` lists other violations, `figures` further measurements. `not_tried` says why the part
    did
    not run.
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
            and (self.answered_share is None or self.answered_share >= LEAST_ANSWERED)
        )

    def document(self) -> dict[str, Any]:
        """Return the row as JSON values."""
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
            "not_tried": self.not_tried,
            "broken": list(self.broken),
            **({"figures": dict(self.figures)} if self.figures else {}),
        }


def row_of(document: Mapping[str, Any]) -> ChaosRow:
    """Read a row back from its JSON values."""
    return ChaosRow(**{**document, "broken": tuple(document["broken"])})


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

    @property
    def answered_share(self) -> float | None:
        """The lowest share of the parts."""
        shares = [row.answered_share for row in self.parts if row.answered_share is not None]
        return min(shares, default=None)

    def beside(self, earlier: Mapping[str, Any]) -> ChaosFigures:
        """Merge rows of other parts from an earlier document of the same seed and extent."""
        if (earlier["seed"], earlier["quick"]) != (self.seed, self.quick):
            return self
        return replace(
            self,
            parts=_joined(map(row_of, earlier["parts"]), self.parts),
            peers=_joined(map(row_of, earlier["peers"]), self.peers),
        )

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON values, sums first."""
        share = self.answered_share
        return {
            "runs": sum(row.runs for row in self.parts),
            "lost": sum(row.lost for row in self.parts),
            "stuck": sum(row.stuck for row in self.parts),
            "answered_share": None if share is None else round(share, 5),
            **{name: sum(getattr(row, name) for row in self.parts) for name in COUNTED[2:]},
            "holds": self.holds,
            "not_tried": [row.name for row in self.parts if row.not_tried],
            "parts": [row.document() for row in self.parts],
            "peers": [row.document() for row in self.peers],
            "seed": self.seed,
            "quick": self.quick,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        }

    def as_json(self) -> str:
        """Return the figures as one line of JSON."""
        return json.dumps(self.document())

    def as_text(self) -> str:
        """Return the figures as text, a line for each row."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield "what held while things broke" + (" (quick)" if self.quick else "")
        yield ""
        yield COLUMNS.format(*HEADINGS)
        for row in self.parts:
            yield from _lines_of(row, "yes" if row.holds else "NO")
        for row in self.peers:
            yield from _lines_of(row, "beside")


def _joined(before: Iterable[ChaosRow], now: Iterable[ChaosRow]) -> tuple[ChaosRow, ...]:
    """Keep each part once, in its latest form."""
    return tuple({row.name: row for row in (*before, *now)}.values())


def _lines_of(row: ChaosRow, verdict: str) -> Iterator[str]:
    """Format one row; long messages stay in one piece, as they contain commands to copy."""
    if row.not_tried:
        yield f"{row.name:<15} not tried: {row.not_tried}"
        return
    share = row.answered_share
    yield COLUMNS.format(
        row.name,
        f"{row.runs:,}",
        row.lost,
        row.stuck,
        "" if share is None else f"{share:.2%}",
        row.usage_mismatch,
        row.repeated_steps,
        row.budget_overruns,
        f"{row.seconds:.0f}",
        verdict,
    )
    for words in (*row.broken, row.note):
        if words:
            yield f"    {words}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(updated(target.read_text("utf-8"), source), "utf-8")
