"""The figures of the last `python -m benchmarks chaos` in its page:
`python -m benchmarks.chaos.page results/chaos.json docs/chaos.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from podium.config.reference import with_parts

_MADE: Final = "made by python -m benchmarks.chaos.page, not by hand"
NONE_YET: Final = "Nothing was measured yet."

_HEAD: Final = """\
| part | runs | lost | stuck | answered | usage | repeated | overruns | s | what else |
|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"""


def updated(page: str, results: Path) -> str:
    """The page with the figures in that file between its marks."""
    return with_parts(page, _MADE, {"figures": figures_of(results) + "\n"})


def figures_of(results: Path) -> str:
    """The figures in that file as Markdown, or that there are none."""
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


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(updated(target.read_text("utf-8"), source), "utf-8")
