"""The page Experiments: curves that grow while a training writes, sample plans, evaluations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

    from server.pages.conftest import Clock, Serve, Watched


def metrics(step: int, **more: float) -> dict[str, Any]:
    return {
        "step": step,
        "rollouts": 8,
        "reward": step / 10,
        "accuracy_given_valid": 0.5,
        "entropy_bits": 2.0,
        "mean_steps": 2.0,
        "steps/1": 0.25,
        "steps/3": 0.75,
        **more,
    }


def write(path: Path, *entries: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    directory = tmp_path / "trained"
    write(directory / "etudes" / "metrics.jsonl", metrics(1), metrics(2))
    write(
        directory / "etudes" / "samples.jsonl",
        {"step": 1, "question": "An early question?", "text": "model_id = [0]", "right": False},
        {"step": 2, "question": "A late <b>question</b>?", "text": "model_id = [1]", "right": True},
    )
    return directory


@pytest_asyncio.fixture(loop_scope="session")
async def experiments(serve: Serve, trained: Path) -> AsyncIterator[Site]:
    async with serve(experiment_dirs=(str(trained),)) as made:
        yield made


async def test_trainings_are_listed_and_lead_to_their_curves(experiments: Site, page: Page) -> None:
    await page.goto(experiments.url("/experiments"))
    await page.get_by_role("link", name="trained/etudes").click()
    await page.wait_for_url("**/experiments/trained.etudes")
    await expect(page.get_by_role("heading", level=1)).to_have_text("trained/etudes")
    for title in ("Reward", "Accuracy given a valid plan", "Variety of workers"):
        await expect(page.get_by_role("img", name=title, exact=True)).to_be_visible()
    await page.get_by_text("Numbers of Reward").locator("..").click()
    numbers = page.get_by_role("region", name="Numbers of Reward")
    await expect(numbers.get_by_role("row").nth(2)).to_have_text("20.2")
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Experiments")


async def test_curves_grow_while_the_training_writes(
    experiments: Site, page: Page, trained: Path, clock: Clock
) -> None:
    await page.goto(experiments.url("/experiments/trained.etudes"))
    reward = page.locator("figure", has=page.get_by_role("img", name="Reward", exact=True))
    await expect(reward.locator("desc")).to_have_text("reward: from 0.1 to 0.2, step 1 to 2.")
    write(trained / "etudes" / "metrics.jsonl", metrics(3), {"step": 3, "held_out/reward": 0.9})
    with (trained / "etudes" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rewa')
    await clock.run_for(2500)
    await expect(reward.locator("desc")).to_have_text(
        "reward: from 0.1 to 0.3, step 1 to 3. reward, held out: 0.9 at step 3."
    )
    await expect(page.locator("output")).to_have_text("step 3")
    (trained / "etudes" / "metrics.jsonl").write_text(json.dumps(metrics(1, reward=5.0)) + "\n")
    await clock.run_for(2500)
    await expect(reward.locator("desc")).to_have_text("reward: 5 at step 1.")


async def test_a_slider_leads_through_the_plans_by_keyboard_and_by_address(
    experiments: Site, page: Page
) -> None:
    await page.goto(experiments.url("/experiments/trained.etudes"))
    sample = page.locator(".sample")
    await expect(sample).to_contain_text("A late <b>question</b>?")
    await expect(page.locator(".moments .chart-bar")).to_have_count(2)
    slider = page.get_by_role("slider", name="Step")
    await slider.focus()
    await page.keyboard.press("ArrowLeft")
    await expect(sample).to_contain_text("An early question?")
    assert await slider.get_attribute("aria-valuetext") == "step 1"
    assert page.url.endswith("/experiments/trained.etudes?step=1")
    await page.reload()
    await expect(sample).to_contain_text("An early question?")
    await slider.focus()
    await page.keyboard.press("End")
    await expect(sample).to_contain_text("A late")
    assert page.url.endswith("/experiments/trained.etudes")


async def test_many_lines_of_one_kind_are_drawn_apart_each_with_its_name(
    experiments: Site, page: Page, trained: Path
) -> None:
    kinds = {f"accuracy/chain-{number}": number / 10 for number in (1, 2, 10, 3, 4)}
    write(trained / "etudes" / "metrics.jsonl", metrics(3, **kinds), metrics(4, **kinds))
    await page.goto(experiments.url("/experiments/trained.etudes"))
    family = page.locator("figure", has_text="Accuracy by kind of question")
    heads = family.locator(".multiple-head")
    await expect(heads).to_have_text(
        ["chain-110%", "chain-220%", "chain-330%", "chain-440%", "chain-10100%"]
    )
    one = family.get_by_role("img", name="chain-2")
    await expect(one.locator("desc")).to_have_text("chain-2: from 20% to 20%, step 3 to 4.")
    await expect(family.locator(".chart-note")).to_contain_text("whose answer was right")


async def test_names_are_sorted_as_people_count(
    experiments: Site, page: Page, trained: Path
) -> None:
    for number in (10, 2, 1):
        write(trained / f"grpo-{number}" / "metrics.jsonl", metrics(1))
    await page.goto(experiments.url("/experiments"))
    rows = page.get_by_role("region", name="Trainings").get_by_role("rowheader")
    names = ["trained/etudes", *(f"trained/grpo-{number}" for number in (1, 2, 10))]
    await expect(rows).to_have_text(names)


async def test_a_training_that_has_not_begun_says_so(
    experiments: Site, page: Page, trained: Path, clock: Clock
) -> None:
    (trained / "new").mkdir()
    (trained / "new" / "metrics.jsonl").touch()
    await page.goto(experiments.url("/experiments/trained.new"))
    await expect(page.get_by_text("No step is written down yet.")).to_be_visible()
    write(trained / "new" / "metrics.jsonl", metrics(1))
    await clock.run_for(2500)
    await expect(page.get_by_role("img", name="Reward", exact=True)).to_be_visible()
    await expect(page.get_by_text("No step is written down yet.")).to_be_hidden()


async def test_without_a_directory_the_page_says_how_to_name_one(site: Site, page: Page) -> None:
    await page.goto(site.url("/experiments"))
    await expect(page.get_by_text("There are no trainings or evaluations yet.")).to_be_visible()
    await expect(page.locator("code", has_text='experiment_dirs = ["trained"')).to_be_visible()


async def test_an_unknown_name_is_reported_with_a_link_back(
    experiments: Site, page: Page, watched: Watched
) -> None:
    watched.allow("Failed to load resource")
    await page.goto(experiments.url("/experiments/trained.gone"))
    await expect(page.get_by_role("alert")).to_contain_text("not found: 'trained.gone'")
    await page.get_by_role("link", name="← Experiments").click()
    await expect(page.get_by_role("link", name="trained/etudes")).to_be_visible()


async def test_a_server_that_goes_away_leaves_the_curves_and_says_so(
    experiments: Site, page: Page, watched: Watched, clock: Clock
) -> None:
    watched.allow("Failed to load resource")
    await page.goto(experiments.url("/experiments/trained.etudes"))
    await expect(page.get_by_role("img", name="Reward", exact=True)).to_be_visible()
    await page.route("**/v1/experiments/**", lambda route: route.abort())
    await clock.run_for(2500)
    await expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
    await expect(page.get_by_role("img", name="Reward", exact=True)).to_be_visible()


async def test_curves_stay_where_only_the_samples_cannot_be_had_and_those_come_later(
    experiments: Site, page: Page, watched: Watched, clock: Clock
) -> None:
    watched.allow("Failed to load resource")
    await page.route("**/samples", lambda route: route.abort())
    await page.goto(experiments.url("/experiments/trained.etudes"))
    await expect(page.get_by_text("The server cannot be reached.")).to_be_visible()
    await expect(page.get_by_role("img", name="Reward", exact=True)).to_be_visible()
    await page.unroute("**/samples")
    await clock.run_for(2500)
    await expect(page.get_by_role("slider", name="Step")).to_be_visible()
    await expect(page.get_by_text("The server cannot be reached.")).to_be_hidden()


async def test_an_evaluation_is_a_table_with_intervals_once_it_is_done(
    experiments: Site, page: Page, trained: Path, clock: Clock
) -> None:
    mine = trained / "mine"
    mine.mkdir()
    (mine / "evaluation.json").write_text('{"suite": "etudes", "seed": 7, "limit": 40}')
    write(mine / "ideal.jsonl", {"strategy": "ideal"}, {"strategy": "ideal"})
    await page.goto(experiments.url("/experiments/trained.mine"))
    await expect(page.get_by_text("ideal 2")).to_be_visible()
    row = {
        "strategy": "ideal", "accuracy": 0.3, "interval": [0.18, 0.45], "faults": 0, "note": "",
        "cost_usd": None, "calls": 2.85, "seconds": {"p50": None, "p95": None},
        "against_best_single": {"value": 0.275, "low": 0.12, "high": 0.4, "p_value": 0.001},
    }  # fmt: skip
    (mine / "summary.json").write_text(json.dumps({"suite": "etudes", "n": 40, "rows": [row]}))
    await clock.run_for(6000)
    shown = page.get_by_role("region", name="Strategies").get_by_role("row", name="ideal")
    await expect(shown).to_contain_text("30%")
    await expect(shown).to_contain_text("18% to 45%")
    await expect(shown).to_contain_text("+27.5 points")
    await expect(page.get_by_text("finished", exact=True)).to_be_visible()


async def test_a_report_runs_nothing_and_reaches_nothing_of_ours(
    experiments: Site, page: Page, context: BrowserContext, trained: Path
) -> None:
    mine = trained / "mine"
    mine.mkdir()
    (mine / "evaluation.json").write_text('{"suite": "etudes"}')
    (mine / "report.html").write_text(
        "<!doctype html><title>A report</title><p id=shown>as written</p>"
        "<script>document.getElementById('shown').textContent = 'run'</script>"
        f"<img src='{experiments.address}/v1/runs'>"
    )
    await page.goto(experiments.url("/experiments"))
    async with context.expect_page() as opened:
        await page.get_by_role("link", name="Report of trained/mine").click()
    report = await opened.value
    await expect(report.locator("#shown")).to_have_text("as written")
    assert await report.evaluate("self.origin") == "null"
    await report.close()


async def test_a_small_window_does_not_scroll_sideways(
    experiments: Site, page: Page, trained: Path
) -> None:
    (trained / "etudes" / "report.html").write_text("<p>")
    await page.set_viewport_size({"width": 380, "height": 800})
    for path, there in (
        ("/experiments", "trained/etudes"),
        ("/experiments/trained.etudes", "Reward"),
    ):
        await page.goto(experiments.url(path))
        await expect(page.get_by_text(there, exact=True).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380
