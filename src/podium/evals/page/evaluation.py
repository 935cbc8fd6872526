"""One evaluation as a part of the page: its headline, table, charts, and failures to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from podium.core.workflow import Shape
from podium.evals.page.document import section
from podium.evals.page.failures import failures
from podium.evals.page.families import family, leading, planning, shown_rows
from podium.evals.page.frontier import frontier
from podium.evals.page.headline import figures, headline
from podium.evals.page.heat import who_does_what
from podium.evals.page.lengths import steps_by_difficulty
from podium.evals.page.making import making
from podium.evals.page.markup import Markup, element, joined
from podium.evals.page.numbers import plural
from podium.evals.page.scene import Scene, svg
from podium.evals.page.tables import (
    key,
    parts_table,
    shares_table,
    strategies_table,
    table,
)
from podium.evals.tables.comparison import Yardsticks, yardsticks
from podium.evals.tables.measured import Measured
from podium.evals.tables.row import Row

MOST_HEAT_MAPS: Final = 4
MOST_LEFT_OUT: Final = 20


@dataclass(frozen=True, slots=True)
class View:
    """An evaluation, and what a page shows of it, under that title."""

    title: str
    measured: Measured
    rows: Sequence[Row]
    leading: Row
    measures: Yardsticks
    prefix: str = ""

    @property
    def scenes(self) -> list[Scene]:
        """Its charts, that of who does what for the leading strategy only."""
        return [self.frontier, *self.steps, *self.heat_maps[:1]]

    @property
    def frontier(self) -> Scene:
        """Accuracy over cost."""
        return frontier(self.rows)

    @property
    def steps(self) -> list[Scene]:
        """Steps by difficulty, where any strategy has more than one step."""
        rows = planning(self.rows)
        return [steps_by_difficulty(rows)] if rows else []

    @property
    def heat_maps(self) -> list[Scene]:
        """Who does what, for the strategies that conduct; for the others where none does."""
        rows = [row for row in planning(self.rows) if row.workers_by_role]
        rows = [row for row in rows if family(row.strategy) == "conducted"] or rows
        rows.sort(key=lambda row: row is not self.leading)
        return [who_does_what(row) for row in rows[:MOST_HEAT_MAPS]]


def view_of(measured: Measured) -> View:
    """What there is to show of one evaluation."""
    measures = yardsticks((*measured.measured, *measured.rows))
    rows = shown_rows(measured, measures)
    return View(measured.suite, measured, rows, leading(rows), measures)


def views_of(evaluations: Sequence[Measured]) -> list[View]:
    """The same of several: the names of their parts begin with a number, and those of one suite
    are told apart by their directories."""
    views = [view_of(measured) for measured in evaluations]
    if len(views) == 1:
        return views
    suites = Counter(view.title for view in views)
    return [
        replace(
            view,
            prefix=f"{number}-",
            title=view.title
            if suites[view.title] == 1
            else f"{view.title} ({view.measured.directory.resolve().name})",
        )
        for number, view in enumerate(views, start=1)
    ]


def facts(view: View) -> list[str]:
    """What was measured, in a few words each."""
    measured, told = view.measured, view.measured.told
    found = [plural(measured.tasks, "task")]
    if int(told.get("repeats") or 1) > 1:
        found.append(f"{told['repeats']} repeats")
    found.append(plural(len(measured.rows), "strategy", "strategies"))
    if "seed" in told:
        found.append(f"seed {told['seed']}")
    if measured.pool:
        found.append(f"pool {measured.pool}")
    judges = sorted({s.judge for row in measured.measured for s in row.samples if s.judge})
    found += [f"judged by {judge}, a model" for judge in judges]
    if not measured.is_finished:
        found.append("cut off: not all was measured")
    return found


def evaluation_parts(view: View) -> Markup:
    """Everything that there is to say of an evaluation."""
    rows, measures, named = view.rows, view.measures, view.prefix
    table_part = section(
        f"{named}table",
        "Strategies",
        key(),
        strategies_table(rows, measures, "All strategies, the best first"),
        *_notes(rows),
        lead="The same tasks, workers and budget for all of them.",
    )
    return joined(
        [
            headline(view.leading, measures),
            figures(view.leading, measures),
            table_part,
            *_charts(view),
            *_parts(view),
            *_troubles(view),
            section(
                f"{named}failures",
                "Failures to read",
                failures(view.measured, rows, view.leading, measures),
                lead="First those that the best single worker got right. Each opens to its run.",
            ),
            *_making(view),
        ]
    )


def _making(view: View) -> Iterator[Markup]:
    if parts := list(making(view.measured)):
        lead = "With these workers, this command measures the same."
        yield section(f"{view.prefix}making", "How it was made", *parts, lead=lead)


def _notes(rows: Sequence[Row]) -> Iterator[Markup]:
    for row in rows:
        if row.note:
            yield element("p", element("b", row.strategy), f": {row.note}.", class_="aside")


def _charts(view: View) -> Iterator[Markup]:
    pictures = [
        _figure(
            view.frontier,
            "Bars are 95 % intervals. The dashed line joins what nothing cheaper beats.",
        ),
        *(_figure(scene, "A line for each strategy that plans.") for scene in view.steps),
    ]
    yield section(
        f"{view.prefix}charts", "Cost and length", element("div", *pictures, class_="charts")
    )
    if view.heat_maps:
        maps = [
            _figure(scene, "Percent of all steps. Roles are read from the wording of subtasks.")
            for scene in view.heat_maps
        ]
        spread = planning(view.rows)
        yield section(
            f"{view.prefix}who",
            "Who does what",
            element("div", *maps, class_="charts"),
            shares_table(spread, lambda row: row.worker_counts, "Steps by worker, in percent"),
            shares_table(spread, _shapes, "Workflows by shape, in percent"),
        )


def _figure(scene: Scene, caption: str) -> Markup:
    told = element("figcaption", element("h3", scene.title), caption)
    return element("figure", told, svg(scene), class_="card")


def _shapes(row: Row) -> Mapping[str, int]:
    """How many workflows have each shape, the simplest shape first."""
    found = Counter(sample.topology for sample in row.samples)
    return {shape: found[shape] for shape in (*Shape, *found) if shape in found}


def _parts(view: View) -> Iterator[Markup]:
    """Accuracies by difficulty and by kind, where there is more than one of these."""
    tables = []
    if any(len(row.levels) > 1 for row in view.rows):
        tables.append(
            parts_table(view.rows, lambda row: row.levels, "Accuracy by difficulty, in percent")
        )
    if any(len(row.kinds) > 1 for row in view.rows):
        tables.append(
            parts_table(view.rows, lambda row: row.kinds, "Accuracy by kind of task, in percent")
        )
    if tables:
        yield section(f"{view.prefix}parts", "Where it is right", *tables)


def _troubles(view: View) -> Iterator[Markup]:
    """What failed and whose fault it was, and which tasks were left out."""
    counted = Counter[tuple[str, str]]()
    first: dict[tuple[str, str], str] = {}
    for row in view.measured.measured:
        for sample in row.samples:
            if sample.fault is not None:
                whose = (row.strategy, sample.at_fault or "unknown")
                counted[whose] += 1
                first.setdefault(whose, sample.fault)
    parts = []
    if counted:
        cells = [
            (strategy, whose, str(count), first[strategy, whose])
            for (strategy, whose), count in counted.most_common()
        ]
        columns = ("strategy", "at fault", "samples", "the first of them")
        listed = table("Faults: calls, plans or grades that failed", columns, cells)
        parts.append(element("div", listed, class_="words"))
    parts += _left_out(view.measured.told)
    if parts:
        lead = "All the rest was finished; where there is no answer because of it, it is wrong."
        yield section(f"{view.prefix}troubles", "What went wrong", *parts, lead=lead)


def _left_out(told: Mapping[str, Any]) -> Iterator[Markup]:
    stopped = told.get("stopped")
    if stopped:
        words = f"Stopped at its cap of {stopped.get('cap_usd')} USD before all was measured."
        yield element("p", words)
    left_out = [f"{line['where']}: {line['reason']}" for line in told.get("left_out") or ()]
    if left_out:
        rest = len(left_out) - MOST_LEFT_OUT
        lines = [element("li", line) for line in left_out[:MOST_LEFT_OUT]]
        more = [element("li", f"and {rest:,} more")] if rest > 0 else []
        yield element("p", f"{plural(len(left_out), 'line')} of the suite were no tasks:")
        yield element("ul", *lines, *more)
