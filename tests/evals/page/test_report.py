from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evals.evaluations import PLANS, Item, run_of, sample_of, write_evaluation
from evals.page.demonstration import HOSTILE, SKILL, TASKS
from evals.page.parsed import Element, parse
from podium.core.errors import UsageError
from podium.evals.page import write_report
from podium.evals.page.evaluation import view_of, views_of
from podium.evals.page.failures import MOST_OF_THE_LEADING
from podium.evals.page.reading import LONGEST
from podium.evals.page.report import PAGE, report_page
from podium.evals.tables.measured import read_measured
from podium.evals.written import SampleFiles

LOADING = ("src", "href", "srcset", "poster", "data", "action", "formaction", "background")
RUNNING = ("script", "iframe", "object", "embed", "link", "base", "form", "img", "audio", "video")


@pytest.fixture(scope="module")
def page(evaluation: Path) -> Element:
    return parse(report_page([view_of(read_measured(evaluation))]))


def table_of(page: Element, caption: str) -> Element:
    return next(t for t in page.all("table") if t.one("caption").text.startswith(caption))


def page_of(directory: Path) -> Element:
    return parse(report_page([view_of(read_measured(directory))]))


def test_a_report_is_one_page_and_its_pictures(evaluation: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = write_report([evaluation], tmp_path / "report")
    assert [path.name for path in paths] == [
        PAGE,
        "table.png",
        "frontier.png",
        "steps.png",
        "who-does-what.png",
    ]
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == sorted(
        path.name for path in paths
    )


def test_nothing_that_a_model_wrote_becomes_a_part_of_the_page(page: Element) -> None:
    assert HOSTILE[:40] in page.text, "the villain is there, to be read"
    for element in page.all():
        assert element.name not in RUNNING
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.name} {name}"
            assert name != "style"
            if name in LOADING:
                assert value is not None
                assert value.startswith("#")
    assert len(page.all("style")) == 1


def test_the_browser_is_forbidden_to_load_or_run_anything_but_the_one_style(page: Element) -> None:
    policy = page.one("meta", http_equiv="Content-Security-Policy").attributes["content"] or ""
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = page.one("style").text
    assert "url(" not in style
    assert "@import" not in style


def test_every_strategy_is_in_the_table_the_best_first(page: Element) -> None:
    rows = table_of(page, "All strategies").cells()
    head, body = rows[0], rows[1:]
    names = [cells[0] for cells in body]
    alone = [name for name in SKILL if name.startswith("single:")]
    assert set(names) == {
        "conductor",
        "recursion",
        "moa",
        "best-single",
        "per-task best",
        *alone,
    } - {"single:gpt-5"}
    accuracies = [float(cells[1].split(" %")[0]) for cells in body]
    assert accuracies == sorted(accuracies, reverse=True)
    best = body[names.index("best-single")]
    assert best[head.index("against best single")] == "the best single"
    conductor = body[names.index("conductor")]
    assert re.match(r"\+\d+\.\d", conductor[head.index("against best single")])
    assert "planning" in conductor[head.index("tokens")]


def test_equal_compute_is_told_where_one_worker_was_asked_again_and_again(tmp_path: Path) -> None:
    items = [Item(f"t{n}") for n in range(4)]
    answers = {
        "conductor": [(item, "42") for item in items],
        "best-of-5:gpt-5": [(item, "42" if item.id < "t2" else "7") for item in items],
    }
    page = page_of(asyncio.run(write_evaluation(tmp_path / "equal", answers)))
    head, *body = table_of(page, "All strategies").cells()
    told = {cells[0]: cells[head.index("against equal compute")] for cells in body}
    assert told["conductor"].startswith("+50.0best-of-5:gpt-5, × ")
    assert told["best-of-5:gpt-5"] == "–"
    assert "against equal compute" in page.one("dl", class_="cards").text


def test_tables_can_be_heard_and_reached_without_a_mouse(page: Element) -> None:
    assert page.one("html").attributes["lang"] == "en"
    tables = page.all("table")
    assert len(tables) >= 5
    for table in tables:
        assert table.one("caption").text
        assert all(cell.attributes["scope"] in ("col", "row") for cell in table.all("th"))
        assert all(row.all("th") for row in table.all("tr"))
    for region in page.all(class_="scrolls"):
        assert region.attributes["tabindex"] == "0"
        assert region.attributes["aria-label"]
    for picture in page.all("svg", role="img"):
        assert picture.one("desc").text
    identities = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(identities) == len(set(identities))
    for link in page.all("a"):
        assert (link.attributes["href"] or "")[1:] in identities


def test_the_page_opens_with_what_it_comes_to(page: Element) -> None:
    told = page.one("p", class_="headline").text
    assert told.startswith("recursion answers ")
    assert f"of {TASKS} tasks rightly" in told
    assert "the best single worker, gpt-5 (p " in told
    assert "times its cost." in told
    labels = [label.text for label in page.one("dl", class_="cards").all("dt")]
    assert labels[:3] == ["accuracy", "against best single", "regret"]


def test_failures_come_with_their_runs_those_first_that_the_best_single_got_right(
    evaluation: Path, page: Element
) -> None:
    measured = read_measured(evaluation)
    group = page.all("details", class_="group")[0]
    assert "open" in group.attributes
    shown = group.all("details", class_="failure")
    wrong = [sample for sample in measured.row("recursion").samples if not sample.right]
    assert len(shown) == min(len(wrong), MOST_OF_THE_LEADING)
    saved = ["best-single" in failure.one("summary").text for failure in _own(shown)]
    assert saved == sorted(saved, reverse=True)
    first = shown[0]
    labels = [label.text for label in first.all("h5")]
    assert labels[:3] == ["Question", "Expected", "ApiResult"]
    assert any(label.startswith("Round 2") for label in labels)
    assert first.all("ol", class_="steps")


def _own(failures: list[Element]) -> list[Element]:
    """The failures with nothing but their own first summary."""
    return [replace(failure, children=failure.children[:1]) for failure in failures]


def test_kinds_levels_workers_and_shapes_have_their_tables(page: Element) -> None:
    levels = table_of(page, "Accuracy by difficulty").cells()
    assert levels[0] == ["strategy", "easy", "medium", "hard"]
    kinds = table_of(page, "Accuracy by kind").cells()
    assert kinds[0] == ["strategy", "algebra", "counting", "geometry"]
    workers = table_of(page, "Steps by worker").cells()
    conductor = next(cells for cells in workers if cells[0] == "conductor")
    assert sum(float(cell) for cell in conductor[1:-1]) == pytest.approx(100, abs=2)
    assert 0 < float(conductor[-1]) < 1.6
    shapes = table_of(page, "Workflows by shape").cells()
    assert shapes[0][1:3] == ["one-shot", "chain"]


def test_what_went_wrong_is_named_counted_and_shown(tmp_path: Path) -> None:
    async def write() -> Path:
        directory = tmp_path / "troubled"
        item = Item("x")
        run = run_of(item, "41", (("gpt-5", "Solve it.", ()),), strategy="single:gpt-5")
        with SampleFiles(directory) as files:
            for number in range(3):
                sample = await sample_of(
                    item, run, task=f"t{number}", fault=f"no reply {HOSTILE}", at_fault="gpt-5"
                )
                files.keep("single:gpt-5", sample, run)
        left_out = [{"where": f"line {n}", "reason": "no answer"} for n in range(30)]
        document = {
            "rows": [{"strategy": "single:gpt-5"}],
            "left_out": left_out,
            "stopped": {"cap_usd": 0.5, "spent_usd": 0.5, "unfinished": {}},
        }
        (directory / "summary.json").write_text(json.dumps(document), "utf-8")
        return directory

    page = page_of(asyncio.run(write()))
    (cells,) = table_of(page, "Faults").cells()[1:]
    assert cells[:3] == ["single:gpt-5", "gpt-5", "3"]
    assert cells[3].startswith("no reply <script>")
    assert "30 lines of the suite were no tasks" in page.text
    assert "line 19: no answer" in page.text
    assert "and 10 more" in page.text
    assert "Stopped at its cap of 0.5 USD" in page.text


def test_an_evaluation_that_was_cut_off_says_so(tmp_path: Path) -> None:
    answers = {"conductor": [(Item("x"), "42"), (Item("y"), "7")]}
    page = page_of(asyncio.run(write_evaluation(tmp_path / "cut", answers)))
    assert "cut off: not all was measured" in page.one("ul", class_="facts").text
    assert page.one("h1").text == "cut"
    assert page.one("p", class_="headline").text == "conductor answers 50.0 % of 2 tasks rightly."


def test_a_long_reply_is_cut_and_says_how_much_is_missing(tmp_path: Path) -> None:
    answers = {"conductor": [(Item("x"), "b" * (LONGEST + 1234))]}
    page = page_of(asyncio.run(write_evaluation(tmp_path / "long", answers)))
    assert max(map(len, re.findall("b+", page.text))) == LONGEST
    assert "… 1,234 letters more" in page.text


def test_a_step_that_was_only_planned_is_shown_as_such(tmp_path: Path) -> None:
    async def write() -> Path:
        item = Item("x")
        run = run_of(item, "41", PLANS["medium"])
        (round_,) = run.rounds
        cut_off = replace(run, rounds=(replace(round_, steps=round_.steps[:1]),))
        with SampleFiles(tmp_path / "planned") as files:
            files.keep("conductor", await sample_of(item, cut_off), cut_off)
        return tmp_path / "planned"

    first, second = page_of(asyncio.run(write())).one("ol", class_="steps").all("li")
    assert "not carried out" not in first.text
    assert "reads 0 · not carried out" in second.text
    assert "Check the solution" in second.text


def test_several_evaluations_share_a_table_and_have_a_chapter_each(
    evaluation: Path, another: Path
) -> None:
    views = views_of([read_measured(evaluation), read_measured(another)])
    page = parse(report_page(views))
    table = table_of(page, "Accuracy by suite")
    assert table.cells()[0] == ["strategy", "sevens (sevens)", "sevens (luckier)", "mean"]
    row = next(cells for cells in table.cells() if cells[0] == "conductor")
    first, second, mean = (float(cell.removesuffix(" %")) for cell in row[1:])
    assert mean == pytest.approx((first + second) / 2, abs=0.1)
    identities = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert {"1-suite", "2-suite", "1-failures", "2-failures"} <= set(identities)
    assert len(identities) == len(set(identities))


def test_pictures_of_several_evaluations_are_told_apart(
    evaluation: Path, another: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    names = [path.name for path in write_report([evaluation, another], tmp_path)]
    assert names[:2] == [PAGE, "1-sevens-sevens-table.png"]
    assert names[-1] == "2-sevens-luckier-who-does-what.png"
    assert len(names) == len(set(names)) == 9


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no evaluation is named"):
        write_report([], tmp_path)


@pytest.mark.parametrize("pool", ["pool.toml", "embedded"])
def test_the_pool_is_named_where_the_evaluation_knows_it(tmp_path: Path, pool: str) -> None:
    answers = {"conductor": [(Item("x"), "42")]}
    told = {"suite": "mine", "rows": [{"strategy": "conductor"}]}
    known = asyncio.run(write_evaluation(tmp_path / "known", answers, **told, pool=pool))
    assert f"pool {pool}" in page_of(known).one("ul", class_="facts").text
    old = asyncio.run(write_evaluation(tmp_path / "old", answers, **told))
    assert "pool" not in page_of(old).one("ul", class_="facts").text


def test_a_grade_that_is_an_opinion_is_marked(tmp_path: Path) -> None:
    async def write() -> Path:
        item = Item("x")
        run = run_of(item, "41", (("gpt-5", "Solve it.", ()),))
        with SampleFiles(tmp_path / "judged") as files:
            files.keep("conductor", await sample_of(item, run, judge="claude-sonnet-4"), run)
        return tmp_path / "judged"

    page = page_of(asyncio.run(write()))
    assert "judged by claude-sonnet-4, a model" in page.one("ul", class_="facts").text
    assert "The grade is the opinion of claude-sonnet-4." in page.text
