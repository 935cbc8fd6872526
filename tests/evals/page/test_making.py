from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.evaluations import POOL, SINGLE_PLAN, Item, run_of, sample_of, write_evaluation
from evals.page.parsed import Element, parse
from podium.core.pool import Pool, WorkerProfile
from podium.evals.page.evaluation import view_of
from podium.evals.page.report import report_page
from podium.evals.tables.measured import read_measured
from podium.evals.written import MANIFEST, SampleFiles, write_json
from podium_lab.etudes.perfect import oracle_workers

PLAIN = {"shapes": None, "pool_order": "drawn", "drop_one": False, "flaky": 0.0}


def page_of(directory: Path, **begun: Any) -> Element:
    if begun:
        write_json(directory / MANIFEST, {"seed": 0, "variant": PLAIN, "judge": None, **begun})
    return parse(report_page([view_of(read_measured(directory))]))


def command_on(page: Element) -> str:
    (section,) = page.all("section", aria_labelledby="making")
    return section.one("pre").text


async def test_the_page_says_which_command_and_workers_made_it(tmp_path: Path) -> None:
    answers = {name: [(Item("a"), "42")] for name in ("conductor", "best-of-3:gpt-5")}
    rows = [{"strategy": name} for name in answers]
    told = {"suite": "my own.jsonl", "repeats": 2, "rows": rows}
    directory = await write_evaluation(tmp_path / "plain", answers, **told)
    named = [*POOL.names, "absent"]
    page = page_of(directory, suite="my own.jsonl", limit=None, workers=named, judge="gpt-5")
    assert command_on(page) == (
        "podium eval run 'my own.jsonl' --seed 0 --repeats 2 --judge gpt-5 "
        "--strategy conductor,best-of-3:gpt-5"
    )
    table = next(t for t in page.all("table") if t.one("caption").text == "The workers")
    assert [cells[0] for cells in table.cells()[1:]] == list(POOL.names)
    assert table.cells()[1] == ["gpt-5", "scripted", ""]
    assert "In none of the runs looked at: absent." in page.text


async def test_what_was_changed_about_etudes_is_in_the_command(tmp_path: Path) -> None:
    item, workers = Item("a"), Pool(tuple(worker.profile for worker in oracle_workers()))
    run = replace(run_of(item, "42", SINGLE_PLAN), pool=workers)
    with SampleFiles(tmp_path / "etudes") as files:
        files.keep("ideal", await sample_of(item, run), run)
    variant = {"shapes": ["one", "chain-2"], "pool_order": "shuffled", "drop_one": True}
    begun = {"suite": "etudes", "limit": 60, "workers": list(workers.names)}
    page = page_of(tmp_path / "etudes", **begun, variant={**variant, "flaky": 0.3})
    assert command_on(page) == (
        "podium eval run etudes --oracle --limit 60 --seed 0 --shapes one,chain-2 "
        "--pool-order shuffled --drop-one --flaky 0.3 --strategy ideal"
    )


async def test_who_led_is_in_the_command_where_it_was_said(tmp_path: Path) -> None:
    directory = await write_evaluation(tmp_path / "of", {"conductor": [(Item("a"), "42")]})
    called = {"conductor": "openai/gpt-5", "untrained": "llamacpp/some model"}
    page = page_of(directory, suite="gsm8k", workers=list(POOL.names), **called)
    assert command_on(page) == (
        "podium eval run gsm8k --conductor openai/gpt-5 --untrained 'llamacpp/some model' "
        "--seed 0 --strategy conductor"
    )


@pytest.mark.parametrize(
    ("pool", "option"), [("mine.toml", "--pool mine.toml "), ("embedded", ""), (None, "")]
)
async def test_the_file_of_a_pool_is_in_the_command_by_its_name(
    tmp_path: Path, pool: str | None, option: str
) -> None:
    directory = await write_evaluation(tmp_path / "of", {"conductor": [(Item("a"), "42")]})
    page = page_of(directory, suite="gsm8k", workers=list(POOL.names), pool=pool)
    assert command_on(page) == f"podium eval run gsm8k {option}--seed 0 --strategy conductor"


async def test_where_nothing_says_how_it_was_made_the_page_does_not(tmp_path: Path) -> None:
    directory = await write_evaluation(tmp_path / "old", {"conductor": [(Item("a"), "42")]})
    assert "How it was made" not in page_of(directory).text


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("owner/name", "owner/name"),
        ("file:/home/ada/base", "base"),
        ("/home/ada/base.gguf", "base.gguf"),
    ],
)
async def test_where_files_lie_is_not_told(tmp_path: Path, model: str, shown: str) -> None:
    pool = Pool((WorkerProfile(name="gpt-5", provider="local", model=model),))
    run = replace(run_of(Item("a"), "42", SINGLE_PLAN), pool=pool)
    with SampleFiles(tmp_path / "here") as files:
        files.keep("conductor", await sample_of(Item("a"), run), run)
    page = page_of(tmp_path / "here", suite="s", workers=["gpt-5"])
    table = next(t for t in page.all("table") if t.one("caption").text == "The workers")
    assert table.cells()[1] == ["gpt-5", "local", shown]
