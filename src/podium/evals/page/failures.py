"""Failures to read: which of them are worth a reader's time, and how they are shown.

First come those that the best single worker got right: there, working together has cost an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from podium.evals.page.markup import Markup, element
from podium.evals.page.numbers import plural
from podium.evals.page.reading import run_to_read, title_of, verdict
from podium.evals.page.tables import strategy_name
from podium.evals.sample import Sample
from podium.evals.tables.comparison import CEILING, SINGLE, Yardsticks
from podium.evals.tables.measured import Measured
from podium.evals.tables.row import Row, difficulty

MOST_OF_THE_LEADING: Final = 20
MOST_OF_ANOTHER: Final = 5


def failures(measured: Measured, rows: Sequence[Row], leading: Row, measures: Yardsticks) -> Markup:
    """A part for every strategy that failed, that of the leading one first and open."""
    solved = _solved(rows)
    ordered = sorted(_readable(rows), key=lambda row: row is not leading)
    parts = [_of(measured, row, row is leading, solved, measures) for row in ordered]
    return element("div", *parts, class_="failures")


def _readable(rows: Sequence[Row]) -> list[Row]:
    """Strategies whose failures say something about working together."""
    hidden = (SINGLE, CEILING)
    kept = [row for row in rows if not row.strategy.startswith(hidden)]
    return kept or [row for row in rows if row.strategy != CEILING]


def _solved(rows: Sequence[Row]) -> dict[str, list[str]]:
    """By task, who got it right at least once."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for task, right in row.outcomes.items():
            if right and row.strategy != CEILING:
                found.setdefault(task, []).append(row.strategy)
    return found


def _of(
    measured: Measured,
    row: Row,
    is_leading: bool,
    solved: dict[str, list[str]],
    measures: Yardsticks,
) -> Markup:
    wrong = [sample for sample in row.samples if not sample.right]
    if not wrong:
        return element("p", strategy_name(row.strategy), " failed nowhere.", class_="aside")
    best = measures.best_single.outcomes if measures.best_single is not None else {}
    wrong.sort(key=lambda sample: (not best.get(sample.task), -len(solved.get(sample.task, ()))))
    shown = wrong[: MOST_OF_THE_LEADING if is_leading else MOST_OF_ANOTHER]
    heading = element(
        "summary",
        strategy_name(row.strategy),
        element("small", f"{len(shown)} of {plural(len(wrong), 'failure')}"),
    )
    items = [_failure(measured, row, sample, solved.get(sample.task, [])) for sample in shown]
    return element("details", heading, *items, class_="group", open=is_leading)


def _failure(measured: Measured, row: Row, sample: Sample, others: Sequence[str]) -> Markup:
    run = measured.run(row.strategy, sample)
    facts = [fact for fact in (sample.kind, difficulty(sample)) if fact]
    if sample.repeat:
        facts.append(f"repeat {sample.repeat + 1}")
    if sample.fault is not None:
        facts.append("fault")
    told = f"right: {', '.join(others)}" if others else "nobody is right"
    summary = element(
        "summary",
        verdict("wrong"),
        element("span", title_of(run.question), class_="question"),
        element("small", " · ".join([*facts, told])),
    )
    body = run_to_read(sample, run)
    identity = element("p", f"task {sample.task} · {run.id}", class_="aside")
    return element("details", summary, body, identity, class_="failure")
