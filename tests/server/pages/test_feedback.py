"""Feedback on an answer: thumbs on the run's page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from podium.core.run import timestamp
from podium.store import Feedback
from support.runs_on_record import kept_run
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page


def thumb(page: Page, name: str, pressed: bool) -> Locator:
    return page.get_by_role("button", name=name, pressed=pressed)


async def scores(site: Site, run_id: str) -> list[float]:
    given = await site.store.feedback.page()
    return [item.score for item in given if item.run_id == run_id and not item.grader]


async def test_a_thumb_is_kept_changed_and_withdrawn(page: Page, site: Site) -> None:
    run_id = await site.ask("Why is the sky blue?")
    await page.goto(site.url(f"/runs/{run_id}"))
    await thumb(page, "Good answer", pressed=False).click()
    await thumb(page, "Good answer", pressed=True).wait_for()
    assert await scores(site, run_id) == [1]
    await thumb(page, "Bad answer", pressed=False).click()
    await thumb(page, "Good answer", pressed=False).wait_for()
    assert await scores(site, run_id) == [0]
    await page.get_by_label("What would be right").fill("Scattering.")
    async with page.expect_response("**/feedback"):
        await page.keyboard.press("Enter")
    await page.reload()
    assert await page.get_by_label("What would be right").input_value() == "Scattering."
    await thumb(page, "Bad answer", pressed=True).click()
    await page.get_by_text("Withdrawn.").wait_for()
    assert await thumb(page, "Bad answer", pressed=False).count() == 1
    assert await page.get_by_label("What would be right").count() == 0
    assert await scores(site, run_id) == []


async def test_grader_scores_are_shown_without_pressing_a_thumb(page: Page, site: Site) -> None:
    run = kept_run()
    await site.keep(run)
    graded = Feedback(run_id=run.id, score=1.0, given_at=timestamp(), grader="exact")
    await site.store.feedback.save(graded)
    await page.goto(site.url(f"/runs/{run.id}"))
    await page.get_by_text("Graded 1 by exact.").wait_for()
    assert await page.get_by_role("button", name=" answer", pressed=True).count() == 0


async def test_there_are_thumbs_only_where_there_is_an_answer(page: Page, site: Site) -> None:
    run = replace(kept_run(), status="failed", answer=None, error="solver is away")
    await site.keep(run)
    await page.goto(site.url(f"/runs/{run.id}"))
    await page.get_by_text("This run failed before there was an answer.").wait_for()
    assert await page.get_by_role("button", name="Good answer").count() == 0
