from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import DictLoader

from evals.demonstration import HOSTILE
from evals.parsed import parse
from podium.evals import page as rendering
from podium.evals.page import (
    amount,
    interval,
    p_value,
    percent,
    plural,
    points,
    render,
    replace_invisible,
    seconds,
    shorten,
    usd,
)
from podium.evals.results import IntervalEstimate


@pytest.mark.parametrize(
    ("dollars", "message"),
    [(None, "–"), (0, "$0"), (12.5, "$12.50"), (0.25, "$0.25"), (0.0067, "$0.0067"),
     (0.000092, "$0.000092")],
)  # fmt: skip
def test_money_has_two_significant_digits(dollars: float | None, message: str) -> None:
    assert usd(dollars) == message


@pytest.mark.parametrize(
    ("number", "message"),
    [(None, "–"), (5218.4, "5,218"), (33.33, "33.3"), (3.333, "3.33"), (4.0, "4"), (0, "0")],
)
def test_counts_have_about_three_digits(number: float | None, message: str) -> None:
    assert amount(number) == message


def test_differences_have_a_sign_and_zero_is_not_negative() -> None:
    assert [points(share) for share in (0.215, -0.08, 0.0, -0.0001)] == ["+21.5", "−8.0", "±0.0",
                                                                         "±0.0"]  # fmt: skip
    assert interval(IntervalEstimate(0, -0.011, 0.5)) == "−1.1 to 50.0"


def test_durations_p_values_and_plurals() -> None:
    assert [seconds(s) for s in (None, 0.8, 1.74, 1200)] == ["–", "800 ms", "1.7 s", "1,200 s"]
    assert [p_value(p) for p in (1e-9, 0.0433)] == ["p < 0.001", "p = 0.043"]
    assert [plural(n, "task") for n in (0, 1, 2000)] == ["0 tasks", "1 task", "2,000 tasks"]
    assert plural(2, "strategy", "strategies") == "2 strategies"
    assert (percent(None), percent(0.8333)) == ("–", "83.3 %")


def shown(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Render a template with the text as content and as an attribute."""
    monkeypatch.setattr(
        rendering._environment(),
        "loader",
        DictLoader({"text.html": '<p title="{{ text }}">{{ text }}</p>'}),
    )
    return render("text.html", text=text)


@given(st.text())
def test_any_text_is_rendered_as_text(text: str) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        root = parse(shown(text, monkeypatch))
    paragraph = root.one("p")
    assert len(root.children) == 1
    assert all(isinstance(child, str) for child in paragraph.children)
    assert paragraph.attributes["title"] == paragraph.text


def test_hostile_text_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = parse(shown(HOSTILE, monkeypatch)).one("p").text
    assert text.startswith('<script>document.title="taken"</script><img src=x')
    assert text.endswith("a.css>\ufffdgnorw\ufffd\ufffd")


@pytest.mark.parametrize("kept", ["a\nb\tc", "می\u200cخواهم", "👩\u200d🔬"])
def test_line_breaks_and_joiners_are_kept(kept: str) -> None:
    assert replace_invisible(kept) == kept
    assert replace_invisible("a\r\nb") == "a\nb"


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x00", "\x1b", "\ud800", "\ufeff"])
def test_invisible_characters_are_replaced(hidden: str) -> None:
    assert replace_invisible(f"a{hidden}b") == "a\ufffdb"


def test_titles_are_one_line_and_cut_off() -> None:
    assert shorten("a\n b") == "a b"
    assert shorten("abcdef", 4) == "abc…"
