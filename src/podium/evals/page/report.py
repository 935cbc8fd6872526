"""Reports: one page for one evaluation or several, and pictures beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from podium._util.files import write_whole, writing
from podium._version import __version__
from podium.core.errors import UsageError
from podium.core.run import timestamp
from podium.evals.page.document import document, page_header, section
from podium.evals.page.evaluation import View, evaluation_parts, facts, views_of
from podium.evals.page.markup import Markup, element, joined
from podium.evals.page.numbers import percent
from podium.evals.page.pictures import write_pictures
from podium.evals.page.sheet import sheet
from podium.evals.page.tables import strategy_name, table
from podium.evals.tables.measured import read_measured

PAGE: Final = "report.html"


def write_report(directories: Sequence[Path], output: Path) -> list[Path]:
    """Write the page and the pictures of these evaluations into a directory, and say where they
    are, the page first."""
    if not directories:
        raise UsageError("no evaluation is named; give a directory that eval run --output wrote")
    views = views_of([read_measured(directory) for directory in directories])
    page = output / PAGE
    with writing(output, 0, option="--output"):
        write_whole(page, report_page(views))
    pictures = [
        path
        for view in views
        for path in write_pictures([sheet(view), *view.scenes], output, _file_prefix(view))
    ]
    return [page, *pictures]


def _file_prefix(view: View) -> str:
    title = re.sub(r"[^\w.-]+", "-", view.title).strip("-")
    return f"{view.prefix}{title}-" if view.prefix else ""


def report_page(views: Sequence[View]) -> str:
    """The page of one evaluation, or of several under one table."""
    suites = ", ".join(view.title for view in views)
    if len(views) == 1:
        (view,) = views
        header, content = page_header(suites, facts(view), _links(view)), evaluation_parts(view)
    else:
        links = [(f"{view.prefix}suite", view.title) for view in views]
        header = page_header(suites, [f"{len(views)} evaluations"], links)
        content = joined([_overview(views), *(_chapter(view) for view in views)])
    return document(f"{suites}: evaluation", header, content, footer())


def _links(view: View) -> list[tuple[str, str]]:
    parts = [
        ("table", "Strategies"),
        ("charts", "Cost and length"),
        *([("who", "Who does what")] if view.heat_maps else []),
        ("failures", "Failures to read"),
    ]
    return [(f"{view.prefix}{part}", told) for part, told in parts]


def _chapter(view: View) -> Markup:
    told = element("ul", *(element("li", fact) for fact in facts(view)), class_="facts")
    heading = section(f"{view.prefix}suite", view.title, told)
    return joined([heading, evaluation_parts(view)])


def _overview(views: Sequence[View]) -> Markup:
    """The strategies over all suites: the plain mean counts every suite alike."""
    names = dict.fromkeys(row.strategy for view in views for row in view.rows)
    cells = []
    for name in names:
        found = [next((row for row in view.rows if row.strategy == name), None) for view in views]
        values = [row.accuracy.value if row is not None else None for row in found]
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known) if len(known) == len(views) else None
        cells.append((mean, [strategy_name(name), *map(percent, values), percent(mean)]))
    cells.sort(key=lambda pair: -(pair[0] or 0.0))
    columns = ["strategy", *(view.title for view in views), "mean"]
    return section(
        "overview",
        "All suites",
        table("Accuracy by suite, and the mean of suites", columns, [row for _, row in cells]),
    )


def footer() -> Markup:
    """How the figures were made, and when the page was."""
    return joined(
        [
            element(
                "p",
                "Accuracies have Wilson's 95 % interval, or one by the bootstrap over tasks where "
                "tasks were repeated. Differences are paired, task by task: Agresti and Min's "
                "interval for matched pairs, and McNemar's exact test. The ceiling takes for each "
                "task the single worker that is right, so it is chosen after the fact and "
                "optimistic. Unknown is a dash, never zero.",
            ),
            element(
                "p",
                f"Written by podium eval report, version {__version__}, on {timestamp()[:10]}. "
                "This page loads nothing and runs nothing.",
            ),
        ]
    )
