from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evals.demonstration import HOSTILE, SKILL, TASKS
from evals.evaluations import PLANS, POOL, SINGLE_PLAN, Item, run_of, sample_of, write_evaluation
from evals.parsed import Element, parse
from evals.samples import sample
from podium.core.pool import Pool, WorkerProfile
from podium.evals.comparison import PER_TASK_BEST
from podium.evals.log import EvalLogWriter, read_eval_log
from podium.evals.page import (
    MAX_FAILURES,
    MAX_TEXT,
    PAGE,
    Kind,
    choose_headline_row,
    kind_of,
    make_view,
    planning_rows,
    report_page,
    write_report,
)
from podium.evals.results import StrategyRow
from podium.evals.strategies.registry import STRATEGIES

LOADING = ("src", "href", "srcset", "poster", "data", "action", "formaction", "background")
RUNNING = ("script", "iframe", "object", "embed", "link", "base", "form", "img", "audio", "video")


@pytest.fixture(scope="module")
def page(evaluation: Path) -> Element:
    return parse(report_page(make_view(read_eval_log(evaluation))))


def table_of(page: Element, caption: str) -> Element:
    return next(t for t in page.all("table") if t.one("caption").text.startswith(caption))


def page_of(directory: Path) -> Element:
    return parse(report_page(make_view(read_eval_log(directory))))


def test_a_report_is_one_page(evaluation: Path, tmp_path: Path) -> None:
    path = write_report(evaluation, tmp_path / "report")
    assert path == tmp_path / "report" / PAGE
    assert list((tmp_path / "report").iterdir()) == [path]


def test_model_output_never_becomes_markup(page: Element) -> None:
    assert HOSTILE[:40] in page.text, "the hostile text is shown"
    for element in page.all():
        assert element.name not in RUNNING
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.name} {name}"
            assert name != "style"
            if name in LOADING:
                assert value is not None
                assert value.startswith("#")
    assert len(page.all("style")) == 1


def test_the_policy_allows_only_the_pages_own_style(page: Element) -> None:
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
    assert best[head.index("vs best single")] == "the best single"
    conductor = body[names.index("conductor")]
    assert re.match(r"\+\d+\.\d", conductor[head.index("vs best single")])
    assert "planning" in conductor[head.index("tokens")]


def test_equal_compute_is_shown_if_best_of_n_was_measured(tmp_path: Path) -> None:
    items = [Item(f"t{n}") for n in range(4)]
    answers = {
        "conductor": [(item, "42") for item in items],
        "best-of-5:gpt-5": [(item, "42" if item.id < "t2" else "7") for item in items],
    }
    page = page_of(asyncio.run(write_evaluation(tmp_path / "equal", answers)))
    head, *body = table_of(page, "All strategies").cells()
    fields = {cells[0]: cells[head.index("at equal compute")] for cells in body}
    assert fields["conductor"].startswith("+50.0best-of-5:gpt-5, × ")
    assert fields["best-of-5:gpt-5"] == "–"
    assert "at equal compute" in page.one("dl", class_="cards").text


def test_tables_are_accessible(page: Element) -> None:
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
    identities = [e.attributes["id"] for e in page.all() if "id" in e.attributes]
    assert len(identities) == len(set(identities))
    for link in page.all("a"):
        assert (link.attributes["href"] or "")[1:] in identities


def test_the_headline_states_the_result(page: Element) -> None:
    output = page.one("p", class_="headline").text
    assert output.startswith("recursion answers ")
    assert f"of {TASKS} tasks correctly" in output
    assert "the best single worker, gpt-5 (p " in output
    assert "times its cost." in output
    labels = [label.text for label in page.one("dl", class_="cards").all("dt")]
    assert labels[:3] == ["accuracy", "vs best single", "regret"]


def test_failures_solved_by_the_best_single_worker_come_first(
    evaluation: Path, page: Element
) -> None:
    measured = read_eval_log(evaluation)
    group = page.all("details", class_="group")[0]
    assert "open" in group.attributes
    shown = group.all("details", class_="failure")
    wrong = [sample for sample in measured.row("recursion").samples if not sample.right]
    assert len(shown) == min(len(wrong), MAX_FAILURES)
    saved = ["best-single" in failure.one("summary").text for failure in _own(shown)]
    assert saved == sorted(saved, reverse=True)
    first = shown[0]
    labels = [label.text for label in first.all("h5")]
    assert labels[:3] == ["Question", "Expected", "Answer"]
    assert any(label.startswith("Round 2") for label in labels)
    assert first.all("ol", class_="steps")


def _own(failures: list[Element]) -> list[Element]:
    """The failures with nothing but their own first summary."""
    return [replace(failure, children=failure.children[:1]) for failure in failures]


def test_there_are_tables_by_difficulty_kind_worker_and_shape(page: Element) -> None:
    levels = table_of(page, "Accuracy by difficulty").cells()
    assert levels[0] == ["strategy", "easy", "medium", "hard"]
    kinds = table_of(page, "Accuracy by kind").cells()
    assert kinds[0] == ["strategy", "algebra", "counting", "geometry"]
    workers = table_of(page, "Steps by worker").cells()
    conductor = next(cells for cells in workers if cells[0] == "conductor")
    assert sum(float(cell) for cell in conductor[1:-1]) == pytest.approx(100, abs=2)
    assert 0 < float(conductor[-1]) < 1.6
    shapes = table_of(page, "Workflows by shape").cells()
    assert {"one-shot", "chain"} <= set(shapes[0])


def test_errors_and_skipped_lines_are_listed(tmp_path: Path) -> None:
    async def write() -> Path:
        directory = tmp_path / "troubled"
        item = Item("x")
        run = run_of(item, "41", (("gpt-5", "Solve it.", ()),), strategy="single:gpt-5")
        with EvalLogWriter(directory) as files:
            for number in range(3):
                sample = await sample_of(
                    item, run, task=f"t{number}", error=f"no reply {HOSTILE}", error_source="gpt-5"
                )
                files.write_sample("single:gpt-5", sample, run)
        skipped = [{"where": f"line {n}", "reason": "no answer"} for n in range(30)]
        document = {
            "rows": [{"strategy": "single:gpt-5"}],
            "skipped": skipped,
            "stopped": {"cap_usd": 0.5, "spent_usd": 0.5, "unfinished": {}},
        }
        (directory / "summary.json").write_text(json.dumps(document), "utf-8")
        return directory

    page = page_of(asyncio.run(write()))
    (cells,) = table_of(page, "Errors").cells()[1:]
    assert cells[:3] == ["single:gpt-5", "gpt-5", "3"]
    assert cells[3].startswith("no reply <script>")
    assert "30 lines of the suite could not be read as tasks" in page.text
    assert "line 19: no answer" in page.text
    assert "and 10 more" in page.text
    assert "Stopped at its budget of 0.5 USD" in page.text


def test_an_interrupted_evaluation_is_marked_incomplete(tmp_path: Path) -> None:
    answers = {"conductor": [(Item("x"), "42"), (Item("y"), "7")]}
    page = page_of(asyncio.run(write_evaluation(tmp_path / "cut", answers)))
    assert "incomplete: the evaluation was interrupted" in page.one("ul", class_="facts").text
    assert page.one("h1").text == "cut"
    assert page.one("p", class_="headline").text == "conductor answers 50.0 % of 2 tasks correctly."


def test_a_long_reply_is_cut_off(tmp_path: Path) -> None:
    answers = {"conductor": [(Item("x"), "b" * (MAX_TEXT + 1234))]}
    page = page_of(asyncio.run(write_evaluation(tmp_path / "long", answers)))
    assert max(map(len, re.findall("b+", page.text))) == MAX_TEXT
    assert "… 1,234 more characters" in page.text


def test_a_step_that_was_not_executed_is_marked(tmp_path: Path) -> None:
    async def write() -> Path:
        item = Item("x")
        run = run_of(item, "41", PLANS["medium"])
        (round_,) = run.rounds
        cut_off = replace(run, rounds=(replace(round_, steps=round_.steps[:1]),))
        with EvalLogWriter(tmp_path / "planned") as files:
            files.write_sample("conductor", await sample_of(item, cut_off), cut_off)
        return tmp_path / "planned"

    first, second = page_of(asyncio.run(write())).one("ol", class_="steps").all("li")
    assert "not executed" not in first.text
    assert "reads 0 · not executed" in second.text
    assert "Check the solution" in second.text


@pytest.mark.parametrize("pool", ["pool.toml", "etudes"])
def test_the_pool_is_named_if_it_is_known(tmp_path: Path, pool: str) -> None:
    answers = {"conductor": [(Item("x"), "42")]}
    fields = {"suite": "mine", "rows": [{"strategy": "conductor"}]}
    known = asyncio.run(write_evaluation(tmp_path / "known", answers, **fields, pool=pool))
    assert f"pool {pool}" in page_of(known).one("ul", class_="facts").text
    old = asyncio.run(write_evaluation(tmp_path / "old", answers, **fields))
    assert "pool" not in page_of(old).one("ul", class_="facts").text


def test_grades_by_a_model_are_marked(tmp_path: Path) -> None:
    async def write() -> Path:
        item = Item("x")
        run = run_of(item, "41", (("gpt-5", "Solve it.", ()),))
        with EvalLogWriter(tmp_path / "judged") as files:
            files.write_sample(
                "conductor", await sample_of(item, run, judge="claude-sonnet-4"), run
            )
        return tmp_path / "judged"

    page = page_of(asyncio.run(write()))
    assert "judged by the model claude-sonnet-4" in page.one("ul", class_="facts").text
    assert "Graded by the model claude-sonnet-4." in page.text


async def test_the_page_lists_the_workers_of_the_runs(tmp_path: Path) -> None:
    directory = await write_evaluation(tmp_path / "plain", {"conductor": [(Item("a"), "42")]})
    table = next(t for t in page_of(directory).all("table") if t.one("caption").text == "Workers")
    assert [cells[0] for cells in table.cells()[1:]] == list(POOL.names)
    assert table.cells()[1] == ["gpt-5", "scripted", ""]


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("owner/name", "owner/name"),
        ("file:/home/ada/base", "base"),
        ("/home/ada/base.gguf", "base.gguf"),
    ],
)
async def test_directories_of_local_models_are_hidden(
    tmp_path: Path, model: str, shown: str
) -> None:
    pool = Pool((WorkerProfile(name="gpt-5", provider="local", model=model),))
    run = replace(run_of(Item("a"), "42", SINGLE_PLAN), pool=pool)
    with EvalLogWriter(tmp_path / "here") as files:
        files.write_sample("conductor", await sample_of(Item("a"), run), run)
    page = page_of(tmp_path / "here")
    table = next(t for t in page.all("table") if t.one("caption").text == "Workers")
    assert table.cells()[1] == ["gpt-5", "local", shown]


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("conductor", "conducted"),
        ("baseline-conductor:compact", "conducted"),
        ("single:gpt-5", "alone"),
        ("best-single", "alone"),
        ("best-of-5:gpt-5", "other"),
        ("moa-3", "other"),
        ("mine.py:answer", "other"),
        ("ideal", "ceiling"),
        (PER_TASK_BEST, "ceiling"),
    ],
)
def test_every_strategy_has_a_kind(strategy: str, kind: Kind) -> None:
    assert kind_of(strategy) == kind


def test_conducted_strategies_exist() -> None:
    conducted = [name for name in STRATEGIES if kind_of(name) == "conducted"]
    assert conducted == ["conductor", "recursion", "rules", "baseline-conductor"]


def row(strategy: str, *outcomes: bool) -> StrategyRow:
    return StrategyRow(strategy, tuple(sample(right) for right in outcomes))


def test_the_headline_row_is_the_best_conductor() -> None:
    weak, strong = row("rules", False), row("conductor", True, False)
    others = [row("ideal", True), row("moa", True), row("best-single", True)]
    assert choose_headline_row([weak, *others, strong]) is strong
    assert choose_headline_row(others).strategy == "moa"
    assert choose_headline_row([others[0], others[2]]).strategy == "best-single"
    assert choose_headline_row([others[0]]).strategy == "ideal"


def test_rows_with_one_step_per_task_are_not_planning_rows() -> None:
    two = StrategyRow("conductor", (sample(True, workers=("a", "b")),))
    assert planning_rows(
        [two, row("random", True), row("single:a", True), row(PER_TASK_BEST, True)]
    ) == [two]
