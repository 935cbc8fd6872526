"""An evaluation sample by sample: what was asked, answered and graded, why, and beside another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from podium.core.run import dump
from support.runs_on_record import kept_run, round_of, step_record
from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from server.pages.conftest import Clock, Serve

QUESTIONS = ("What is 6 times 7?", "What is 2 + 2?", "Capital of Japan?")
EXPECTED = ("42", "4", "Tokyo")


def sample(strategy: str, task: int, answer: str, **more: Any) -> dict[str, Any]:
    run = kept_run(
        task,
        question=QUESTIONS[task],
        answer=answer,
        rounds=(round_of(step_record(0), step_record(1, access=(0,))),),
    )
    return {
        "strategy": strategy,
        "task": f"{'facts' if task == 2 else 'sums'}/{task}",
        "kind": "facts" if task == 2 else "arithmetic",
        "repeat": 0,
        "right": EXPECTED[task] in answer,
        "expected": EXPECTED[task],
        "grader": "ContainsGrader",
        "calls": 2,
        "cost_usd": 0.002,
        "seconds": 1.5,
        "run": dump(run),
        **more,
    }


def write(directory: Path, *samples: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "evaluation.json").write_text(json.dumps({"suite": "mine.jsonl", "n": 3}))
    for item in samples:
        with (directory / f"{item['strategy']}.jsonl").open("a") as file:
            file.write(json.dumps(item) + "\n")


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    directory = tmp_path / "measured"
    write(
        directory / "first",
        *(sample("conductor", task, ("42", "5", "Tokyo")[task]) for task in range(3)),
        *(sample("majority", task, ("41", "5", "Tokyo")[task]) for task in range(3)),
    )
    write(
        directory / "second",
        *(sample("conductor", task, ("40", "4", "Tokyo")[task]) for task in range(3)),
    )
    return directory


@pytest_asyncio.fixture(loop_scope="session")
async def site(serve: Serve, measured: Path) -> AsyncIterator[Site]:
    async with serve(experiment_dirs=(str(measured),)) as made:
        yield made


def results(page: Page) -> Locator:
    return page.locator("details.result")


async def test_a_sample_has_question_grade_reason_plan_prompts_and_replies(
    page: Page, site: Site
) -> None:
    await page.goto(site.url("/experiments/measured.first"))
    await expect(results(page)).to_have_count(3)
    await results(page).nth(1).locator("> summary").click()
    card = page.get_by_role("article", name="conductor on sums/1")
    await expect(results(page).nth(1)).to_contain_text("Expected: 4")
    await expect(card).to_contain_text("Wrong: the answer must contain “4”.")
    await expect(card).to_contain_text("$0.002")
    await card.get_by_text("Plan, prompts and replies").click()
    await card.locator(".step-head").nth(1).click()
    await expect(card.locator(".step").nth(1)).to_contain_text("prompt 1")
    await expect(card.locator(".step").nth(1)).to_contain_text("It reads step 0.")
    await expect(card.locator(".step").nth(1)).to_contain_text("reply 1")


@pytest.mark.parametrize(
    ("field", "value", "left"),
    [
        ("Show", "wrong", QUESTIONS[:2]),
        ("Show", "disagreed", QUESTIONS[:1]),
        ("Kind", "facts", QUESTIONS[2:]),
        ("Suite", "sums", QUESTIONS[:2]),
    ],
)
async def test_samples_are_filtered(
    page: Page, site: Site, field: str, value: str, left: tuple[str, ...]
) -> None:
    await page.goto(site.url("/experiments/measured.first"))
    await page.get_by_label(field, exact=True).select_option(value)
    await expect(page.locator(".result-title")).to_have_text([*left])


async def test_samples_are_searched(page: Page, site: Site) -> None:
    await page.goto(site.url("/experiments/measured.first"))
    await page.get_by_label("Search").fill("japan")
    await expect(page.locator(".result-title")).to_have_text([QUESTIONS[2]])
    await expect(page.get_by_text("1 of 3 tasks")).to_be_visible()


async def test_two_evaluations_are_compared_sample_by_sample(page: Page, site: Site) -> None:
    await page.goto(site.url("/experiments/measured.first"))
    await page.get_by_label("Compare with").select_option("measured/second")
    result = "first: conductor 66.7% right, second: conductor 66.7% right; 1 gained, 1 lost"
    await expect(page.get_by_text(result)).to_be_visible()
    await page.get_by_label("Show").select_option("right only on the right")
    await expect(page.locator(".result-title")).to_have_text([QUESTIONS[1]])
    await results(page).first.locator("> summary").click()
    await expect(page.get_by_role("article", name="first: conductor on")).to_contain_text("5")
    await expect(page.get_by_role("article", name="second: conductor on")).to_contain_text("4")
    await page.get_by_label("Strategy on the left").select_option("majority")
    await expect(page.get_by_text("first: majority 33.3% right")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text("first: majority 33.3% right")).to_be_visible()


async def test_a_running_evaluation_shows_its_progress_and_new_samples(
    page: Page, site: Site, measured: Path, clock: Clock
) -> None:
    running = measured / "running"
    write(running, sample("conductor", 0, "42"))
    await page.goto(site.url("/experiments/measured.running"))
    await expect(page.get_by_label("conductor: 1 of 3")).to_be_visible()
    await expect(results(page)).to_have_count(1)
    write(running, sample("conductor", 1, "5"))
    await clock.run_for(6000)
    await expect(page.get_by_label("conductor: 2 of 3")).to_be_visible()
    await expect(results(page)).to_have_count(2)
    await expect(page.get_by_text("conductor 50% right")).to_be_visible()
