from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.page.demonstration import HOSTILE
from evals.page.parsed import parse
from podium.evals.page.markup import Markup, element, joined, text


@given(st.text())
def test_whatever_is_written_is_text_and_nothing_else(words: str) -> None:
    root = parse(element("p", words, title=words))
    paragraph = root.one("p")
    assert len(root.children) == 1
    assert all(isinstance(child, str) for child in paragraph.children)
    assert paragraph.attributes["title"] == paragraph.text


def test_hostile_words_can_be_read_as_they_are() -> None:
    shown = parse(element("pre", HOSTILE)).one("pre").text
    assert shown.startswith('<script>document.title="taken"</script><img src=x')
    assert shown.endswith("a.css>\ufffdgnorw\ufffd\ufffd")


def test_what_was_made_here_stays_markup() -> None:
    made = element("p", "1 < 2 ", element("b", "indeed"), class_="note")
    assert made == '<p class="note">1 &lt; 2 <b>indeed</b></p>'
    assert joined([made, "<br>"]) == f"{made}&lt;br&gt;"
    assert text(text("&")) == "&amp;"


def test_attributes_are_left_out_or_stand_without_a_value() -> None:
    assert element("details", open=True, id=None, hidden=False) == "<details open></details>"
    assert element("td", aria_label='"', tabindex=0) == '<td aria-label="&quot;" tabindex="0"></td>'


@pytest.mark.parametrize("kept", ["a\nb\tc", "می\u200cخواهم", "👩\u200d🔬"])
def test_line_breaks_and_joiners_are_a_part_of_texts(kept: str) -> None:
    assert text(kept) == kept
    assert text("a\r\nb") == "a\nb"


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x00", "\x1b", "\ud800", "\ufeff"])
def test_what_is_invisible_or_turns_words_round_is_shown(hidden: str) -> None:
    assert text(f"a{hidden}b") == "a\ufffdb"
    assert isinstance(text(hidden), Markup)
