"""The tables of the page. A wide one scrolls in its own place, and its first column stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from podium._util.process import entropy_bits, shares
from podium.evals.page.families import FAMILY_WORDS, family
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
from podium.evals.tables.comparison import Yardsticks
from podium.evals.tables.row import Row
from podium.evals.tables.statistics import Difference, Share

BAR_WIDTH, BAR_HEIGHT = 96, 12
SURE: Final = 0.05
"""Where chance explains a difference more rarely than this, it is coloured."""

SHADES: Final = 10
"""How many shades the cells of a table of accuracies have."""


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    hints: Sequence[str] = (),
    shaded: bool = False,
) -> Markup:
    """A table whose first column names the rows; `hints` say what the columns mean, and `shaded`
    is one whose figures are cells of a colour."""
    told = [*hints, *[""] * (len(columns) - len(hints))]
    head = [
        element("th", element("abbr", name, title=hint) if hint else name, scope="col")
        for name, hint in zip(columns, told, strict=True)
    ]
    body = [
        element("tr", element("th", row[0], scope="row"), *(_cell(cell) for cell in row[1:]))
        for row in rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *head)),
            element("tbody", *body),
            class_="shaded" if shaded else None,
        ),
        class_="scrolls",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _cell(cell: str) -> Markup:
    return cell if isinstance(cell, Markup) and cell.startswith("<td") else element("td", cell)


class Column(NamedTuple):
    """A column of the table of strategies: what it means, its cell, and whether it is needed."""

    name: str
    told: str
    cell: Callable[[Row, Yardsticks], str]
    is_needed: Callable[[Sequence[Row], Yardsticks], bool] = lambda rows, measures: True


def strategies_table(rows: Sequence[Row], measures: Yardsticks, caption: str) -> Markup:
    """All strategies, the best first, with all that is counted of them."""
    columns = [column for column in _COLUMNS if column.is_needed(rows, measures)]
    listed = table(
        caption,
        ["strategy", *(column.name for column in columns)],
        [
            [strategy_name(row.strategy), *(column.cell(row, measures) for column in columns)]
            for row in rows
        ],
        hints=["", *(column.told for column in columns)],
    )
    told = [
        joined([element("dt", column.name), element("dd", f"{column.told}.")]) for column in columns
    ]
    summary = element("summary", "What the columns mean")
    return joined([listed, element("details", summary, element("dl", *told))])


def strategy_name(strategy: str) -> Markup:
    """A strategy with the mark of its kind."""
    kind = family(strategy)
    mark = element("span", class_=f"mark b-{kind}", title=FAMILY_WORDS[kind])
    return element("span", mark, strategy, class_=f"strategy {kind}")


def _accuracy(row: Row, measures: Yardsticks) -> Markup:
    share, paint = row.accuracy, family(row.strategy)
    return element(
        "td",
        element("span", percent(share.value), class_="figure"),
        interval_bar(share, paint),
        element("small", span(share)),
        class_="accuracy",
    )


def interval_bar(share: Share, paint: str) -> Markup:
    """Where a share lies between nothing and all, and how sure that is."""
    low, at, high = (end * BAR_WIDTH for end in (share.low, share.value, share.high))
    middle = BAR_HEIGHT / 2
    return element(
        "svg",
        element("rect", y=middle - 1, width=BAR_WIDTH, height=2, rx=1, class_="f-faint"),
        element(
            "rect",
            x=f"{low:.1f}",
            y=middle - 2.5,
            width=f"{max(high - low, 1):.1f}",
            height=5,
            rx=2.5,
            class_=f"f-{paint}",
            fill_opacity="0.35",
        ),
        element("circle", cx=f"{at:.1f}", cy=middle, r=4, class_=f"f-{paint}"),
        viewBox=f"-4 0 {BAR_WIDTH + 8} {BAR_HEIGHT}",
        width=BAR_WIDTH + 8,
        height=BAR_HEIGHT,
        aria_hidden="true",
        class_="bar",
    )


def _lead(row: Row, measures: Yardsticks) -> Markup:
    lead = measures.lead(row)
    if lead is None:
        is_best = measures.best_single is not None
        return element("td", element("small", "the best single") if is_best else UNKNOWN)
    return element("td", *difference_figures(lead))


def difference_figures(difference: Difference) -> tuple[Markup, Markup]:
    """A difference in points, coloured where chance hardly explains it, and how sure it is."""
    share = difference.share
    return (
        element("span", points(share.value), class_=f"figure {mood(difference)}"),
        element("small", f"{span(share)}, {chance(difference.p_value)}"),
    )


def mood(difference: Difference) -> str:
    """The class of a difference: better, worse, or unsure where chance may explain it."""
    if difference.p_value >= SURE:
        return "unsure"
    return "better" if difference.share.value > 0 else "worse"


def _regret(row: Row, measures: Yardsticks) -> str:
    regret = measures.regret(row)
    if regret is None or row is measures.ceiling:
        return UNKNOWN
    return points(regret.share.value).lstrip("+±")


def _equal_compute(row: Row, measures: Yardsticks) -> Markup:
    matched = measures.matched(row)
    if matched is None or row is measures.ceiling:
        return element("td", UNKNOWN)
    difference = row.against(matched.row)
    less = f"{matched.row.strategy}, × {amount(matched.times)} its {matched.unit}"
    figure = element("span", points(difference.share.value), class_=f"figure {mood(difference)}")
    return element("td", figure, element("small", less))


def _given_valid(row: Row, measures: Yardsticks) -> str:
    valid, rate = row.accuracy_given_valid, row.valid_rate
    if valid is None:
        return UNKNOWN
    return _with_less(percent(valid.value), "" if rate == 1 else f"{percent(rate)} valid")


def _tokens(row: Row, measures: Yardsticks) -> str:
    planning = row.orchestration_tokens
    return _with_less(amount(row.tokens), f"{amount(planning)} planning" if planning else "")


def _time(row: Row, measures: Yardsticks) -> str:
    slow = row.seconds(0.95)
    return _with_less(seconds(row.seconds(0.5)), "" if slow is None else f"95 %: {seconds(slow)}")


def _with_less(figure: str, less: str) -> Markup:
    """A figure, and below it what matters less."""
    parts = [element("span", figure, class_="figure plain")]
    return element("td", *parts, *([element("small", less)] if less else []))


_COLUMNS: Final = (
    Column("accuracy", "The share of tasks answered rightly, with its 95 % interval", _accuracy),
    Column(
        "against best single",
        "How much more often it is right than the best single worker on the same tasks, in "
        "percentage points, with the 95 % interval and McNemar's exact test",
        _lead,
        lambda rows, measures: measures.best_single is not None,
    ),
    Column(
        "regret",
        "What the best worker for each task, chosen after the fact, has more, in points",
        _regret,
        lambda rows, measures: measures.ceiling is not None,
    ),
    Column(
        "against equal compute",
        "How much more often it is right than one worker asked N times, with at least as much "
        "compute where such a one was measured",
        _equal_compute,
        lambda rows, measures: bool(measures.best_of),
    ),
    Column(
        "given a valid plan",
        "Accuracy where the plan was carried out as it was written",
        _given_valid,
        lambda rows, measures: any(row.valid_rate != 1 for row in rows),
    ),
    Column(
        "cost",
        "US dollars a task, on average and without kept replies; a dash where it is not known",
        lambda row, measures: usd(row.cost_usd),
        lambda rows, measures: any(row.cost_usd for row in rows),
    ),
    Column(
        "tokens",
        "Tokens a task, on average, and how many of these planning takes",
        _tokens,
        lambda rows, measures: any(row.tokens is not None for row in rows),
    ),
    Column(
        "calls",
        "Calls a task, on average, planning and retries included",
        lambda row, measures: amount(row.calls),
    ),
    Column("steps", "Steps a task, on average", lambda row, measures: amount(row.steps())),
    Column(
        "time",
        "Within which half, and 95 %, of the tasks are answered; tasks with kept replies left out",
        _time,
        lambda rows, measures: any(row.seconds(0.5) is not None for row in rows),
    ),
    Column(
        "faults",
        "Samples in which a call, a plan or a grade failed",
        lambda row, measures: str(row.faults),
    ),
)


def parts_table(
    rows: Sequence[Row], parts: Callable[[Row], Mapping[str, Row]], caption: str
) -> Markup:
    """Accuracies by kind or by difficulty, a column for each, the darker the better."""
    by_row = [parts(row) for row in rows]
    names = dict.fromkeys(name for found in by_row for name in found)
    sizes = {name: max(len(f[name].outcomes) for f in by_row if name in f) for name in names}
    cells = [
        [strategy_name(row.strategy), *(_shaded(found.get(name)) for name in names)]
        for row, found in zip(rows, by_row, strict=True)
    ]
    columns = ["strategy", *(name or "all" for name in names)]
    hints = ["", *(plural(size, "task") for size in sizes.values())]
    return table(caption, columns, cells, hints=hints, shaded=True)


def _shaded(row: Row | None) -> Markup:
    if row is None:
        return element("td", UNKNOWN)
    share = row.accuracy
    title = f"{span(share)} over {plural(len(row.outcomes), 'task')}"
    shade = round(share.value * SHADES)
    return element("td", f"{share.value * 100:.0f}", class_=f"shade h{shade}", title=title)


def shares_table(
    rows: Sequence[Row], counts: Callable[[Row], Mapping[str, int]], caption: str
) -> Markup:
    """How each strategy is spread over some names, in percent, and how evenly."""
    counted = [counts(row) for row in rows]
    names = dict.fromkeys(name for found in counted for name in found)
    cells = []
    for row, found in zip(rows, counted, strict=True):
        parts = shares(found)
        shaded = [_part(parts.get(name, 0.0)) for name in names]
        cells.append([strategy_name(row.strategy), *shaded, f"{entropy_bits(found):.2f}"])
    told = "How evenly they are spread: 0 when there is one alone, 1 for two alike, 2 for four"
    hints = ["", *[""] * len(names), told]
    columns = ["strategy", *names, "entropy, bits"]
    return table(caption, columns, cells, hints=hints, shaded=True)


def _part(share: float) -> Markup:
    shade = round(share * SHADES)
    told = f"{share * 100:.0f}" if share >= 0.005 else "<1" if share else "·"
    return element("td", told, class_=f"shade h{shade}")


def key() -> Markup:
    """What the marks of the strategies mean."""
    marks = [
        element("li", element("span", class_=f"mark b-{kind}"), words)
        for kind, words in FAMILY_WORDS.items()
    ]
    return element("ul", joined(marks), class_="key")
