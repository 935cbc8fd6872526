"""What an evaluation comes to, in a sentence and in a few large figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from podium.evals.page.markup import Markup, element
from podium.evals.page.numbers import amount, chance, percent, plural, points, seconds, span, usd
from podium.evals.page.tables import SURE, mood
from podium.evals.tables.comparison import Yardsticks
from podium.evals.tables.row import Row
from podium.evals.tables.statistics import Difference


class Figure(NamedTuple):
    """A large figure: what it is of, and what is said below it."""

    label: str
    figure: str
    told: str
    mood: str = ""


def headline(row: Row, measures: Yardsticks) -> Markup:
    """The sentence that people quote, with its uncertainty."""
    parts: list[str] = [
        element("b", row.strategy),
        " answers ",
        element("b", percent(row.accuracy.value)),
        f" of {plural(len(row.outcomes), 'task')} rightly",
    ]
    lead, best = measures.lead(row), measures.best_single
    if lead is not None and best is not None:
        parts += [": ", element("b", _lead_words(lead), class_=mood(lead))]
        parts.append(f" the best single worker, {single_name(best)} ({chance(lead.p_value)})")
        parts.append(_price_words(row, best))
    return element("p", *parts, ".", class_="headline")


def single_name(best: Row) -> str:
    """The best single worker, by the name under which people know it."""
    workers = {worker for sample in best.samples for worker in sample.workers}
    (name,) = workers if len(workers) == 1 else (best.strategy,)
    return name


def _lead_words(lead: Difference) -> str:
    share = lead.share.value
    if lead.p_value >= SURE:
        return f"not clearly different ({points(share)} points) from"
    more = "more" if share > 0 else "fewer"
    return f"{points(abs(share)).lstrip('+')} points {more} than"


def _price_words(row: Row, best: Row) -> str:
    for unit, mine, theirs in (
        ("cost", row.cost_usd, best.cost_usd),
        ("tokens", row.tokens, best.tokens),
    ):
        if mine and theirs:
            return f", at {amount(mine / theirs)} times its {unit}"
    return ""


def figures(row: Row, measures: Yardsticks) -> Markup:
    """The large figures of the row that the page is about."""
    cards = [
        element(
            "div",
            element("dt", figure.label),
            element("dd", figure.figure, class_=f"large {figure.mood}"),
            element("dd", figure.told, class_="below"),
        )
        for figure in _figures(row, measures)
    ]
    return element("dl", *cards, class_="cards")


def _figures(row: Row, measures: Yardsticks) -> Iterator[Figure]:
    yield Figure("accuracy", percent(row.accuracy.value), f"95 %: {span(row.accuracy)}")
    lead = measures.lead(row)
    if lead is not None:
        told = f"{lead.gained} gained, {lead.lost} lost; {chance(lead.p_value)}"
        yield Figure("against best single", points(lead.share.value), told, mood(lead))
    ceiling, regret = measures.ceiling, measures.regret(row)
    if ceiling is not None and regret is not None:
        below = points(regret.share.value).lstrip("+±")
        told = f"ceiling {percent(ceiling.accuracy.value)}: the best worker for each task"
        yield Figure("regret", below, told)
    matched = measures.matched(row)
    if matched is not None:
        difference = row.against(matched.row)
        told = f"{matched.row.strategy} with {amount(matched.times)} times its {matched.unit}"
        yield Figure(
            "against equal compute", points(difference.share.value), told, mood(difference)
        )
    if row.cost_usd:
        yield Figure("a task costs", usd(row.cost_usd), f"{amount(row.tokens)} tokens")
    elif row.tokens is not None:
        yield Figure("a task takes", amount(row.tokens), "tokens, planning included")
    half, most = row.seconds(0.5), row.seconds(0.95)
    if half is not None:
        yield Figure("half are answered in", seconds(half), f"95 % in {seconds(most)}")
