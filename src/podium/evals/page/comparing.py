"""Two evaluations side by side: what each reaches, and the tasks on which they differ, to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from podium._util.files import write_whole, writing
from podium.evals.page.document import document, page_header, section
from podium.evals.page.markup import Markup, element, joined
from podium.evals.page.numbers import (
    UNKNOWN,
    amount,
    chance,
    percent,
    plural,
    points,
    seconds,
    span,
    usd,
)
from podium.evals.page.reading import run_to_read, title_of, verdict
from podium.evals.page.report import footer
from podium.evals.page.tables import difference_figures, mood, table
from podium.evals.sample import Sample
from podium.evals.tables.comparison import Comparison, Flip, compare_measured
from podium.evals.tables.measured import Measured, read_measured
from podium.evals.tables.row import Row

COMPARISON_PAGE: Final = "comparison.html"
MOST_FLIPS: Final = 25
"""So many of each direction are shown with their runs."""

Sides = tuple[Measured, Measured]


def write_comparison(first: Path, second: Path, strategy: str, output: Path) -> Path:
    """Write the page that compares a strategy in two evaluations, and say where it is."""
    sides = read_measured(first), read_measured(second)
    page = output / COMPARISON_PAGE
    with writing(output, 0, option="--output"):
        write_whole(page, comparison_page(sides, strategy))
    return page


def comparison_page(sides: Sides, strategy: str) -> str:
    """The page of a comparison."""
    comparison = compare_measured(*sides, strategy)
    names = side_names(sides)
    flips = comparison.flips
    gained = [flip for flip in flips if flip.is_gain]
    lost = [flip for flip in flips if not flip.is_gain]
    header = page_header(
        f"{names[0]} and {names[1]}",
        [strategy, plural(len(comparison.first), "task"), f"{len(flips)} flipped"],
        [("figures", "Figures"), ("gained", "Gained"), ("lost", "Lost")],
    )
    content = [
        _headline(comparison, names),
        section("figures", "Figures", _figures(comparison, sides, strategy, names)),
        _flips("gained", f"Gained by {names[1]}", gained, sides, strategy, names),
        _flips("lost", f"Lost by {names[1]}", lost, sides, strategy, names),
    ]
    return document(f"{names[0]} and {names[1]}: comparison", header, joined(content), footer())


def side_names(sides: Sides) -> tuple[str, str]:
    """What the two are called: by their directories, and by numbers where these are alike."""
    first, second = (side.directory.resolve().name for side in sides)
    return (first, second) if first != second else (f"{first} (1)", f"{second} (2)")


def _headline(comparison: Comparison, names: Sequence[str]) -> Markup:
    difference = comparison.difference
    share = difference.share
    clearly = "clearly " if mood(difference) != "unsure" else "not clearly "
    told = "better" if share.value > 0 else "worse" if share.value < 0 else "different"
    return element(
        "p",
        element("b", names[1]),
        " is ",
        element("b", f"{clearly}{told}", class_=mood(difference)),
        " than " if share.value else " from ",
        element("b", names[0]),
        f": {points(share.value)} points ({span(share)}, {chance(difference.p_value)}), "
        f"{difference.gained} gained and {difference.lost} lost of "
        f"{plural(len(comparison.first), 'task')}. The answers are the same word for word in "
        f"{percent(comparison.same_answers.value)}.",
        class_="headline",
    )


def _figures(comparison: Comparison, sides: Sides, strategy: str, names: Sequence[str]) -> Markup:
    first, second = (side.row(strategy) for side in sides)
    one, other = comparison.accuracies
    difference = element("td", *difference_figures(comparison.difference))
    cells: list[Sequence[str]] = [
        (
            "accuracy",
            _share(percent(one.value), span(one)),
            _share(percent(other.value), span(other)),
            difference,
        ),
        *([name, *told, ratio] for name, told, ratio in _measured_figures(first, second)),
    ]
    return table(f"The strategy {strategy} in both", ["", *names, "difference"], cells)


def _share(figure: str, less: str) -> Markup:
    return element("td", element("span", figure, class_="figure"), element("small", less))


def _measured_figures(first: Row, second: Row) -> Iterator[tuple[str, tuple[str, str], str]]:
    for name, told, one, other in (
        ("cost of a task", usd, first.cost_usd, second.cost_usd),
        ("tokens", amount, first.tokens, second.tokens),
        ("of them for planning", amount, first.orchestration_tokens, second.orchestration_tokens),
        ("calls", amount, first.calls, second.calls),
        ("steps", amount, first.steps(), second.steps()),
        ("half answered in", seconds, first.seconds(0.5), second.seconds(0.5)),
        ("95 % answered in", seconds, first.seconds(0.95), second.seconds(0.95)),
        ("entropy of workers, bits", amount, first.entropy_bits, second.entropy_bits),
        ("faults", amount, float(first.faults), float(second.faults)),
    ):
        ratio = f"× {amount(other / one)}" if one and other else UNKNOWN
        yield name, (told(one), told(other)), ratio


def _flips(
    identity: str,
    heading: str,
    flips: Sequence[Flip],
    sides: Sides,
    strategy: str,
    names: Sequence[str],
) -> Markup:
    shown = [_flip(flip, sides, strategy, names) for flip in flips[:MOST_FLIPS]]
    rest = len(flips) - MOST_FLIPS
    lead = plural(len(flips), "task") + (
        f", the first {MOST_FLIPS} with their runs" if rest > 0 else ""
    )
    return section(identity, heading, *shown, lead=lead)


def _flip(flip: Flip, sides: Sides, strategy: str, names: Sequence[str]) -> Markup:
    samples = [
        _telling(side.row(strategy), flip.first.task, wins)
        for side, wins in zip(sides, (not flip.is_gain, flip.is_gain), strict=True)
    ]
    runs = [side.run(strategy, sample) for side, sample in zip(sides, samples, strict=True)]
    told = [
        element(
            "section",
            element("h3", name, " ", verdict("right" if sample.right else "wrong")),
            run_to_read(sample, run),
            class_="side",
        )
        for name, sample, run in zip(names, samples, runs, strict=True)
    ]
    told_rates = ""
    if any(len(outcome.answers) > 1 for outcome in (flip.first, flip.second)):
        rates = " and ".join(percent(outcome.right) for outcome in (flip.first, flip.second))
        told_rates = f" · right in {rates} of its tries"
    summary = element(
        "summary",
        verdict("gained" if flip.is_gain else "lost"),
        element("span", title_of(runs[0].question), class_="question"),
        element("small", f"task {flip.first.task}{told_rates}"),
    )
    return element("details", summary, element("div", *told, class_="sides"), class_="failure")


def _telling(row: Row, task: str, is_right: bool) -> Sample:
    """The sample that shows how the task came out on this side."""
    tries = [sample for sample in row.samples if sample.task == task]
    return next((sample for sample in tries if sample.right is is_right), tries[0])
