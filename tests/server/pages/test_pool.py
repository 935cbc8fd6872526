"""The page Workers: who is in it, how everyone is, what each is used for, and all of it live."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import httpx
import pytest

from podium.config.workers import WorkerTable
from podium.core.pool import WorkerProfile
from podium.core.run import Run, timestamp
from podium.core.workflow import Step
from podium.workers import ScriptedWorker
from podium.workers.endpoints import KNOWN_ENDPOINTS
from support.browsing import sign_in
from support.runs_on_record import attempt, run_with_calls
from support.site import Site

playwright = pytest.importorskip("playwright.async_api")
expect = playwright.expect

if TYPE_CHECKING:
    from playwright.async_api import Page

    from server.pages.conftest import Clock, Serve, Watched

HOSTILE = "Check <img src=x onerror=alert(1)> this."


def work(number: int = 1, *, error: str | None = None, created_at: str | None = None) -> Run:
    return run_with_calls(
        f"run_{number:016x}",
        (Step("solver", "Solve the riddle.", ()), (attempt("solver", 2.0, cost=0.5),)),
        (Step("checker", HOSTILE, "all"), (attempt("checker", 1.0, error=error),)),
        created_at=created_at or timestamp(),
    )


async def test_workers_stand_beside_each_other_with_what_is_known(site: Site, page: Page) -> None:
    await site.store.finish(work(error="HTTP 500"))
    await page.goto(site.url("/pool"))
    rows = page.get_by_role("region", name="Workers beside each other").locator("tbody tr")
    solver, checker, local = [await rows.nth(where).inner_text() for where in range(3)]
    assert "working" in solver
    assert "50%" in solver
    assert "2.0 s" in solver
    assert "$3.00 / $15.00" in solver
    assert "last call failed" in checker
    assert "100%" in checker
    assert "not called" in local
    assert "unknown" in local
    assert local.count("–") == 5, "share, errors, both times and money: nobody knows"
    await expect(page.get_by_text("Figures are those of 1 run on record")).to_be_visible()


async def test_the_pool_that_podium_brings_along_is_reported_as_small(
    page: Page, serve: Serve
) -> None:
    small = WorkerProfile(name="qwen", provider="llamacpp", model="qwen2.5-coder-1.5b-instruct")
    async with serve([ScriptedWorker(small, "Three.")]) as site:
        for path in ("/pool", "/"):
            await page.goto(site.url(path))
            await expect(page.get_by_text("is often wrong")).to_be_visible()
        await page.get_by_role("link", name="Add a worker").click()
        await expect(page.get_by_role("dialog", name="Add a worker")).to_be_visible()


async def test_other_pools_are_not(site: Site, page: Page) -> None:
    await page.goto(site.url("/pool"))
    await expect(page.get_by_text("Figures are those of")).to_be_visible()
    await expect(page.get_by_text("is often wrong")).to_have_count(0)


async def test_worker_usage_links_to_its_runs(site: Site, page: Page) -> None:
    await site.store.finish(work())
    await page.goto(site.url("/pool"))
    card = page.get_by_role("region", name="checker", exact=True)
    await expect(card.get_by_text("verify 1 of 1 steps")).to_be_hidden()
    await card.get_by_text("Limits and uses").click()
    await expect(card.get_by_text("verify 1 of 1 steps")).to_be_visible()
    await card.get_by_role("link", name=HOSTILE).click()
    await page.wait_for_url("**/runs/run_0000000000000001?step=0.1")
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Workers")


async def test_figures_follow_what_happens_and_the_focus_stays(
    site: Site, page: Page, clock: Clock
) -> None:
    await page.goto(site.url("/pool"))
    row = page.get_by_role("row", name="solver")
    await expect(row).to_contain_text("not called")
    await row.get_by_role("link").focus()
    await site.store.finish(work())
    await clock.run_for(6000)
    await expect(row).to_contain_text("working")
    assert await page.evaluate("document.activeElement.textContent") == "solver"


async def test_a_card_stays_unfolded_when_its_figures_change(
    site: Site, page: Page, clock: Clock
) -> None:
    await page.goto(site.url("/pool"))
    card = page.get_by_role("region", name="solver", exact=True)
    await card.get_by_text("Limits and uses").click()
    await site.store.finish(work())
    await clock.run_for(6000)
    await expect(card.get_by_text("1 of 1 steps")).to_be_visible()


async def test_a_server_that_goes_away_is_reported_and_so_is_its_return(
    site: Site, page: Page, watched: Watched, clock: Clock
) -> None:
    watched.allow("ERR_FAILED", "Failed to load resource")
    await page.goto(site.url("/pool"))
    await expect(page.get_by_role("row", name="solver")).to_be_visible()
    await page.route("**/v1/pool*", lambda route: route.abort())
    await clock.run_for(6000)
    notice = page.get_by_text("The server cannot be reached.")
    await expect(notice).to_be_visible()
    await expect(page.get_by_role("row", name="solver")).to_be_visible()
    await page.unroute("**/v1/pool*")
    await clock.run_for(6000)
    await expect(notice).to_be_hidden()


async def test_immediate_failures_can_be_retried(site: Site, page: Page, watched: Watched) -> None:
    watched.allow("Failed to load resource")
    body = '{"error": {"message": "the disk is full"}}'
    await page.route("**/v1/pool*", lambda route: route.fulfill(status=500, body=body))
    await page.goto(site.url("/pool"))
    await expect(page.get_by_role("alert")).to_contain_text("the disk is full")
    await page.unroute("**/v1/pool*")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("row", name="solver")).to_be_visible()


async def test_the_window_stands_in_the_address(site: Site, page: Page) -> None:
    await site.store.finish(work(1), work(2, created_at="2026-01-01T00:00:00.000+00:00"))
    await page.goto(site.url("/pool"))
    choice = page.get_by_label("Figures of")
    await choice.select_option("30")
    await page.wait_for_url("**/pool?days=30")
    await page.go_back()
    await expect(choice).to_have_value("7")
    await page.goto(site.url("/pool?days=90"))
    await expect(choice).to_have_value("90")
    await page.goto(site.url("/pool?days=many"))
    await expect(choice).to_have_value("7")


async def test_a_small_window_scrolls_the_table_and_not_the_page(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 380, "height": 800})
    await site.store.finish(work())
    await page.goto(site.url("/pool"))
    table = page.get_by_role("region", name="Workers beside each other")
    await table.focus()
    await page.keyboard.press("ArrowRight")
    await page.wait_for_function("() => document.getElementById('pool-table').scrollLeft > 0")
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 380


async def test_a_worker_is_reached_by_keyboard(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 380, "height": 400})
    await page.goto(site.url("/pool"))
    link = page.get_by_role("link", name="checker", exact=True)
    await link.evaluate("link => { link.isStillThere = true }")
    await link.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/pool#worker-checker")
    card = page.get_by_role("region", name="checker", exact=True)
    await expect(card).to_be_in_viewport()
    assert await link.evaluate("link => link.isStillThere")
    await page.go_back()
    await expect(card).not_to_be_in_viewport()
    await expect(link).to_be_in_viewport()


async def test_a_link_to_a_worker_from_elsewhere_leads_to_its_card(site: Site, page: Page) -> None:
    await page.set_viewport_size({"width": 380, "height": 400})
    await page.goto(site.url("/pool#worker-checker"))
    card = page.get_by_role("region", name="checker", exact=True)
    await expect(card).to_be_in_viewport()


async def test_with_keys_on_the_pool_takes_one(site_with_keys: Site, page: Page) -> None:
    await page.goto(site_with_keys.url("/pool"))
    await sign_in(page, site_with_keys.token)
    await expect(page.get_by_role("row", name="solver")).to_be_visible()


async def test_a_worker_is_tested_disabled_and_enabled(site: Site, page: Page) -> None:
    await page.goto(site.url("/pool"))
    await page.get_by_role("button", name="Test checker now").click()
    await expect(page.get_by_text("Answered in")).to_be_visible()
    await page.get_by_role("button", name="Disable solver").click()
    await expect(page.get_by_role("row", name="solver")).to_contain_text("disabled")
    run = await site.store.load(await site.ask("Compare two proofs about primes!"))
    assert run.steps
    assert "solver" not in {step.worker for step in run.steps}
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        await site.ask("Why?", model="solver")
    await page.get_by_role("button", name="Enable solver").click()
    await expect(page.get_by_role("row", name="solver")).not_to_contain_text("disabled")
    run = await site.store.load(await site.ask("Compare two proofs about primes!"))
    assert "solver" in {step.worker for step in run.steps}


async def test_the_last_worker_stays_enabled(site: Site, page: Page, watched: Watched) -> None:
    watched.allow("409")
    await page.goto(site.url("/pool"))
    for name in ("solver", "checker"):
        await page.get_by_role("button", name=f"Disable {name}").click()
        await expect(page.get_by_role("button", name=f"Enable {name}")).to_be_visible()
    await page.get_by_role("button", name="Disable local").click()
    await expect(page.get_by_text("is the last enabled worker")).to_be_visible()


async def test_errors_are_shown_by_kind(site: Site, page: Page) -> None:
    await site.store.finish(work(1, error="checker: HTTP 429: slow down"), work(2, error="odd"))
    await page.goto(site.url("/pool"))
    table = page.get_by_role("region", name="Errors of checker")
    await expect(table.get_by_role("row", name="rate limit 1")).to_be_visible()
    await expect(table.get_by_role("row", name="other 1")).to_be_visible()


async def test_a_new_worker_is_shown_as_toml(site: Site, page: Page) -> None:
    await page.goto(site.url("/pool"))
    await page.get_by_role("button", name="Add worker").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("mine")
    offered = await dialog.get_by_label("Provider").locator("option").all_inner_texts()
    assert {*offered} == {*KNOWN_ENDPOINTS, "openai-compatible", "llamacpp"}
    await dialog.get_by_label("Provider").select_option("openai-compatible")
    await dialog.get_by_label("Description").fill('good at "code"')
    await dialog.get_by_label("Address").fill("http://127.0.0.1:8000/v1")
    await dialog.get_by_label("Input price").fill("0.5")
    await dialog.get_by_label("Output price").fill("2")
    text = await dialog.locator("pre").inner_text()
    table = WorkerTable.model_validate(tomllib.loads(text)["worker"][0])
    assert (table.name, table.base_url) == ("mine", "http://127.0.0.1:8000/v1")
    assert table.description == 'good at "code"'
    assert table.price is not None
    assert (table.price.input, table.price.output) == (0.5, 2)
