from __future__ import annotations

from pathlib import Path

import pytest

from evals.page.demonstration import HOSTILE
from evals.page.parsed import Element, parse
from podium.core.errors import UsageError
from podium.evals.comparison import compare_directories
from podium.evals.log import read_eval_log
from podium.evals.page import write_comparison
from podium.evals.page.comparison import comparison_page, side_names


@pytest.fixture(scope="module")
def page(evaluation: Path, another: Path) -> Element:
    sides = read_eval_log(evaluation), read_eval_log(another)
    return parse(comparison_page(sides, "conductor"))


def test_the_page_shows_both_sides(evaluation: Path, another: Path, page: Element) -> None:
    document = compare_directories(evaluation, another, "conductor").document()
    table = page.one("table")
    head, accuracy = table.cells()[:2]
    assert head == ["", "sevens", "luckier", "difference"]
    assert accuracy[1].startswith(f"{document['first']['value'] * 100:.1f} %")
    assert accuracy[2].startswith(f"{document['second']['value'] * 100:.1f} %")
    assert f"{document['difference']['gained']} gained" in page.one("p", class_="headline").text


def test_every_flip_is_shown_with_both_runs(evaluation: Path, another: Path, page: Element) -> None:
    flips = compare_directories(evaluation, another, "conductor").flips
    assert flips, "else this shows nothing"
    shown = page.all("details", class_="failure")
    assert len(shown) == len(flips)
    for flip, details in zip(flips, shown, strict=True):
        assert details.all("summary")[0].text.endswith(f"task {flip.first.task}")
        first, second = details.all("section", class_="side")
        verdicts = [side.one("h3").one("span").text for side in (first, second)]
        assert verdicts == (["wrong", "right"] if flip.is_gain else ["right", "wrong"])
        for side in (first, second):
            assert side.all("ol", class_="steps")


def test_replies_never_become_markup(page: Element) -> None:
    assert HOSTILE[:40] in page.text
    names = {element.name for element in page.all()}
    assert names.isdisjoint({"script", "img", "iframe", "link"})


def test_directories_of_one_name_are_numbered(evaluation: Path) -> None:
    measured = read_eval_log(evaluation)
    assert side_names((measured, measured)) == ("sevens (1)", "sevens (2)")


def test_an_evaluation_compared_with_itself_shows_no_difference(
    evaluation: Path, tmp_path: Path
) -> None:
    path = write_comparison(evaluation, evaluation, "conductor", tmp_path / "new")
    assert path == tmp_path / "new" / "comparison.html"
    output = parse(path.read_text("utf-8")).one("p", class_="headline").text
    assert output.startswith(
        "sevens (2) is not significantly different from sevens (1): ±0.0 points"
    )
    assert "100.0 % of the answers are identical" in output


def test_a_strategy_missing_from_one_side_is_an_error(evaluation: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of 'ideal'"):
        write_comparison(evaluation, evaluation, "ideal", tmp_path)
